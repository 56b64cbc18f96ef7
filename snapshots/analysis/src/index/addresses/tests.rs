//! Checks maps, lanes and out-of-memory analyses byte by byte against expected values computed without the indexes.

use super::fit::driver_free;
use super::*;
use crate::{LiveIndex, Series};
use highwater_notation::trace_from_text;
use highwater_snapshots::alloc_rules::AllocRules;
use highwater_snapshots::trace::{DeviceFacts, SegmentRole};
use highwater_snapshots::{BlockId, DeviceId, EventId, EventKind, Pool, Trace};

const DEVICE: DeviceId = DeviceId(0);

struct Asked {
    trace: Trace,
    index: AddressIndex,
    live: LiveIndex,
    series: Series,
}

impl Asked {
    fn new(trace: Trace) -> Self {
        let index = AddressIndex::build(&trace, DEVICE);
        let (live, series) = (LiveIndex::build(&trace, DEVICE), Series::build(&trace, DEVICE));
        Self { trace, index, live, series }
    }

    /// Blocks are placed one after the other from `first` on, unless `addresses` overrides them.
    fn of(text: &str, addresses: &[u64]) -> Self {
        let trace = trace_from_text(text).unwrap().edited(|trace| {
            for (row, address) in addresses.iter().enumerate() {
                trace.blocks.address[row] = *address;
            }
        });
        Self::new(trace)
    }

    fn map(&self, moment: usize) -> AddressMap {
        AddressMap::at(&self.trace, &self.index, &self.live, &self.series, moment)
    }

    fn end(&self) -> AddressMap {
        self.map(self.trace.events.len())
    }

    fn failed(&self) -> FailedRequest {
        let oom = *self.index.ooms().last().unwrap();
        FailedRequest::of(&self.trace, &self.index, &self.live, &self.series, oom).unwrap()
    }
}

/// A segment's pieces, one word each.
fn words(map: &AddressMap) -> Vec<String> {
    let piece = |piece: &Piece| {
        let name = match piece.content {
            Content::Live(BlockId(row)) => format!("b{row}"),
            Content::Rounding(BlockId(row)) => format!("r{row}"),
            Content::Waiting(BlockId(row)) => format!("w{row}"),
            Content::Hole => "free".to_owned(),
            Content::Unmapped => "unmapped".to_owned(),
        };
        format!("{name} {}", piece.bytes())
    };
    map.segments.iter().map(|held| map.pieces_of(held).iter().map(piece).collect::<Vec<_>>().join(", ")).collect()
}

/// Checks the invariants of a map's sums, which hold for any recording.
fn check_sums(map: &AddressMap) {
    let mut usage = Usage::default();
    for segment in &map.segments {
        let pieces = map.pieces_of(segment);
        let bytes: u64 = pieces.iter().map(Piece::bytes).sum();
        assert_eq!(bytes, segment.usage.reserved() + segment.usage.unmapped);
        assert_eq!(bytes, segment.addresses.end - segment.addresses.start);
        assert!(pieces.windows(2).all(|pair| pair[0].addresses.end == pair[1].addresses.start));
        assert!(pieces.windows(2).all(|pair| pair[0].content != pair[1].content), "a hole is one piece");
        usage.add(&segment.usage);
    }
    assert!(map.segments.windows(2).all(|pair| pair[0].addresses.end <= pair[1].addresses.start));
    assert_eq!(usage, map.usage);
    let (live, waiting) = map.stray_bytes();
    assert_eq!(usage.allocated() + live, map.totals.allocated);
    assert_eq!(usage.waiting + waiting, map.totals.active - map.totals.allocated);
    assert_eq!(map.is_exact(), usage.reserved() == map.totals.reserved);
}

