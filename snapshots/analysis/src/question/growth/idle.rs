//! Finds the idle points of a program without steps, such as a server: the minima to which its memory returns between
//! bursts of work. Growth is then measured per burst instead of per step.

use std::cmp::Reverse;

use highwater_snapshots::Result;
use highwater_snapshots::ids::DeviceId;
use highwater_snapshots::trace::Trace;

use super::steps::{Run, Steps, how_to_mark_steps};
use crate::index::replay::Replay;
use crate::metric::Metric;
use crate::question::source::{Source, Watch};

/// Maximum number of turns in memory. If there are more, smaller ones are dropped, and equal neighbours are merged.
const MAX_TURNS: usize = 1 << 20;

/// The smallest turns that are distinguished: the peak divided by this.
const FINEST: u64 = 4096;

/// Maximum number of turns that may belong to the end of a program.
const MAX_END: usize = 8;

/// A local minimum or maximum of the total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    /// The number of events before it.
    events: u64,
    bytes: u64,
}

/// Alternating local minima and maxima of a total; neighbours differ by at least `depth` bytes.
#[derive(Debug)]
struct Turns {
    depth: u64,
    rows: Vec<Turn>,
}

impl Turns {
    fn new(depth: u64) -> Self {
        Self { depth: depth.max(1), rows: Vec::new() }
    }

    /// The turns in a window.
    fn in_window(trace: &Trace, device: DeviceId, metric: Metric) -> Self {
        let mut turns = Self::new(1);
        let mut replay = Replay::new(trace, device);
        turns.push(Turn { events: trace.start.events, bytes: replay.totals().get(metric) });
        while let Some(event) = replay.step() {
            turns.push(Turn { events: trace.number(event) + 1, bytes: replay.totals().get(metric) });
        }
        turns
    }

    /// Appends a later value if it extends the last turn, or reverses direction by at least `depth` bytes.
    fn push(&mut self, turn: Turn) {
        let (last, before) = match self.rows.as_slice() {
            [.., before, last] => (*last, Some(*before)),
            [only] => (*only, None),
            [] => return self.rows.push(turn),
        };
        let turns = turn.bytes.abs_diff(last.bytes) >= self.depth;
        let goes_further = match before {
            Some(before) if last.bytes > before.bytes => turn.bytes > last.bytes,
            Some(_) => turn.bytes < last.bytes,
            // A recording may begin in the middle of a burst.
            None => turn.bytes < last.bytes && !turns,
        };
        if goes_further {
            self.rows.pop();
        }
        if goes_further || turns {
            self.rows.push(turn);
        }
        if self.rows.len() > MAX_TURNS {
            self.thin();
        }
    }

    /// Drops the smaller turns; if all turns are of similar size, merges every second burst into the previous one.
    fn thin(&mut self) {
        let coarser = Self::among(&self.rows, self.depth.saturating_mul(2));
        if coarser.rows.len() > MAX_TURNS / 8 {
            *self = coarser;
            return;
        }
        let merged = self.rows.chunks(4).flat_map(|some| match some {
            [first, _, _, last] => vec![*first, *last],
            few => few.to_vec(),
        });
        self.rows = merged.collect();
    }

    fn append(&mut self, later: Self) {
        later.rows.into_iter().for_each(|turn| self.push(turn));
    }

    /// The turns of at least `depth` bytes in a list of turns.
    fn among(rows: &[Turn], depth: u64) -> Self {
        let mut turns = Self::new(depth);
        rows.iter().for_each(|turn| turns.push(*turn));
        turns
    }

    /// Removes the turns at the end of the program, where everything is freed: those last turns that hide most of the
    /// bursts before them. Also returns the height of the bursts.
    fn of_run(mut self) -> (Self, u64) {
        let runs = (0..=self.rows.len().min(MAX_END)).rev().map(|end| {
            let rows = self.rows.len() - end;
            let (sum, height) = bursts_in(&self.rows[..rows]);
            (sum, rows, height)
        });
        let (_, rows, height) = runs.max_by_key(|(sum, ..)| *sum).unwrap_or_default();
        self.rows.truncate(rows);
        (self, height)
    }

    /// The numbers of events before the minima between bursts.
    fn lows(&self) -> Vec<u64> {
        let peak = self.rows.iter().map(|turn| turn.bytes).max().unwrap_or(0);
        let (run, height) = Self::among(&self.rows, self.depth.max(peak / FINEST)).of_run();
        if height == 0 {
            return Vec::new();
        }
        let Self { rows, depth } = Self::among(&run.rows, run.depth.max(height / 2));
        let mut lows: Vec<Turn> = Vec::new();
        let mut floor = u64::MAX;
        for (row, turn) in rows.iter().enumerate().rev() {
            floor = floor.min(turn.bytes);
            let mut beside = [row.checked_sub(1), Some(row + 1)].into_iter().flatten().filter_map(|row| rows.get(row));
            // A burst may go down far in its middle, and up again.
            if beside.all(|beside| beside.bytes > turn.bytes) && turn.bytes - floor < depth {
                lows.push(*turn);
            }
        }
        lows.reverse();
        // What is loaded before the first burst raises the floor, and the last one may not be over.
        let rises = |pair: Option<&[Turn]>| pair.is_some_and(|pair| pair[1].bytes >= pair[0].bytes + depth);
        let (first, last) = (rises(lows.windows(2).next()), rises(lows.windows(2).next_back()));
        let end = lows.len() - usize::from(last);
        lows.get(usize::from(first)..end).unwrap_or_default().iter().map(|turn| turn.events).collect()
    }
}

