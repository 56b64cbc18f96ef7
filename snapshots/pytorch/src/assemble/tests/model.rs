//! A minimal caching allocator that writes snapshots and knows the expected totals; for tests.

use super::sample::{MIB, Sample};
use crate::raw::BlockState;
use highwater_analysis::Totals;

/// A piece of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) requested: u64,
    pub(super) state: PieceState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceState {
    Live,
    Waiting,
    Free,
    Unmapped,
}

#[derive(Clone, Debug)]
struct Segment {
    stream: u64,
    is_small: bool,
    pieces: Vec<Piece>,
}

impl Segment {
    fn base(&self) -> u64 {
        self.pieces[0].address
    }

    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.size).sum()
    }

    /// Coalesces adjacent free pieces, and adjacent unmapped pieces.
    fn merge(&mut self) {
        let mut merged: Vec<Piece> = Vec::new();
        for &piece in &self.pieces {
            match merged.last_mut() {
                Some(last)
                    if last.state == piece.state && matches!(piece.state, PieceState::Free | PieceState::Unmapped) =>
                {
                    last.size += piece.size;
                }
                _ => merged.push(piece),
            }
        }
        self.pieces = merged;
    }

    /// Splits the piece at index `at` after its first `size` bytes.
    fn cut(&mut self, at: usize, size: u64) {
        let piece = self.pieces[at];
        if piece.size > size {
            let rest = Piece { address: piece.address + size, size: piece.size - size, ..piece };
            self.pieces[at].size = size;
            self.pieces.insert(at + 1, rest);
        }
    }
}

/// The state after an event.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    pub(super) event: (&'static str, u64, u64),
    pub(super) totals: Totals,
    pub(super) pieces: Vec<Piece>,
}

/// Settings of the model.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settings {
    pub(super) is_expandable: bool,
    pub(super) divisions: u64,
    pub(super) max_split_mib: u64,
}

/// An operation on the model.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Malloc { bytes: u64, stream: u64 },
    Free { which: usize, waits: bool },
    Complete { which: usize },
    EmptyCache,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    settings: Settings,
    segments: Vec<Segment>,
    /// Address of the next segment, and freed address ranges.
    next: u64,
    given_back: Vec<(u64, u64)>,
    pub(super) history: Vec<Moment>,
    totals: Totals,
}

const RESERVATION: u64 = 1 << 40;