/// The content of every byte at `moment`, computed only from the rows of the trace.
fn by_hand(trace: &Trace, moment: usize, bytes: usize) -> Vec<Option<Content>> {
    let is_past = |event: EventId| event.index().is_some_and(|event| event < moment);
    let mut memory = vec![None; bytes];
    let mut paint = |address: u64, length: u64, content: Option<Content>| {
        memory[address as usize..(address + length) as usize].fill(content);
    };
    let ever_mapped = trace.segments.ids().map(|id| trace.segments.get(id));
    for segment in ever_mapped.filter(|segment| segment.role == SegmentRole::Mapping) {
        paint(segment.range.address, segment.range.bytes, Some(Content::Unmapped));
    }
    for event in 0..=moment {
        // Moment 0 has only the baseline.
        for id in trace.segments.ids() {
            let segment = trace.segments.get(id);
            let now = event.checked_sub(1).map_or(EventId::NONE, EventId::from_index);
            let is_mapping = segment.role == SegmentRole::Mapping;
            if segment.alloc == now && segment.role != SegmentRole::Unmapping {
                paint(segment.range.address, segment.range.bytes, Some(Content::Hole));
            } else if segment.alloc == now {
                paint(segment.range.address, segment.range.bytes, Some(Content::Unmapped));
            }
            if now.is_some() && segment.free == now && !is_mapping {
                paint(segment.range.address, segment.range.bytes, None);
            }
        }
    }
    for id in trace.blocks.ids() {
        let block = trace.blocks.get(id);
        if (block.is_baseline() || is_past(block.alloc)) && !is_past(block.free_completed) {
            let is_waiting = trace.was_waiting_at_start(id) || is_past(block.free_requested);
            match is_waiting {
                true => paint(block.address, block.allocated, Some(Content::Waiting(id))),
                false => {
                    paint(block.address, block.allocated, Some(Content::Rounding(id)));
                    paint(block.address, block.requested, Some(Content::Live(id)));
                }
            }
        }
    }
    memory
}

/// A small allocator: first fit in segments of 64 bytes that are allocated and released, and in adjacent pages of 16
/// bytes that are mapped and unmapped from address 1024 on.
fn random_trace(seed: u64) -> Trace {
    let mut state = seed;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    // `None`: not reserved; `Some`: whether it is free.
    let mut memory: Vec<Option<bool>> = vec![None; 1280];
    let (mut text, mut addresses, mut live, mut waiting) = (String::new(), Vec::new(), Vec::new(), Vec::new());
    let mut names = 0;
    for _ in 0..160 {
        let slot = random(4) as usize * 64;
        let page = 1024 + random(12) as usize * 16;
        let is_free = |memory: &[Option<bool>], range: std::ops::Range<usize>| {
            memory[range].iter().all(|byte| *byte == Some(true))
        };
        match random(10) {
            0 if memory[slot].is_none() => {
                memory[slot..slot + 64].fill(Some(true));
                text += &format!("segment_alloc {slot:#x} 64 {}\n", if slot == 0 { "small" } else { "large" });
            }
            1 if is_free(&memory, slot..slot + 64) => {
                memory[slot..slot + 64].fill(None);
                text += &format!("segment_free {slot:#x} 64\n");
            }
            2 if memory[page].is_none() => {
                memory[page..page + 16].fill(Some(true));
                text += &format!("segment_map {page:#x} 16\n");
            }
            3 if is_free(&memory, page..page + 16) => {
                memory[page..page + 16].fill(None);
                text += &format!("segment_unmap {page:#x} 16\n");
            }
            4..=6 => {
                let (allocated, name) = (1 + random(20) as usize, names);
                let fits = |start: &usize| {
                    is_free(&memory, *start..*start + allocated) && *start / 64 == (*start + allocated - 1) / 64
                };
                if let Some(start) = (0..256).chain(1024..1250).find(fits) {
                    memory[start..start + allocated].fill(Some(false));
                    text += &format!("alloc b{name} {}/{allocated}\n", 1 + random(allocated as u64));
                    (names, _) = (names + 1, addresses.push(start as u64));
                    live.push((name, start, allocated));
                }
            }
            7 if !live.is_empty() => {
                let (name, start, allocated) = live.swap_remove(random(live.len() as u64) as usize);
                text += &format!("free_requested b{name}\n");
                waiting.push((name, start, allocated));
            }
            8 if !waiting.is_empty() => {
                let (name, start, allocated) = waiting.swap_remove(random(waiting.len() as u64) as usize);
                text += &format!("free_completed b{name}\n");
                memory[start..start + allocated].fill(Some(true));
            }
            _ => text += "mark nothing\n",
        }
    }
    trace_from_text(&text).unwrap().edited(|trace| trace.blocks.address.copy_from_slice(&addresses))
}

