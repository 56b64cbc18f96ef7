//! Carve: how the allocator cut its segments into blocks. Replayed, because a trace gives requested sizes only, and a
//! block may have got more than the rounded request: what it found, where the rest was too small to split off.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::lives::Baseline;
use super::ranges::Ranges;
use super::rounding::{Place, Rounding, SMALL_REQUEST, SMALL_SEGMENT};
use super::start::Start;

/// Names a segment. Free blocks of one segment merge, those of neighbours do not; mapped pages merge where they touch.
type Segment = u32;

/// All mapped pages of expandable segments.
const PAGES: Segment = 0;

/// The block lies in no segment that we know.
const UNKNOWN: Segment = u32::MAX;

/// The free blocks of a device's segments while its events pass, and the size of every block so far.
#[derive(Clone, Debug)]
pub(super) struct Layout<'a> {
    rounding: &'a Rounding,
    free: Ranges<Segment>,
    /// Segments that are no pages: end and name by address.
    held: BTreeMap<u64, (u64, Segment)>,
    segments: Segment,
    /// Rounded sizes by block key.
    pub(super) bytes: Vec<u64>,
    /// Where each block lies, by block key.
    segment: Vec<Segment>,
    /// Live blocks of the baseline whose size is only the rounded request, by their end: what begins further on within
    /// the free range behind them proves them larger.
    doubtful: HashMap<u64, u32>,
    /// Blocks that began where no free block did.
    pub(super) misplaced: u64,
    /// Blocks whose size at the end is not what the rules give.
    pub(super) differing: u64,
    /// Blocks whose size no row of the file gives.
    pub(super) inferred: u64,
}

/// A request as the trace has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) key: u64,
    pub(super) address: u64,
    pub(super) requested: u64,
    /// For a private pool.
    pub(super) is_private: bool,
    /// The rounded size, where the file gives it.
    pub(super) exact: Option<u64>,
}