/// Determines the height of a program's bursts: the height for which the number of bursts at least that high, less one,
/// times the height is largest. Returns that product and the height. Loading a model once does not count, however
/// large, nor do many small allocations. A burst is the range between two points below which the total never falls
/// again.
fn bursts_in(rows: &[Turn]) -> (u128, u64) {
    let mut heights = Vec::new();
    let (mut floor, mut highest) = (u64::MAX, 0);
    for turn in rows.iter().rev() {
        if turn.bytes <= floor {
            heights.push(highest.max(turn.bytes) - turn.bytes);
            (floor, highest) = (turn.bytes, 0);
        } else {
            highest = highest.max(turn.bytes);
        }
    }
    heights.sort_unstable_by_key(|bytes| Reverse(*bytes));
    let sums = heights.into_iter().enumerate().map(|(row, bytes)| (row as u128 * u128::from(bytes), bytes));
    sums.max().unwrap_or_default()
}

/// Finds the bursts for each of `asked`, a device and the total that determines when it is idle. Bursts are numbered
/// from 0; each begins at an idle point and ends at the next.
///
/// # Errors
///
/// Fails like [`Source::each_window`].
pub(super) fn bursts(source: &Source<'_>, asked: &[(DeviceId, Metric)], watch: Watch<'_>) -> Result<Vec<Steps>> {
    let mut all: Vec<Turns> = asked.iter().map(|_| Turns::new(1)).collect();
    let map = |trace: &Trace| {
        asked.iter().map(|(device, metric)| Turns::in_window(trace, *device, *metric)).collect::<Vec<Turns>>()
    };
    source.each_window(map, |parts| all.iter_mut().zip(parts).for_each(|(all, part)| all.append(part)), watch)?;
    let steps = |turns: Turns| {
        let lows = turns.lows();
        let run = |(pair, step): (&[u64], u32)| Run { step, events: pair[0]..pair[1], phases: Vec::new() };
        let runs = lows.windows(2).zip(0..).map(run).collect();
        Steps { runs, facts: Vec::new(), events: source.events(), how_to_mark: how_to_mark_steps(source.facts()) }
    };
    Ok(all.into_iter().map(steps).collect())
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use highwater_notation::trace_from_text;

    fn bounds(text: &str) -> Vec<u64> {
        let source = Source::in_memory(trace_from_text(text).unwrap());
        let asked = [(DeviceId(0), Metric::Requested)];
        let runs = bursts(&source, &asked, &mut |_| ControlFlow::Continue(())).unwrap().remove(0).runs;
        runs.first().map(|run| run.events.start).into_iter().chain(runs.iter().map(|run| run.events.end)).collect()
    }

    /// A request, of nine events: the free of a block is two.
    fn request(number: usize, bytes: u64) -> String {
        let names = ["a", "b", "c"].map(|name| format!("{name}{number}"));
        let [a, b, c] = names;
        format!("alloc {a} {bytes}\nalloc {b} {bytes}\nfree {a}\nalloc {c} {bytes}\nfree {c}\nfree {b}\n")
    }

    #[test]
    fn bursts_end_where_memory_returns_to_its_floor_even_if_that_rises() {
        let requests = |leak: &str| -> String {
            let one = |number| request(number, 1000 + 100 * number as u64) + &leak.replace('#', &number.to_string());
            (0..4).map(one).collect()
        };
        let load = "alloc w 5000\nalloc copy 9000\nfree copy\n";
        assert_eq!(bounds(&format!("{load}{}", requests(""))), [3, 12, 21, 30, 39], "loading is no burst");
        let leaks = bounds(&format!("{load}{}", requests("alloc l# 300\n")));
        assert_eq!(leaks, [3, 12, 22, 32, 42], "what leaks after a burst is allocated in the next");
    }

    #[test]
    fn what_the_end_of_the_program_frees_was_the_floor() {
        let requests: String = (0..3).map(|number| request(number, 900)).collect();
        assert_eq!(bounds(&format!("alloc w 5000\nalloc v 2000\n{requests}free v\nalloc x 9\nfree w\n")), [10, 19]);
    }

    #[test]
    fn small_allocations_between_bursts_are_part_of_being_idle() {
        let noise = |of: &str| -> String {
            (0..20).map(|number| format!("alloc n{of}{number} 3\nfree n{of}{number}\n")).collect()
        };
        let requests = [0, 1, 2].map(|number| noise(&number.to_string()) + &request(number, 900)).concat();
        assert_eq!(bounds(&format!("alloc w 5000\n{requests}")), [69, 138, 207]);
        assert_eq!(bounds("alloc a 1\nalloc b 1\nalloc c 1\n"), Vec::<u64>::new(), "it only rises");
    }

    #[test]
    fn the_state_before_the_first_event_is_an_idle_moment_of_a_program_that_was_running() {
        let requests: String = (0..3).map(|number| request(number, 900)).collect();
        assert_eq!(bounds(&format!("baseline w 5000\n{requests}")), [0, 8, 17, 26]);
    }

    #[test]
    fn a_recording_that_begins_in_a_burst_begins_with_the_floor_after_it() {
        let requests: String = (0..3).map(|number| request(number, 900)).collect();
        assert_eq!(bounds(&format!("baseline w 5000\nbaseline a 500\nfree a\n{requests}")), [1, 10, 19, 28]);
    }

    #[test]
    fn more_bursts_than_are_in_memory_become_longer_ones() {
        let mut turns = Turns::new(1);
        for event in 0..(3 * MAX_TURNS as u64) {
            turns.push(Turn { events: event, bytes: 1000 + 900 * (event % 2) });
        }
        let lows = turns.lows();
        assert!(lows.len() > MAX_TURNS / 8 && lows.len() < MAX_TURNS, "{}", lows.len());
        assert!(lows.windows(2).all(|pair| pair[0] < pair[1] && (pair[1] - pair[0]) % 2 == 0));
    }
}