impl Model {
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings, next: RESERVATION, ..Self::default() }
    }

    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Malloc { bytes, stream } => self.malloc(bytes, stream),
            Step::Free { which, waits } => {
                if let Some((segment, at)) = self.pick(which, PieceState::Live) {
                    self.free(segment, at, waits);
                }
            }
            Step::Complete { which } => {
                if let Some((segment, at)) = self.pick(which, PieceState::Waiting) {
                    self.complete(segment, at);
                }
            }
            Step::EmptyCache => self.empty_cache(),
        }
    }

    fn pieces(&self) -> Vec<Piece> {
        self.segments.iter().flat_map(|segment| segment.pieces.iter().copied()).collect()
    }

    fn pick(&self, which: usize, state: PieceState) -> Option<(usize, usize)> {
        let of_segment = |(number, segment): (usize, &Segment)| {
            let of_state = |(at, piece): (usize, &Piece)| (piece.state == state).then_some((number, at));
            segment.pieces.iter().enumerate().filter_map(of_state).collect::<Vec<_>>()
        };
        let all: Vec<(usize, usize)> = self.segments.iter().enumerate().flat_map(of_segment).collect();
        (!all.is_empty()).then(|| all[which % all.len()])
    }

    fn emit(&mut self, action: &'static str, address: u64, size: u64) {
        let (totals, pieces) = (self.totals, self.pieces());
        self.history.push(Moment { event: (action, address, size), totals, pieces });
    }

    fn round(&self, bytes: u64) -> u64 {
        let divisions = self.settings.divisions;
        if divisions > 1 && bytes > 512 * divisions {
            let mut power = 1;
            while power * 2 <= bytes {
                power *= 2;
            }
            return bytes.div_ceil(power / divisions) * (power / divisions);
        }
        bytes.max(1).div_ceil(512) * 512
    }

    fn malloc(&mut self, bytes: u64, stream: u64) {
        let rounded = self.round(bytes);
        let is_small = rounded <= MIB;
        let limit = if self.settings.max_split_mib > 0 { self.settings.max_split_mib * MIB } else { u64::MAX };
        let mut best: Option<(u64, u64, usize, usize)> = None;
        for (number, segment) in self.segments.iter().enumerate() {
            if segment.stream != stream || segment.is_small != is_small {
                continue;
            }
            for (at, piece) in segment.pieces.iter().enumerate() {
                let fits = piece.state == PieceState::Free && piece.size >= rounded;
                if fits && best.is_none_or(|found| (piece.size, piece.address) < (found.0, found.1)) {
                    best = Some((piece.size, piece.address, number, at));
                }
            }
        }
        let best = best.filter(|found| if rounded < limit { found.0 < limit } else { found.0 < rounded + 20 * MIB });
        let (number, at) = match best {
            Some((_, _, number, at)) => (number, at),
            None if self.settings.is_expandable => self.map(rounded, stream, is_small),
            None => self.reserve(rounded, stream, is_small),
        };
        let rest = self.segments[number].pieces[at].size - rounded;
        let is_split =
            if is_small || self.settings.is_expandable { rest >= 512 } else { rounded < limit && rest > MIB };
        if is_split {
            self.segments[number].cut(at, rounded);
        }
        let piece = &mut self.segments[number].pieces[at];
        (piece.state, piece.requested) = (PieceState::Live, bytes);
        let piece = *piece;
        self.totals.requested += bytes;
        self.totals.allocated += piece.size;
        self.totals.active += piece.size;
        self.emit("alloc", piece.address, bytes);
    }

    fn reserve(&mut self, rounded: u64, stream: u64, is_small: bool) -> (usize, usize) {
        let size = match rounded {
            _ if is_small => 2 * MIB,
            0..0xa0_0000 => 20 * MIB,
            _ => rounded.div_ceil(2 * MIB) * 2 * MIB,
        };
        // The driver reuses a freed address range of the same size, or allocates right after the last one.
        let address = match self.given_back.iter().position(|place| place.1 == size) {
            Some(place) => self.given_back.swap_remove(place).0,
            None => {
                self.next += size;
                self.next - size
            }
        };
        let piece = Piece { address, size, requested: 0, state: PieceState::Free };
        self.segments.push(Segment { stream, is_small, pieces: vec![piece] });
        self.totals.reserved += size;
        self.emit("segment_alloc", address, size);
        (self.segments.len() - 1, 0)
    }

    fn map(&mut self, rounded: u64, stream: u64, is_small: bool) -> (usize, usize) {
        let page = if is_small { 2 * MIB } else { 20 * MIB };
        let found = self.segments.iter().position(|row| row.stream == stream && row.is_small == is_small);
        let number = found.unwrap_or_else(|| {
            let piece = Piece { address: self.next, size: 4000 * 20 * MIB, requested: 0, state: PieceState::Unmapped };
            self.next += RESERVATION;
            self.segments.push(Segment { stream, is_small, pieces: vec![piece] });
            self.segments.len() - 1
        });
        loop {
            let pieces = &self.segments[number].pieces;
            // The first run of free and unmapped pieces that is long enough.
            let mut start = 0;
            let mut sum = 0;
            for (at, piece) in pieces.iter().enumerate() {
                match piece.state {
                    PieceState::Live | PieceState::Waiting => (start, sum) = (at + 1, 0),
                    _ => sum += piece.size,
                }
                if sum >= rounded {
                    break;
                }
            }
            let first = pieces[start];
            if first.state == PieceState::Free && first.size >= rounded {
                return (number, start);
            }
            let (at, had) = if first.state == PieceState::Free { (start + 1, first.size) } else { (start, 0) };
            let unmapped = pieces[at];
            let size = unmapped.size.min((rounded - had).div_ceil(page) * page);
            let segment = &mut self.segments[number];
            segment.cut(at, size);
            segment.pieces[at].state = PieceState::Free;
            segment.merge();
            self.totals.reserved += size;
            self.emit("segment_map", unmapped.address, size);
        }
    }

    fn free(&mut self, number: usize, at: usize, waits: bool) {
        let piece = &mut self.segments[number].pieces[at];
        piece.state = PieceState::Waiting;
        let piece = *piece;
        self.totals.requested -= piece.requested;
        self.totals.allocated -= piece.size;
        self.emit("free_requested", piece.address, piece.requested);
        if !waits {
            self.complete(number, at);
        }
    }

    fn complete(&mut self, number: usize, at: usize) {
        let piece = self.segments[number].pieces[at];
        self.segments[number].pieces[at].state = PieceState::Free;
        self.segments[number].merge();
        self.totals.active -= piece.size;
        self.emit("free_completed", piece.address, piece.requested);
    }

    fn empty_cache(&mut self) {
        for (_, at) in self.waiting() {
            let of_piece = |row: &Segment| row.pieces.iter().position(|piece| piece.address == at);
            let found = self.segments.iter().enumerate().find_map(|(number, row)| Some((number, of_piece(row)?)));
            if let Some((number, at)) = found {
                self.complete(number, at);
            }
        }
        if self.settings.is_expandable {
            self.unmap();
            return;
        }
        while let Some(number) =
            self.segments.iter().position(|row| row.pieces.len() == 1 && row.pieces[0].state == PieceState::Free)
        {
            let segment = self.segments.remove(number);
            self.given_back.push((segment.base(), segment.bytes()));
            self.totals.reserved -= segment.bytes();
            self.emit("segment_free", segment.base(), segment.bytes());
        }
    }

    fn waiting(&self) -> Vec<(u64, u64)> {
        let waiting = self.pieces().into_iter().filter(|piece| piece.state == PieceState::Waiting);
        waiting.map(|piece| (piece.size, piece.address)).collect()
    }

    fn unmap(&mut self) {
        for number in 0..self.segments.len() {
            let page = if self.segments[number].is_small { 2 * MIB } else { 20 * MIB };
            let base = self.segments[number].base();
            for piece in self.segments[number].pieces.clone() {
                let first = base + (piece.address - base).div_ceil(page) * page;
                let last = base + (piece.address + piece.size - base) / page * page;
                if piece.state != PieceState::Free || first >= last {
                    continue;
                }
                let segment = &mut self.segments[number];
                let mut at = segment.pieces.iter().position(|row| row.address == piece.address).unwrap_or(0);
                if first > piece.address {
                    segment.cut(at, first - piece.address);
                    at += 1;
                }
                segment.cut(at, last - first);
                segment.pieces[at].state = PieceState::Unmapped;
                segment.merge();
                self.totals.reserved -= last - first;
                self.emit("segment_unmap", first, last - first);
            }
        }
    }

    /// Takes a snapshot whose ring buffer has lost the first `cut` events.
    pub(super) fn snapshot(&self, cut: usize) -> Sample {
        let events: Vec<_> = self.history[cut..].iter().map(|moment| moment.event).collect();
        let mut sample = Sample::of(&events);
        let Settings { is_expandable, divisions, max_split_mib } = self.settings;
        let conf = format!("roundup_power2_divisions:{divisions},expandable_segments:{is_expandable}");
        sample.intake.setting("PYTORCH_CUDA_ALLOC_CONF", conf);
        if max_split_mib > 0 {
            sample.intake.setting("max_split_size", (max_split_mib * MIB).to_string());
        }
        for segment in &self.segments {
            let is_unmapped = |piece: &Piece| piece.state == PieceState::Unmapped;
            for run in segment.pieces.split(is_unmapped).filter(|run| !run.is_empty()) {
                let state = |state| match state {
                    PieceState::Live => BlockState::Allocated,
                    PieceState::Waiting => BlockState::PendingFree,
                    _ => BlockState::Inactive,
                };
                let blocks: Vec<_> =
                    run.iter().map(|piece| (piece.size, piece.requested, state(piece.state))).collect();
                sample.segment_with(run[0].address, &blocks, |made| {
                    made.stream = segment.stream;
                    made.is_small = segment.is_small;
                    made.is_expandable = is_expandable;
                });
            }
        }
        sample
    }
}