#[test]
fn every_byte_of_random_recordings_is_reported_as_it_was() {
    for seed in 0..12 {
        let asked = Asked::new(random_trace(seed));
        for moment in 0..=asked.trace.events.len() {
            let map = asked.map(moment);
            check_sums(&map);
            assert!(map.is_exact() && map.strays.is_empty(), "seed {seed}, moment {moment}");
            for (address, expected) in by_hand(&asked.trace, moment, 1280).into_iter().enumerate() {
                let told = map.piece_at(address as u64).map(|(_, piece)| piece.content);
                // An expandable segment without mapped pages is not a segment.
                if told.is_some() || expected != Some(Content::Unmapped) {
                    assert_eq!(told, expected, "seed {seed}, moment {moment}, address {address}");
                }
            }
        }
    }
}

#[test]
fn lanes_show_what_the_maps_of_their_columns_say() {
    for seed in 0..12 {
        let asked = Asked::new(random_trace(seed));
        let axis = LaneAxis::build(&asked.trace, &asked.index);
        let moments: Vec<usize> = (0..=asked.trace.events.len()).step_by(2).collect();
        let window = LaneWindow { moments, places: 0..axis.bytes(), height: axis.bytes() as usize };
        let raster = lanes::raster(&asked.trace, &asked.index, &axis, &asked.live, &window);
        for (x, &moment) in raster.moments.iter().enumerate() {
            let map = asked.map(moment);
            for y in 0..raster.height {
                let (_, address) = axis.at(y as u64).unwrap();
                let expected = map.piece_at(address).map(|(_, piece)| piece.content);
                assert_eq!(raster.spot(x, y), expected, "seed {seed}, moment {moment}, address {address}");
            }
        }
        // Fewer rows show the middle of each.
        let coarse = LaneWindow { height: 13, ..window };
        let picture = lanes::raster(&asked.trace, &asked.index, &axis, &asked.live, &coarse);
        for (x, y) in (0..picture.moments.len()).flat_map(|x| (0..13).map(move |y| (x, y))) {
            assert_eq!(picture.spot(x, y), raster.spot(x, coarse.place_at(y) as usize));
        }
    }
}

#[test]
fn the_axis_has_no_gaps_and_keeps_pools_apart() {
    let text = "segment_alloc 0x1000 64 large\nsegment_alloc 0x2000 64 small\nsegment_free 0x2000 64\n\
                segment_alloc 0x1fe0 128 large\nalloc a 8";
    let asked = Asked::of(text, &[0x9000]);
    let axis = LaneAxis::build(&asked.trace, &asked.index);
    let lane = |lane: &Lane| (lane.home.map(|home| home.pool), lane.addresses.start, lane.start);
    let lanes: Vec<_> = axis.lanes().map(lane).collect();
    let (small, large) = (Some(Pool::Small), Some(Pool::Large));
    let expected =
        [(small, 0x2000, 0), (large, 0x1000, 64), (large, 0x1fe0, 128), (large, 0x2040, 160), (None, 0x9000, 192)];
    assert_eq!(lanes, expected, "who held an address first keeps it; blocks of nowhere come last");
    assert_eq!(axis.bytes(), 200);
    let places: Vec<_> = axis.places(0x1fe0..0x2060).collect();
    assert_eq!(places, [128..160, 0..64, 160..192]);
    assert_eq!(axis.at(130).map(|(_, address)| address), Some(0x1fe2));
    assert!(axis.at(200).is_none());
}

