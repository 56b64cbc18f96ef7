//! Tests drawings of random recordings at any zoom against a layout that adds up every block.

use std::fmt::Write as _;

use highwater_analysis::bands::{Across, BandWindow, Bands, column_totals};
use highwater_analysis::replay::Replay;
use highwater_analysis::{LiveIndex, Metric, Series};
use highwater_notation::trace_from_text;
use highwater_snapshots::{BlockId, DeviceId, EventId, Trace};
use proptest::prelude::*;

/// Events as text, from numbers that select the block to allocate or free: with frees that wait, empty blocks, several
/// devices, samples, segments, a block that is replaced, and a baseline with a waiting block.
fn text_of_numbers(numbers: &[u16]) -> String {
    let mut text = String::from("baseline w0 40 parameter\nbaseline w1 24/32 parameter device=1\nbaseline w2 8/16\n");
    let mut alive: Vec<(usize, bool)> = Vec::new();
    let mut time = 0;
    for (index, &number) in numbers.iter().enumerate() {
        time += u64::from(number % 3 * (number % 7));
        let place = usize::from(number / 8) % alive.len().max(1);
        let device = |block: usize| if block % 4 == 3 { " device=1" } else { "" };
        match (number % 8, alive.get(place).copied()) {
            (0 | 1, Some((block, false))) => {
                alive[place].1 = true;
                write!(text, "free_requested b{block}{}", device(block)).unwrap();
            }
            (0..=2, Some((block, _))) => {
                alive.swap_remove(place);
                write!(text, "free_completed b{block}{}", device(block)).unwrap();
            }
            (3, Some((block, _))) if number % 5 == 0 => {
                write!(text, "alloc b{block} {}{}", number % 50, device(block)).unwrap();
            }
            (4, _) if number % 3 == 0 => write!(text, "segment_alloc {:#x} {}", index << 20, number % 999).unwrap(),
            (5, _) if number % 3 == 0 => write!(text, "device_used {}", number % 5000).unwrap(),
            (6, _) if number % 9 == 0 && index < numbers.len() => {
                write!(text, "free{} w0", ["_requested", "_completed"][usize::from(number % 2)]).unwrap();
            }
            _ => {
                let bytes = number % 60;
                alive.push((index, false));
                write!(text, "alloc b{index} {bytes}/{}{}", bytes.next_multiple_of(16), device(index)).unwrap();
            }
        }
        writeln!(text, " t={time}us").unwrap();
    }
    text
}