impl<'a> Layout<'a> {
    /// The state before the first event. `baseline` is in the order of keys.
    pub(super) fn new<'b>(
        rounding: &'a Rounding,
        start: &Start,
        baseline: impl ExactSizeIterator<Item = &'b Baseline>,
    ) -> Self {
        let mut layout = Self {
            rounding,
            free: Ranges::default(),
            held: BTreeMap::new(),
            segments: PAGES,
            bytes: Vec::with_capacity(baseline.len()),
            segment: vec![UNKNOWN; baseline.len()],
            doubtful: HashMap::new(),
            misplaced: 0,
            differing: 0,
            inferred: 0,
        };
        for held in &start.segments {
            layout.obtain(held.address, held.end());
        }
        for held in &start.mappings {
            layout.map(held.address, held.end());
        }
        // Each with its key, by address.
        let mut blocks: Vec<(&Baseline, u32)> = baseline.zip(0..).collect();
        layout.bytes.resize(blocks.len(), 0);
        blocks.sort_by_key(|(block, _)| block.address);
        let mut after = blocks.iter().skip(1).map(|(block, _)| block.address).chain([u64::MAX]);
        for (block, key) in &blocks {
            layout.place(block, *key, after.next().unwrap_or(u64::MAX));
        }
        layout
    }

    /// Puts a block of the baseline where it lies; the next one begins at `next`.
    fn place(&mut self, block: &Baseline, key: u32, next: u64) {
        let address = block.address;
        let rounded = self.rounding.round(block.requested);
        let mut bytes = block.allocated.unwrap_or(rounded);
        let free = self.free.holding(address);
        let segment = free.map_or(UNKNOWN, |(_, _, segment)| segment);
        if block.allocated.is_none() {
            self.inferred += 1;
        }
        if let (None, Some((_, end, _))) = (block.allocated, free) {
            // What follows is the next block, the end of the segment, or a free block: only that leaves the size open.
            let gap = end.min(next) - address;
            let rest = gap.saturating_sub(rounded);
            let is_large = segment != PAGES && rounded > SMALL_REQUEST && self.is_large(address);
            let is_clipped = gap >= block.requested && gap < rounded;
            if is_clipped || is_large && self.rounding.is_slack(rounded, rest) {
                bytes = gap;
            } else if is_large && rest > 0 {
                self.doubtful.insert(address.saturating_add(bytes), key);
            }
        }
        bytes = bytes.max(block.requested);
        self.free.remove(address, address.saturating_add(bytes));
        self.bytes[key as usize] = bytes;
        self.segment[key as usize] = segment;
    }

    fn is_large(&self, address: u64) -> bool {
        self.holding(address).is_some_and(|(start, end, _)| end - start > SMALL_SEGMENT)
    }

    fn holding(&self, address: u64) -> Option<(u64, u64, Segment)> {
        let (&start, &(end, segment)) = self.held.range(..=address).next_back()?;
        (address < end).then_some((start, end, segment))
    }

    /// A segment was obtained.
    pub(super) fn obtain(&mut self, address: u64, end: u64) {
        self.segments += 1;
        self.held.insert(address, (end, self.segments));
        self.free.insert(address, end, self.segments);
    }

    /// A segment was given back.
    pub(super) fn give_back(&mut self, address: u64, end: u64) {
        self.held.remove(&address);
        self.free.remove(address, end);
    }

    /// Pages were mapped; they merge with the free block before and behind them.
    pub(super) fn map(&mut self, address: u64, end: u64) {
        self.free.insert(address, end, PAGES);
    }

    /// Pages were unmapped.
    pub(super) fn unmap(&mut self, address: u64, end: u64) {
        self.free.remove(address, end);
    }

    /// A block was handed out.
    pub(super) fn alloc(&mut self, request: &Request) {
        let Request { key, address, requested, is_private, exact } = *request;
        let rounded = self.rounding.round(requested);
        let free = self.free.starting_at(address).or_else(|| self.grow_before(address));
        let (bytes, segment) = match free {
            Some((end, segment)) if end - address >= rounded => {
                let place = match (segment, is_private) {
                    (PAGES, _) => Place::Expandable,
                    (_, true) => Place::Private,
                    (_, false) => Place::Default,
                };
                let rest = end - address - rounded;
                let by_rule = if self.rounding.splits(rounded, rest, place) { rounded } else { end - address };
                self.differing += u64::from(exact.is_some_and(|bytes| bytes != by_rule));
                let bytes = exact.unwrap_or(by_rule);
                match address.checked_add(bytes) {
                    Some(last) if last <= end => self.free.take_front(address, last),
                    last => self.free.remove(address, last.unwrap_or(u64::MAX)),
                }
                (bytes, segment)
            }
            _ => {
                self.misplaced += u64::from(exact.is_none());
                let bytes = exact.unwrap_or(rounded);
                let around = self.free.holding(address).map(|row| row.2);
                let segment = around.or_else(|| self.holding(address).map(|row| row.2)).unwrap_or(UNKNOWN);
                self.free.remove(address, address.saturating_add(bytes));
                (bytes, segment)
            }
        };
        self.inferred += u64::from(exact.is_none());
        let row = key as usize;
        if row < self.bytes.len() {
            // Its free is missing: what it held is free again, but for what the new block took.
            let former = self.bytes[row];
            if former > bytes && segment != UNKNOWN {
                self.free.insert(address.saturating_add(bytes), address.saturating_add(former), segment);
            }
            (self.bytes[row], self.segment[row]) = (bytes, segment);
        } else {
            self.bytes.push(bytes);
            self.segment.push(segment);
        }
    }

    /// Where a block of the baseline turns out to reach to `address`, grows it, and gives the free range behind it.
    fn grow_before(&mut self, address: u64) -> Option<(u64, Segment)> {
        if self.doubtful.is_empty() {
            return None;
        }
        let (start, _, _) = self.free.holding(address)?;
        let more = address - start;
        let key = *self.doubtful.get(&start).filter(|_| more <= SMALL_REQUEST)?;
        self.doubtful.remove(&start);
        self.bytes[key as usize] += more;
        self.free.take_front(start, address);
        self.free.starting_at(address)
    }

    /// A block can be used again.
    pub(super) fn release(&mut self, key: u64, address: u64) {
        let row = key as usize;
        let (Some(&bytes), Some(&segment)) = (self.bytes.get(row), self.segment.get(row)) else { return };
        let end = address.saturating_add(bytes);
        if !self.doubtful.is_empty() {
            self.doubtful.remove(&end);
        }
        if segment != UNKNOWN {
            self.free.insert(address, end, segment);
        }
    }

    /// The free ranges: start and end, by address.
    #[cfg(test)]
    pub(super) fn free_ranges(&self) -> Vec<(u64, u64)> {
        self.free.iter().map(|(start, end, _)| (start, end)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
}