#[test]
fn mapped_ranges_are_one_segment_with_what_is_not_mapped_between_them() {
    let text = "segment_map 0x0 32\nsegment_map 0x20 32\nsegment_map 0x40 32\nalloc a 40/48\nalloc b 4\nfree b\n\
                segment_unmap 0x30 16\nsegment_unmap 0x50 16\nsegment_unmap 0x0 96";
    let asked = Asked::of(text, &[]);
    assert_eq!(words(&asked.map(4)), ["b0 40, r0 8, free 48"], "blocks may span what was mapped one by one");
    assert_eq!(words(&asked.map(9)), ["b0 40, r0 8, unmapped 16, free 16, unmapped 16"]);
    assert_eq!(asked.map(9).usage.reserved(), asked.map(9).totals.reserved);
    let gone = asked.end();
    assert!(gone.segments.is_empty(), "nothing of it is mapped");
    assert_eq!((gone.strays.len(), gone.strays[0].why), (1, UnplacedReason::Outside), "but its block was never freed");
    check_sums(&gone);
}

#[test]
fn private_pools_are_known_by_their_number() {
    let text = "baseline_segment 0x0 64\nattribute segment_pool_id \"(0, 3)\"\nsegment_alloc 0x100 64\n\
                segment_alloc 0x200 64\nattribute pool_id \"(1, 2)\"";
    let map = Asked::of(text, &[]).end();
    let private: Vec<_> = map.segments.iter().map(|segment| segment.home.private).collect();
    assert_eq!(private, [Some((0, 3)), None, Some((1, 2))]);
    assert_eq!(map.segments[2].home.text(), "private large pool 1.2, stream 0");
}

#[test]
fn blocks_without_a_place_are_listed_and_not_dropped() {
    let text = "segment_alloc 0x0 100\nalloc a 30\nalloc b 30\nalloc c 90\nalloc d 10\nfree_requested d\n";
    let asked = Asked::of(&format!("{text}baseline w 7/8 waiting"), &[1000, 0, 20, 60, 50]);
    let map = asked.end();
    let why: Vec<_> = map.strays.iter().map(|stray| (stray.block.0, stray.why, stray.is_waiting)).collect();
    let [covered, outside] = [UnplacedReason::Covered, UnplacedReason::Outside];
    assert_eq!(why, [(1, covered, false), (3, outside, false), (0, outside, true)]);
    assert_eq!(words(&map), ["free 20, b2 30, w4 10, free 40"]);
    check_sums(&map);
}

#[test]
fn recordings_without_segments_have_maps_of_strays_and_lanes_of_blocks() {
    let asked = Asked::of("alloc a 10\nalloc b 20\nfree a", &[]);
    assert!(asked.index.is_empty());
    let map = asked.end();
    assert_eq!((map.segments.len(), map.strays.len(), map.stray_bytes()), (0, 1, (20, 0)));
    let axis = LaneAxis::build(&asked.trace, &asked.index);
    assert_eq!((axis.bytes(), axis.lanes().len()), (30, 1));
    let window = LaneWindow { moments: vec![1, 4], places: 0..30, height: 3 };
    let raster = lanes::raster(&asked.trace, &asked.index, &axis, &asked.live, &window);
    let (a, b) = (Some(Content::Live(BlockId(0))), Some(Content::Live(BlockId(1))));
    assert_eq!(raster.spots, [a, None, None, None, b, b]);
}

