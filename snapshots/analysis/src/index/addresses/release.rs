//! Finds the live blocks with the fewest bytes that have to be freed so that whole segments, or pages of expandable
//! segments, can be released to the driver for a failed request.
//!
//! Before a request fails, the allocator releases every segment that is entirely free. Choosing the segments that can
//! be emptied at the least cost is a knapsack problem with sizes in multiples of a unit (2 MiB in practice). The
//! problem is solved exactly, in time proportional to the number of units times the number of segments. Among segments
//! of equal size only the cheapest can be part of the solution. Pages of an expandable segment are consecutive: a block
//! that spans several pages is counted once.

use super::eviction_window::{EvictionSet, Freed, is_dispensable, is_kept};
use super::map::{AddressMap, Content, ReservedSegment};
use highwater_snapshots::alloc_rules::AllocRules;
use highwater_snapshots::{BlockId, Trace};

/// Maximum number of table entries. For larger tables, the result may not be the smallest.
const MAX_STEPS: u64 = 1 << 26;

/// A unit of memory that is released to the driver as a whole.
struct Cell {
    gain: u64,
    /// Bytes of the live blocks that overlap the cell.
    alone: u64,
    /// The bytes of `alone` in blocks that do not overlap the previous cell.
    after: u64,
    is_page: bool,
    /// Whether blocks of the previous cell may extend into this one.
    is_chained: bool,
    /// The live blocks, by row of [`Cells::blocks`].
    blocks: std::ops::Range<usize>,
}

#[derive(Default)]
struct Cells {
    rows: Vec<Cell>,
    blocks: Vec<BlockId>,
}

/// Returns the dispensable blocks to free so that `short` bytes can be released. `None` if no bytes are missing, or if
/// freeing all of them would not suffice. Private pools release no memory.
pub fn release(trace: &Trace, map: &AddressMap, rules: &AllocRules, short: u64) -> Option<EvictionSet> {
    let mut cells = Cells::default();
    for segment in map.segments.iter().filter(|segment| segment.home.private.is_none()) {
        cells.add(trace, map, segment, rules);
    }
    cells.keep_cheapest(short);
    let all = cells.rows.iter().fold(0_u64, |all, cell| all.saturating_add(cell.gain));
    if short == 0 || all < short {
        return None;
    }
    let (chosen, is_smallest) = match cells.cheapest(short) {
        Some(chosen) => (chosen, true),
        None => (cells.greedy(short), false),
    };
    let mut blocks: Vec<BlockId> =
        chosen.iter().flat_map(|&row| cells.blocks[cells.rows[row].blocks.clone()].iter().copied()).collect();
    blocks.sort_unstable_by_key(|id| (trace.blocks.address[id.0 as usize], id.0));
    blocks.dedup();
    let count = |is_page: bool| chosen.iter().filter(|&&row| cells.rows[row].is_page == is_page).count() as u64;
    let returned = chosen.iter().map(|&row| cells.rows[row].gain).sum();
    Some(EvictionSet {
        bytes: blocks.iter().map(|id| trace.blocks.allocated[id.0 as usize]).sum(),
        freed: Freed::Segments { segments: count(false), pages: count(true), bytes: returned },
        is_smallest,
        blocks,
    })
}

impl Cells {
    fn add(&mut self, trace: &Trace, map: &AddressMap, segment: &ReservedSegment, rules: &AllocRules) {
        // An entirely free segment was not released, so freeing blocks would not change that.
        if segment.usage.blocks == 0 {
            return;
        }
        let first = self.blocks.len();
        let mut spans: Vec<(u64, u64)> = Vec::new();
        for piece in map.pieces_of(segment) {
            if let Content::Live(block) | Content::Rounding(block) = piece.content {
                match spans.last_mut() {
                    Some(span) if self.blocks.last() == Some(&block) => span.1 = piece.addresses.end,
                    _ => {
                        spans.push((piece.addresses.start, piece.addresses.end));
                        self.blocks.push(block);
                    }
                }
            }
        }
        if !segment.is_expandable {
            let bytes = spans.iter().map(|(start, end)| end - start).sum();
            let blocks = first..self.blocks.len();
            let is_kept = map.pieces_of(segment).iter().any(|piece| is_kept(trace, piece));
            let gain = if is_kept { 0 } else { segment.usage.reserved() };
            self.rows.push(Cell { gain, alone: bytes, after: bytes, is_page: false, is_chained: false, blocks });
            return;
        }
        let page = rules.page(segment.home.pool);
        self.add_pages(trace, map, segment, page, (first, &spans));
    }

