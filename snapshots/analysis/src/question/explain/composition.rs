//! Splits the memory in use at some point into parts that add up exactly: live blocks by category and phase of
//! allocation, and allocator overhead.

use std::collections::BTreeMap;

use super::cause::CategoryAndPhase;
use crate::index::live::LiveIndex;
use crate::index::series::Series;
use crate::metric::Metric;
use highwater_snapshots::trace::Trace;

/// A part of the memory in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeakPiece {
    /// Requested bytes of live blocks.
    Blocks(CategoryAndPhase),
    /// Bytes added to live blocks by rounding.
    Rounding,
    /// Bytes of blocks freed by the program that may still be in use on another stream.
    Waiting,
    /// Free bytes in segments.
    Free,
    /// Bytes in use on the device outside of the allocator.
    Outside,
}

impl PeakPiece {
    /// Returns the display name, such as `gradient from backward`.
    pub fn name(&self) -> String {
        match self {
            Self::Blocks(cause) => cause.name(),
            Self::Rounding => "rounding".to_owned(),
            Self::Waiting => "awaiting free".to_owned(),
            Self::Free => "free in segments".to_owned(),
            Self::Outside => "outside the allocator".to_owned(),
        }
    }

    /// Returns the `--where` condition for the piece; `None` for pieces other than live blocks.
    pub fn condition(&self) -> Option<String> {
        let Self::Blocks(cause) = self else { return None };
        Some(cause.condition())
    }
}

/// The memory in use at some point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composition {
    /// The non-empty parts with their bytes: blocks by category and phase, then the outer layers.
    pub pieces: Vec<(PeakPiece, u64)>,
    /// The metric of the total of the parts: the outermost recorded total that is not less than any inner total.
    pub metric: Metric,
    /// The total, in bytes.
    pub bytes: u64,
}

impl Composition {
    /// The memory in use on the device of `series` after `position` events.
    pub fn at(trace: &Trace, series: &Series, live: &LiveIndex, position: usize) -> Self {
        let totals = series.before_position(trace, position);
        let mut sums: BTreeMap<CategoryAndPhase, u64> = BTreeMap::new();
        for id in live.before_position(trace, Metric::Requested, position) {
            let block = trace.blocks.get(id);
            let cause = CategoryAndPhase::of(trace, &block);
            *sums.entry(cause).or_default() += block.requested;
        }
        let mut composition = Self { pieces: Vec::new(), metric: Metric::Requested, bytes: 0 };
        sums.into_iter().for_each(|(cause, bytes)| composition.add(PeakPiece::Blocks(cause), bytes));
        // If segments or samples are missing, an outer total may be smaller than an inner one: stop there.
        let layers = [
            (PeakPiece::Rounding, Metric::Allocated, totals.allocated),
            (PeakPiece::Waiting, Metric::Active, totals.active),
            (PeakPiece::Free, Metric::Reserved, totals.reserved),
            (PeakPiece::Outside, Metric::DeviceUsed, totals.device_used),
        ];
        for (piece, metric, total) in layers {
            let is_unknown = metric == Metric::DeviceUsed && total == 0;
            let Some(added) = total.checked_sub(composition.bytes).filter(|_| !is_unknown) else { break };
            composition.add(piece, added);
            composition.metric = metric;
        }
        composition
    }

    fn add(&mut self, piece: PeakPiece, bytes: u64) {
        if bytes > 0 {
            self.pieces.push((piece, bytes));
            self.bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grouping::filter::Filter;
    use crate::grouping::matches::Matches;
    use highwater_notation::trace_from_text;

    const HELD: &str = "
        baseline w 1000/1024 parameter
        baseline_segment 0x200000 2097152
        phase setup
        alloc v 10/512 parameter
        step 0
        phase forward
        alloc a 700/1024 activation
        alloc b 500/512 activation
        free_requested b
        phase backward
        alloc g 600/1024 gradient
    ";

    fn composition(text: &str, position: Option<usize>) -> (Trace, Composition) {
        let trace = trace_from_text(text).expect("the text is a trace");
        let device = trace.main_device();
        let (series, live) = (Series::build(&trace, device), LiveIndex::build(&trace, device));
        let position = position.unwrap_or(trace.events.len());
        let composition = Composition::at(&trace, &series, &live, position);
        (trace, composition)
    }

    #[test]
    fn pieces_add_up_to_the_outermost_total_that_holds_the_others() {
        let (_, composition) = composition(HELD, None);
        let told: Vec<(String, u64)> = composition.pieces.iter().map(|(piece, bytes)| (piece.name(), *bytes)).collect();
        let expected = [
            ("parameter from before the recording", 1000),
            ("parameter from setup", 10),
            ("gradient from backward", 600),
            ("activation from forward", 700),
            ("rounding", 1024 - 1000 + 502 + 324 + 424),
            ("awaiting free", 512),
            ("free in segments", 2_097_152 - 1024 - 512 - 1024 - 512 - 1024),
        ];
        assert_eq!(told, expected.map(|(name, bytes)| (name.to_owned(), bytes)));
        assert_eq!((composition.metric, composition.bytes), (Metric::Reserved, 2_097_152));
    }

    #[test]
    fn the_driver_has_the_last_word_where_it_was_asked_and_none_where_it_contradicts() {
        let (_, sampled) = composition(&format!("{HELD}\ndevice_used 3000000"), None);
        assert_eq!((sampled.metric, sampled.bytes), (Metric::DeviceUsed, 3_000_000));
        assert_eq!(sampled.pieces.last(), Some(&(PeakPiece::Outside, 3_000_000 - 2_097_152)));
        let (_, less) = composition(&format!("{HELD}\ndevice_used 3000"), None);
        assert_eq!((less.metric, less.bytes), (Metric::Reserved, 2_097_152));
        let (_, without_segments) = composition("alloc a 100/512\nalloc b 50/512", None);
        assert_eq!((without_segments.metric, without_segments.bytes), (Metric::Active, 1024));
    }

    #[test]
    fn before_the_first_event_there_is_the_baseline_and_of_nothing_there_are_no_pieces() {
        let (_, begin) = composition(HELD, Some(0));
        assert_eq!(begin.pieces[0].0.name(), "parameter from before the recording");
        assert_eq!(begin.bytes, 2_097_152);
        let (_, empty) = composition("", None);
        assert_eq!((empty.pieces.as_slice(), empty.bytes), (&[][..], 0));
    }

    #[test]
    fn the_condition_of_a_piece_is_met_by_as_many_bytes_as_it_has() {
        // Without the freed block, all blocks are live.
        let text = HELD.replace("alloc b 500/512 activation", "").replace("free_requested b", "");
        let (trace, composition) = composition(&text, None);
        let of_blocks = composition.pieces.iter().filter_map(|(piece, bytes)| Some((piece.condition()?, *bytes)));
        let mut count = 0;
        for (condition, bytes) in of_blocks {
            let filter: Filter = condition.parse().expect("it is a filter");
            assert_eq!(Matches::of(&trace, &filter).requested(), bytes, "{condition}");
            count += 1;
        }
        assert_eq!(count, 4);
    }
}