#[test]
fn the_largest_request_that_fits_is_reported_by_pool_and_stream() {
    const MIB: u64 = 1 << 20;
    let text = "segment_alloc 0x0 2097152 small\nalloc a 1024 small\nsegment_alloc 0x10000000 20971520\nalloc b 10485760\n\
                segment_alloc 0x20000000 4194304 stream=7\nsegment_alloc 0x30000000 900000 stream=8";
    let map = Asked::of(text, &[0, 0x1000_0000 + 1024]).end();
    let told = |driver_free| {
        let rooms = rooms(&map, &AllocRules::default(), driver_free);
        rooms.iter().map(|room| (room.home.stream.0, room.fits, room.fits_with_driver)).collect::<Vec<_>>()
    };
    let fits = [(0, MIB, None), (0, 10 * MIB - 1024, None), (7, 4 * MIB, None), (8, 0, None)];
    assert_eq!(told(None), fits, "small requests end at 1 MiB, and large ones begin there");
    let with = told(Some(30 * MIB)).into_iter().map(|(_, _, with)| with).collect::<Vec<_>>();
    // Entirely free segments are released first: 4 MiB, and slightly less than one.
    assert_eq!(with, [MIB, 34 * MIB, 34 * MIB, 34 * MIB].map(Some));
}

#[test]
fn an_expandable_segment_grows_behind_its_end_and_between_its_parts() {
    const MIB: u64 = 1 << 20;
    let mut text = String::from("segment_map 0x0 62914560\nalloc a 52428800\nsegment_map 0x3c00000 20971520\n");
    let mut rules = AllocRules::default();
    rules.is_expandable = true;
    let fits = |text: &str| {
        let map = Asked::of(text, &[]).end();
        rooms(&map, &rules, Some(50 * MIB)).iter().map(|room| (room.fits, room.fits_with_driver)).collect::<Vec<_>>()
    };
    assert_eq!(fits(&text), [(30 * MIB, Some(70 * MIB))], "two pages more behind the free 30 MiB");
    text += "segment_map 0x5000000 20971520\nsegment_map 0x6400000 41943040\nalloc h 78643200\nfree h\nalloc c 20971520\n\
             segment_unmap 0x5000000 20971520\n";
    let trace = trace_from_text(&text).unwrap().edited(|trace| trace.blocks.address[2] = 0x640_0000 + 20 * MIB);
    let map = Asked::new(trace).end();
    let told = rooms(&map, &rules, Some(50 * MIB));
    // 30 MiB free, 20 not mapped, 20 free, then the block at the very end: after it, two pages.
    assert_eq!((told[0].fits, told[0].fits_with_driver), (30 * MIB, Some(70 * MIB)));
}

#[test]
fn the_drivers_rest_is_what_is_neither_used_nor_held() {
    let totals = crate::Totals { reserved: 60, device_used: 70, ..Default::default() };
    assert_eq!(
        (driver_free(100, &totals), driver_free(0, &totals), driver_free(50, &totals)),
        (Some(30), None, Some(0))
    );
}

/// A device of `capacity` bytes.
fn with_capacity(asked: Asked, capacity_bytes: u64) -> Asked {
    let facts = DeviceFacts { device: DEVICE, capacity_bytes, ..DeviceFacts::default() };
    Asked { trace: asked.trace.edited(|trace| trace.devices = vec![facts]), ..asked }
}

/// The same device with a setting of its allocator.
fn with_setting(asked: Asked, value: &str) -> Asked {
    let setting = ("alloc_conf".to_owned(), value.to_owned());
    Asked { trace: asked.trace.edited(|trace| trace.devices[0].settings.push(setting)), ..asked }
}

const MIB: u64 = 1 << 20;

/// A segment of 64 MiB with blocks of 8 MiB, of which `freed` are freed, and then a request of 20 MiB.
fn crowded(freed: &str, oom: &str) -> Asked {
    let mut text = "segment_alloc 0x0 67108864\n".to_owned();
    for name in "abcdefgh".chars() {
        text += &format!("alloc {name} 8388608 activation #op_{name} @net\n");
    }
    freed.chars().for_each(|name| text += &format!("free {name}\n"));
    text += oom;
    with_capacity(Asked::of(&text, &[]), 70 * MIB)
}