    /// Adds the pages of an expandable segment, each fully mapped; `spans` are its live blocks from `first` on.
    fn add_pages(
        &mut self,
        trace: &Trace,
        map: &AddressMap,
        segment: &ReservedSegment,
        page: u64,
        (first, spans): (usize, &[(u64, u64)]),
    ) {
        let mut sums = vec![0_u64];
        spans.iter().for_each(|(start, end)| sums.push(sums[sums.len() - 1] + (end - start)));
        let pieces = map.pieces_of(segment);
        let mut end_of_last = None;
        let mut at = 0;
        while let Some(piece) = pieces.get(at) {
            if piece.content == Content::Unmapped {
                at += 1;
                continue;
            }
            let run = pieces[at..].iter().take_while(|piece| piece.content != Content::Unmapped).count();
            let range = piece.addresses.start..pieces[at + run - 1].addresses.end;
            at += run;
            let offset = (range.start - segment.addresses.start).next_multiple_of(page);
            let mut start = segment.addresses.start + offset;
            while start + page <= range.end {
                let from = spans.partition_point(|(_, end)| *end <= start);
                let own = spans.partition_point(|(begin, _)| *begin < start);
                let to = spans.partition_point(|(begin, _)| *begin < start + page);
                let blocks = &self.blocks[first + from..first + to];
                let is_dispensable = |id: &BlockId| is_dispensable(trace.blocks.category[id.0 as usize]);
                if to > from && blocks.iter().all(is_dispensable) {
                    self.rows.push(Cell {
                        gain: page,
                        alone: sums[to] - sums[from],
                        after: sums[to] - sums[own.min(to)],
                        is_page: true,
                        is_chained: end_of_last == Some(start),
                        blocks: first + from..first + to,
                    });
                    end_of_last = Some(start + page);
                }
                start += page;
            }
        }
    }

    /// Keeps only the cheapest whole segments of each size, as many as could be needed.
    fn keep_cheapest(&mut self, short: u64) {
        let mut order: Vec<usize> = (0..self.rows.len()).filter(|&row| !self.rows[row].is_page).collect();
        order.sort_by_key(|&row| (self.rows[row].gain, self.rows[row].alone, row));
        let mut is_kept = vec![true; self.rows.len()];
        let mut taken = (0, 0_u64);
        for row in order {
            let gain = self.rows[row].gain;
            taken = if taken.0 == gain { (gain, taken.1 + 1) } else { (gain, 1) };
            is_kept[row] = gain > 0 && taken.1 <= short.div_ceil(gain);
        }
        let mut kept = is_kept.into_iter();
        self.rows.retain(|_| kept.next().unwrap_or(false));
    }

    /// Returns the rows that release `short` bytes at the least cost; `None` if the search would take too long.
    fn cheapest(&self, short: u64) -> Option<Vec<usize>> {
        let unit = self.rows.iter().fold(0, |unit, cell| greatest_common_divisor(unit, cell.gain)).max(1);
        let needed = short.div_ceil(unit);
        let table = needed.checked_add(1)?.checked_mul(self.rows.len() as u64).filter(|steps| *steps <= MAX_STEPS)?;
        let width = usize::try_from(needed + 1).ok()?;
        // Whether the row is taken, by row, by units still needed, and by whether the previous row was taken.
        let mut is_taken = vec![[0_u64; 2]; usize::try_from(table.div_ceil(64)).ok()?];
        // The least cost of that many units from later rows, by whether the row before them was taken.
        let mut costs = [vec![u64::MAX; width], vec![u64::MAX; width]];
        (costs[0][0], costs[1][0]) = (0, 0);
        for (row, cell) in self.rows.iter().enumerate().rev() {
            let gain = usize::try_from(cell.gain / unit).ok()?;
            let price = [cell.alone, if cell.is_chained { cell.after } else { cell.alone }];
            // In descending order, so that the entries read, for fewer units, still belong to the later rows.
            for left in (0..width).rev() {
                let (without, with) = (costs[0][left], costs[1][left.saturating_sub(gain)]);
                for before in [0, 1] {
                    let taken = with.saturating_add(price[before]);
                    let bit = row * width + left;
                    if taken < without {
                        is_taken[bit / 64][before] |= 1 << (bit % 64);
                    }
                    costs[before][left] = taken.min(without);
                }
            }
        }
        let (mut left, mut before) = (width - 1, 0);
        let mut chosen = Vec::new();
        for (row, cell) in self.rows.iter().enumerate() {
            let bit = row * width + left;
            let is_one = is_taken[bit / 64][before] >> (bit % 64) & 1 == 1;
            before = usize::from(is_one);
            if is_one {
                chosen.push(row);
                left = left.saturating_sub(usize::try_from(cell.gain / unit).ok()?);
            }
        }
        Some(chosen)
    }