/// The columns and pixels of `window` from the definition: every moment's total and every pixel summed over all blocks.
fn by_hand(
    trace: &Trace,
    device: DeviceId,
    window: &BandWindow,
    rank_of: &dyn Fn(BlockId) -> u8,
) -> Vec<(usize, u64, Vec<BlockId>)> {
    let stack_at = |moment: usize| {
        let is_alive = |id: &BlockId| {
            let block = trace.blocks.get(*id);
            let end = if window.metric == Metric::Active { block.free_completed } else { block.free_requested };
            let was_waiting = window.metric != Metric::Active && trace.was_waiting_at_start(*id);
            let has_begun = block.alloc.index().is_none_or(|event| event < moment);
            let has_ended = end.index().is_some_and(|event| event < moment);
            block.device == device && has_begun && !has_ended && !was_waiting
        };
        let mut alive: Vec<BlockId> = trace.blocks.ids().filter(is_alive).collect();
        alive.sort_by_key(|id| (rank_of(*id), *id));
        let size = |id: BlockId| match window.metric {
            Metric::Requested => trace.blocks.get(id).requested,
            _ => trace.blocks.get(id).allocated,
        };
        alive.into_iter().map(|id| (id, size(id))).collect::<Vec<_>>()
    };
    let column = |x: usize| {
        let total = |moment: usize| stack_at(moment).iter().map(|(_, bytes)| bytes).sum::<u64>();
        let moments = window.moments(trace, x);
        let moment = moments.clone().rev().max_by_key(|moment| total(*moment)).unwrap_or(moments.start);
        let stack = stack_at(moment);
        let pixel = |y: usize| {
            let mut rest = window.byte_at(y);
            let covers = |(_, bytes): &&(BlockId, u64)| {
                let is_here = rest < *bytes;
                rest = rest.saturating_sub(*bytes);
                is_here
            };
            stack.iter().find(covers).map_or(BlockId::NONE, |(id, _)| *id)
        };
        (moment, total(moment), (0..window.height).map(pixel).collect())
    };
    (0..window.width).map(column).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_column_pixel_line_and_outline_is_as_by_hand_at_every_zoom(
        numbers in proptest::collection::vec(any::<u16>(), 0..700),
        from in 0.0..1.0_f64,
        share in prop_oneof![Just(1.0), 0.001..0.9_f64],
        is_by_time in any::<bool>(),
        has_ranks in any::<bool>(),
        waits in any::<bool>(),
    ) {
        let trace = trace_from_text(&text_of_numbers(&numbers)).unwrap().edited(|trace| {
            if waits {
                trace.blocks.free_requested[2] = EventId(0);
                trace.waiting_at_start.push(BlockId(2));
            }
        });
        let rank_of = |id: BlockId| if has_ranks { (id.0 * 7 % 5) as u8 } else { 0 };
        for device in trace.device_ids() {
            let (live, series) = (LiveIndex::build(&trace, device), Series::build(&trace, device));
            let bands = if has_ranks {
                Bands::grouped(&trace, device, rank_of)
            } else {
                Bands::in_block_order(&trace, device)
            };
            let events = trace.events.len() as f64 + 1.0;
            let last = trace.events.time_ns.last().map_or(1.0, |time| *time as f64 + 1.0);
            let part = |whole: f64| whole * from * (1.0 - share)..whole * (from * (1.0 - share) + share);
            let across = if is_by_time { Across::Nanos(part(last)) } else { Across::Moments(part(events)) };
            for metric in Metric::OF_BLOCKS {
                let top = series.peak(&trace, metric).0 + 10;
                let bytes = if share < 0.5 { top / 3..top } else { 0..top };
                let window = BandWindow { metric, across: across.clone(), width: 37, bytes, height: 29 };
                let raster = bands.raster(&trace, &live, &series, &window);
                let expected = by_hand(&trace, device, &window, &rank_of);
                let totals = column_totals(&trace, &series, &window);
                for (x, (moment, bytes, pixels)) in expected.iter().enumerate() {
                    prop_assert_eq!((raster.columns[x].moment, raster.columns[x].bytes), (*moment, *bytes));
                    prop_assert_eq!(raster.column(x), &pixels[..], "column {} of {:?}", x, window);
                    prop_assert_eq!(totals[x].get(metric), *bytes);
                    let mut replay = Replay::new(&trace, device);
                    let moments = window.moments(&trace, x);
                    while replay.position() < moments.start && replay.step().is_some() {}
                    let mut most = replay.totals();
                    while replay.position() + 1 < moments.end && replay.step().is_some() {
                        most = most.max(&replay.totals());
                    }
                    prop_assert_eq!(totals[x], most);
                }
                let shown = raster.blocks.iter().copied().filter(|block| block.is_some());
                for block in shown.step_by(97) {
                    let outline = bands.outline(&trace, &live, metric, &raster.columns, block);
                    let pixels = bands.pixels_of(&raster, block);
                    for (x, column) in raster.columns.iter().enumerate() {
                        let stack = bands.stack(&trace, &live, metric, column.moment);
                        let band = stack.bands.iter().find(|(id, _)| *id == block).map(|(_, bytes)| bytes.clone());
                        prop_assert_eq!(&outline[x], &band);
                        let covered: Vec<usize> =
                            (0..window.height).filter(|y| raster.block_at(x, *y) == Some(block)).collect();
                        let found: Vec<usize> = pixels[x].clone().into_iter().flatten().collect();
                        prop_assert_eq!(found, covered);
                    }
                }
            }
        }
    }
}