#[test]
fn free_bytes_in_too_short_pieces_are_reported_as_fragmentation_with_the_cheapest_way_out() {
    let asked = crowded("adg", "oom 20971520 free=6291456 #matmul @net.fc");
    let failed = asked.failed();
    assert_eq!(
        (failed.suspected, failed.op.as_str(), failed.scope.as_str()),
        (Verdict::Fragmentation, "matmul", "net.fc")
    );
    assert_eq!((failed.free_in_pool, failed.free_elsewhere, failed.lacking()), (24 * MIB, 0, 12 * MIB));
    assert_eq!(failed.holes.iter().map(|hole| hole.bytes / MIB).collect::<Vec<_>>(), [8, 8, 8]);
    assert_eq!((failed.capacity, failed.outside), (Some(70 * MIB), Some(0)));
    let eviction_window = failed.eviction_window.unwrap();
    // a b c d: two blocks between two holes; d e f g likewise; f g h: two blocks around one.
    assert_eq!((eviction_window.bytes, eviction_window.blocks.clone()), (16 * MIB, vec![BlockId(1), BlockId(2)]));
}

#[test]
fn a_request_beyond_all_free_bytes_is_reported_as_capacity() {
    let asked = crowded("a", "oom 20971520 free=4194304");
    assert_eq!(asked.failed().suspected, Verdict::Capacity);
    let asked = crowded("ab", "oom 104857600 free=4194304");
    let failed = asked.failed();
    assert_eq!((failed.suspected, failed.eviction_window.clone()), (Verdict::Capacity, None));
    assert!(failed.reason.contains("larger than the device"));
}

#[test]
fn a_request_that_waiting_blocks_would_make_fit_is_reported_as_waiting() {
    let asked = crowded("a", "free_requested b\nfree_requested c\noom 20971520 free=0");
    let failed = asked.failed();
    assert_eq!((failed.suspected, failed.waiting, failed.eviction_window), (Verdict::Waiting, 16 * MIB, None));
}

#[test]
fn room_that_another_stream_or_pool_holds_is_reported_as_elsewhere() {
    let before = "segment_alloc 0x10000000 33554432 stream=7\n";
    let asked = crowded("a", "oom 20971520 free=0");
    assert_eq!(asked.failed().suspected, Verdict::Capacity);
    let text = highwater_notation::text_from_trace(&asked.trace);
    let failed = with_capacity(Asked::of(&format!("{before}{text}"), &[]), 100 * MIB).failed();
    assert_eq!((failed.suspected, failed.free_elsewhere), (Verdict::Elsewhere, 32 * MIB));
    assert!(failed.reason.contains("stream 7"), "{:?}", failed.reason);
}

#[test]
fn room_that_was_there_after_all_and_limits_are_distinguished() {
    let now = crowded("abc", "oom 20971520 free=0");
    let small = format!("segment_alloc 0x10000000 2097152 small\n{}", highwater_notation::text_from_trace(&now.trace));
    assert_eq!([now, Asked::of(&small, &[])].map(|at| at.failed().suspected), [Verdict::Transient; 2]);
    let asked = crowded("a", "oom 20971520 free=33554432");
    assert_eq!(asked.failed().suspected, Verdict::Limit);
    let failed = with_setting(crowded("abc", "oom 20971520 free=0"), "max_split_size_mb:22").failed();
    assert!(failed.suspected == Verdict::Fragmentation && failed.reason.contains("max_split_size"));
}