    /// Returns rows that release `short` bytes, chosen greedily by cost per byte, without unnecessary rows.
    fn greedy(&self, short: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        let price = |row: &usize| u128::from(self.rows[*row].alone);
        let gain = |row: &usize| u128::from(self.rows[*row].gain);
        order.sort_by(|a, b| (price(a) * gain(b)).cmp(&(price(b) * gain(a))).then_with(|| a.cmp(b)));
        let mut chosen = Vec::new();
        let mut sum = 0_u64;
        for row in order {
            if sum >= short {
                break;
            }
            sum += self.rows[row].gain;
            chosen.push(row);
        }
        for at in (0..chosen.len()).rev() {
            let gain = self.rows[chosen[at]].gain;
            if sum - gain >= short {
                sum -= gain;
                chosen.remove(at);
            }
        }
        chosen.sort_unstable();
        chosen
    }
}

pub(crate) fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::addresses::{AddressIndex, FailedRequest};
    use crate::{LiveIndex, Series};
    use highwater_notation::trace_from_text;
    use highwater_snapshots::DeviceId;
    use highwater_snapshots::trace::{DeviceFacts, TraceParts};

    fn cells(rows: &[(u64, u64, u64, bool)]) -> Cells {
        let row = |&(gain, alone, after, is_chained): &(u64, u64, u64, bool)| Cell {
            gain,
            alone,
            after,
            is_page: is_chained,
            is_chained,
            blocks: 0..0,
        };
        Cells { rows: rows.iter().map(row).collect(), blocks: Vec::new() }
    }

    fn price(cells: &Cells, chosen: &[usize]) -> u64 {
        let of = |&row: &usize| {
            let cell = &cells.rows[row];
            if cell.is_chained && row > 0 && chosen.contains(&(row - 1)) { cell.after } else { cell.alone }
        };
        chosen.iter().map(of).sum()
    }

    #[test]
    fn the_choice_is_the_cheapest_of_all_choices() {
        let mut seed = 7_u64;
        let mut next = |bound: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % bound
        };
        for _ in 0..60 {
            let rows: Vec<(u64, u64, u64, bool)> = (0..9)
                .map(|row| {
                    let alone = next(50);
                    (2 * (1 + next(6)), alone, next(alone + 1), row > 0 && next(2) == 0)
                })
                .collect();
            let mut cells = cells(&rows);
            let short = 1 + next(40);
            let choices =
                (0..1_usize << rows.len()).map(|bits| (0..rows.len()).filter(|row| bits >> row & 1 == 1).collect());
            let gain = |chosen: &Vec<usize>| chosen.iter().map(|row| rows[*row].0).sum::<u64>();
            let least =
                choices.filter(|chosen| gain(chosen) >= short).map(|chosen: Vec<usize>| price(&cells, &chosen)).min();
            let chosen = cells.cheapest(short).unwrap();
            if let Some(least) = least {
                assert_eq!(price(&cells, &chosen), least, "{rows:?} for {short}: {chosen:?}");
                assert!(gain(&chosen) >= short && gain(&cells.greedy(short)) >= short);
            }
            // Without chains, the number of each size that could be needed is enough.
            cells.rows.iter_mut().for_each(|cell| (cell.is_chained, cell.is_page) = (false, false));
            let before = cells.cheapest(short).unwrap();
            let costs = price(&cells, &before);
            cells.keep_cheapest(short);
            assert_eq!(price(&cells, &cells.cheapest(short).unwrap()), costs);
        }
    }

    /// The only out-of-memory of `text`, on a device of 100 MiB whose segments start at multiples of 1 GiB.
    fn failed(text: &str, settings: &str) -> FailedRequest {
        let trace = trace_from_text(text).unwrap().edited(|TraceParts { blocks, devices, .. }| {
            let mut next = std::collections::HashMap::new();
            for row in 0..blocks.len() {
                // The stream gives the segment of a block.
                let segment = std::mem::take(&mut blocks.stream[row].0);
                let at = next.entry(segment).or_insert(segment << 30);
                blocks.address[row] = *at;
                *at += blocks.allocated[row];
            }
            let settings = vec![("alloc_conf".to_owned(), settings.to_owned())];
            *devices = vec![DeviceFacts { capacity_bytes: 100 << 20, settings, ..DeviceFacts::default() }];
        });
        let device = DeviceId(0);
        let (series, live) = (Series::build(&trace, device), LiveIndex::build(&trace, device));
        let index = AddressIndex::build(&trace, device);
        FailedRequest::of(&trace, &index, &live, &series, index.ooms()[0]).unwrap()
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn emptied_segments_make_room_where_no_segment_is_long_enough() {
        // Segments of 20 MiB: 16 MiB live in the first, 6 in the second, 3 in the third, and 1 MiB in a small one.
        let text = "segment_alloc 0x40000000 20971520\nalloc a 16777216 stream=1\n\
                    segment_alloc 0x80000000 20971520\nalloc b 6291456 activation #relu @net stream=2\n\
                    segment_alloc 0xc0000000 20971520\nalloc c 3145728 gradient #matmul @net stream=3\n\
                    segment_alloc 0x100000000 2097152 small\nalloc d 1048576 stream=4 small\n";
        let at = |requested: u64, free: u64| failed(&format!("{text}oom {requested} free={free}"), "");
        let told = |failed: &FailedRequest| {
            let EvictionSet { blocks, bytes, is_smallest, freed } = failed.release.clone().unwrap();
            let Freed::Segments { segments, pages: 0, bytes: returned } = freed else { panic!("{freed}") };
            (bytes / MIB, returned / MIB, segments, blocks, is_smallest)
        };
        let one = at(30 * MIB, 10 * MIB);
        assert_eq!(told(&one), (3, 20, 1, vec![BlockId(2)], true));
        assert_eq!(
            (one.eviction_window.is_none(), one.smallest_eviction().map(|way| way.bytes)),
            (true, Some(3 * MIB))
        );
        assert_eq!(one.smallest_eviction().unwrap().freed.to_string(), "1 segment of 20 MiB is returned to the driver");
        assert_eq!(told(&at(40 * MIB, 10 * MIB)), (9, 40, 2, vec![BlockId(1), BlockId(2)], true));
        assert_eq!(told(&at(32 * MIB, 10 * MIB)), (4, 22, 2, vec![BlockId(2), BlockId(3)], true));
        assert_eq!(at(99 * MIB, 10 * MIB).release, None, "all segments together would not do");
    }

    #[test]
    fn parameters_are_never_proposed_to_be_freed() {
        let blocks = |parts: [&str; 3], settings: &str| {
            let [a, b, c] = parts.map(|part| format!("20971520{part} stream=1"));
            let segment = if settings.is_empty() { "segment_alloc" } else { "segment_map" };
            let blocks = format!("alloc a {a}\nalloc b {b}\nalloc c {c}");
            let failed = failed(&format!("{segment} 0x40000000 62914560\n{blocks}\noom 41943040 free=0"), settings);
            let is_noted = failed.notes.iter().any(|note| note.starts_with("no blocks to free were found"));
            (failed.smallest_eviction().map(|set| set.blocks.clone()), is_noted)
        };
        for settings in ["", "expandable_segments:True"] {
            let found = Some(vec![BlockId(1), BlockId(2)]);
            assert_eq!(blocks([" parameter", " activation", ""], settings), (found, false));
            assert_eq!(blocks(["", " parameter", " optimizer_state"], settings), (None, true));
        }
    }

    #[test]
    fn pages_of_a_segment_that_grows_are_emptied_where_fewest_bytes_reach_into_them() {
        // Pages of 20 MiB with blocks of 15, 10, 30 and 5 MiB: the second spans two pages, the third two more.
        let text = "segment_map 0x40000000 62914560\nalloc a 15728640 stream=1\nalloc b 10485760 stream=1\n\
                    alloc c 31457280 stream=1\nalloc d 5242880 stream=1\noom 62914560 free=";
        let told = |free: u64| {
            let release = failed(&format!("{text}{free}"), "expandable_segments:True").release.unwrap();
            let Freed::Segments { segments: 0, pages, .. } = release.freed else { panic!("{}", release.freed) };
            (release.bytes / MIB, pages, release.blocks)
        };
        assert_eq!(told(40 * MIB), (25, 1, vec![BlockId(0), BlockId(1)]));
        assert_eq!(told(20 * MIB), (45, 2, vec![BlockId(1), BlockId(2), BlockId(3)]));
    }

    #[test]
    fn what_would_take_too_long_is_answered_without_the_claim_to_be_the_smallest() {
        let rows: Vec<(u64, u64, u64, bool)> = (0..2000).map(|row| (1_000_003 + row, row, row, false)).collect();
        let cells = cells(&rows);
        assert_eq!(cells.cheapest(1 << 30), None);
        let chosen = cells.greedy(1 << 30);
        assert!(chosen.iter().map(|row| cells.rows[*row].gain).sum::<u64>() >= 1 << 30);
    }
}