#[test]
fn the_way_out_is_the_cheapest_of_all_windows_of_a_segment() {
    for seed in 0..12 {
        let asked = Asked::new(random_trace(seed));
        for moment in (0..=asked.trace.events.len()).step_by(7) {
            let map = asked.map(moment);
            for needed in [1, 9, 20, 33, 64] {
                // Every window from block to block of every segment.
                let mut least: Option<u64> = None;
                for segment in &map.segments {
                    let pieces = map.pieces_of(segment);
                    for (from, to) in (0..pieces.len()).flat_map(|from| (from..pieces.len()).map(move |to| (from, to)))
                    {
                        let cuts_block = |row: usize| {
                            let rounds = matches!(pieces[row].content, Content::Rounding(_));
                            rounds && row > 0 && pieces[row - 1].content.block() == pieces[row].content.block()
                        };
                        let window = &pieces[from..=to];
                        let is_mapped = window.iter().all(|piece| piece.content != Content::Unmapped);
                        let length: u64 = window.iter().map(Piece::bytes).sum();
                        let is_live = |piece: &&Piece| matches!(piece.content, Content::Live(_) | Content::Rounding(_));
                        let cost: u64 = window.iter().filter(is_live).map(Piece::bytes).sum();
                        let is_whole = !cuts_block(from) && (to + 1 == pieces.len() || !cuts_block(to + 1));
                        if is_mapped && is_whole && length >= needed && least.is_none_or(|least| cost < least) {
                            least = Some(cost);
                        }
                    }
                }
                let found = eviction_window::eviction_window(&asked.trace, &map, map.segments.iter(), needed, 0);
                assert_eq!(found.as_ref().map(|found| found.bytes), least, "seed {seed}, moment {moment}, {needed}");
                assert!(found.is_none_or(|found| {
                    let length = found.freed.range().map_or(0, |range| range.end - range.start);
                    let bytes: u64 = found.blocks.iter().map(|id| asked.trace.blocks.allocated[id.0 as usize]).sum();
                    length >= needed && bytes == found.bytes
                }));
            }
        }
    }
}

#[test]
fn an_expandable_segment_needs_less_to_go_where_pages_can_follow_it() {
    let text = "segment_map 0x0 62914560\nalloc a 20971520\nalloc b 20971520\nalloc c 20971520\noom 41943040 free=";
    let relief_at = |free: u64| {
        let asked = with_capacity(Asked::of(&format!("{text}{free}"), &[]), 90 * MIB);
        let asked = with_setting(asked, "expandable_segments:True");
        let EvictionSet { blocks, bytes, freed, .. } = asked.failed().eviction_window.unwrap();
        (freed.range().map(|range| [range.start / MIB, range.end / MIB]), bytes / MIB, blocks)
    };
    assert_eq!(relief_at(0), (Some([0, 40]), 40, vec![BlockId(0), BlockId(1)]));
    assert_eq!(relief_at(19 * MIB), (Some([0, 40]), 40, vec![BlockId(0), BlockId(1)]), "less than a page helps nobody");
    assert_eq!(relief_at(21 * MIB), (Some([40, 80]), 20, vec![BlockId(2)]));
}

#[test]
fn only_failed_requests_of_the_device_are_found() {
    let asked = Asked::of("alloc a 1\noom 5 free=0 device=1\noom 6 free=0", &[]);
    assert_eq!(asked.index.ooms(), [EventId(2)]);
    assert!(asked.trace.events.kind[1] == EventKind::Oom);
    let of = |event| FailedRequest::of(&asked.trace, &asked.index, &asked.live, &asked.series, event);
    assert!(
        of(EventId(0)).is_none()
            && of(EventId(1)).is_none()
            && of(EventId(99)).is_none()
            && of(EventId::NONE).is_none()
    );
    let failed = of(EventId(2)).unwrap();
    assert_eq!((failed.requested, failed.rounded, failed.pool), (6, 6, Pool::Small), "how it rounds is unknown");
    assert_eq!(serde_json::to_string(&failed.suspected).unwrap(), "\"capacity\"");
}
