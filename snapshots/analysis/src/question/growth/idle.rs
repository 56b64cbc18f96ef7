//! Finds the idle points of a program without steps, such as a server: the minima to which its memory returns between
//! bursts of work, and at which it stays for some time. Growth is then measured per burst instead of per step.

use std::cmp::Reverse;

use highwater_snapshots::Result;
use highwater_snapshots::ids::DeviceId;
use highwater_snapshots::trace::Trace;

use super::steps::{Idle, Run, Steps, how_to_mark_steps};
use crate::index::replay::Replay;
use crate::metric::Metric;
use crate::question::source::{Source, Watch};

/// Maximum number of turns (local minima and maxima) in memory. If there are more, the smaller ones are dropped, and
/// equal neighbours are merged.
const MAX_TURNS: usize = 1 << 20;

/// The smallest turns that are distinguished, as a fraction of the peak (one divided by this).
const FINEST: u64 = 4096;

/// Maximum number of turns that may belong to the end of a program.
const MAX_END: usize = 8;

/// The time without events at an idle point is at least this many times as long as at any minimum within a burst.
const LONGER: u64 = 4;

/// Shorter times without events are treated as equal, in nanoseconds.
const SHORTEST_NS: u64 = 100_000;

/// If every minimum is followed by at least this time without events, all minima are idle points.
const IDLE_NS: u64 = 1_000_000;

/// Minimum number of idle points between the first and the last burst. With fewer, a point that is distinguished by
/// time may be accidental.
const FEWEST_IDLE: usize = 3;

/// A local minimum or maximum of the total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    /// Number of events before the turn.
    events: u64,
    bytes: u64,
    /// The longest time between two events since the previous turn, excluding the time directly after that turn.
    before_ns: u64,
    /// The time until the next event.
    after_ns: u64,
}

impl Turn {
    fn new(events: u64, bytes: u64) -> Self {
        Self { events, bytes, before_ns: 0, after_ns: 0 }
    }
}

/// Alternating local minima and maxima of a total; neighbours differ by at least `depth` bytes.
#[derive(Debug)]
struct Turns {
    depth: u64,
    rows: Vec<Turn>,
    /// Whether the last event is the last turn.
    is_at_turn: bool,
    /// The longest time between two events since the last turn, excluding the time directly after that turn.
    pause_ns: u64,
    /// The times of the first event and of the last.
    time_ns: Option<(u64, u64)>,
}

impl Turns {
    fn new(depth: u64) -> Self {
        Self { depth: depth.max(1), rows: Vec::new(), is_at_turn: false, pause_ns: 0, time_ns: None }
    }

    fn in_window(trace: &Trace, device: DeviceId, metric: Metric) -> Self {
        let mut turns = Self::new(1);
        let mut replay = Replay::new(trace, device);
        turns.push(Turn::new(trace.start.events, replay.totals().get(metric)));
        while let Some(event) = replay.step() {
            let now_ns = trace.time_of(event).unwrap_or(0);
            turns.pause_until(now_ns, now_ns);
            turns.push(Turn::new(trace.number(event) + 1, replay.totals().get(metric)));
        }
        turns
    }

    /// Records a pause until `next_ns`, followed by activity that ends at `last_ns`.
    fn pause_until(&mut self, next_ns: u64, last_ns: u64) {
        let (first_ns, before_ns) = self.time_ns.unwrap_or((next_ns, next_ns));
        self.time_ns = Some((first_ns, last_ns));
        let pause_ns = next_ns.saturating_sub(before_ns);
        match self.rows.last_mut().filter(|_| self.is_at_turn) {
            Some(turn) => turn.after_ns = turn.after_ns.max(pause_ns),
            None => self.pause_ns = self.pause_ns.max(pause_ns),
        }
    }

    /// Appends a value that extends the last turn, or that reverses the direction by at least `depth` bytes. Drops any
    /// other value.
    fn push(&mut self, turn: Turn) {
        let (last, before) = match self.rows.as_slice() {
            [.., before, last] => (*last, Some(*before)),
            [only] => (*only, None),
            [] => {
                self.is_at_turn = true;
                return self.rows.push(turn);
            }
        };
        let turns = turn.bytes.abs_diff(last.bytes) >= self.depth;
        let goes_further = match before {
            Some(before) if last.bytes > before.bytes => turn.bytes > last.bytes,
            Some(_) => turn.bytes < last.bytes,
            // A recording may begin in the middle of a burst.
            None => turn.bytes < last.bytes && !turns,
        };
        if let Some(former) = self.rows.pop_if(|_| goes_further) {
            self.pause_ns = self.pause_ns.max(former.before_ns).max(former.after_ns);
        }
        self.is_at_turn = goes_further || turns;
        if self.is_at_turn {
            let before_ns = std::mem::take(&mut self.pause_ns).max(turn.before_ns);
            self.rows.push(Turn { before_ns, ..turn });
        } else {
            self.pause_ns = self.pause_ns.max(turn.before_ns).max(turn.after_ns);
        }
        if self.rows.len() > MAX_TURNS {
            self.thin();
        }
    }

    /// Drops the smaller turns. If all turns are of similar size, merges every second burst into the previous one.
    fn thin(&mut self) {
        let coarser = Self::among(&self.rows, self.depth.saturating_mul(2));
        if coarser.rows.len() > MAX_TURNS / 8 {
            *self = coarser;
            return;
        }
        let merged = self.rows.chunks(4).flat_map(|some| match some {
            [first, high, low, last] => {
                let within_ns = [high, low].map(|turn| turn.before_ns.max(turn.after_ns));
                let before_ns = within_ns.into_iter().fold(last.before_ns, u64::max);
                vec![*first, Turn { before_ns, ..*last }]
            }
            few => few.to_vec(),
        });
        self.rows = merged.collect();
    }

    fn append(&mut self, later: Self) {
        if let Some((first_ns, last_ns)) = later.time_ns {
            self.pause_until(first_ns, last_ns);
        }
        later.rows.into_iter().for_each(|turn| self.push(turn));
        self.is_at_turn &= later.is_at_turn;
        self.pause_ns = self.pause_ns.max(later.pause_ns);
    }

    /// The turns of at least `depth` bytes in a list of turns.
    fn among(rows: &[Turn], depth: u64) -> Self {
        let mut turns = Self::new(depth);
        rows.iter().for_each(|turn| turns.push(*turn));
        turns
    }

    /// Removes the turns at the end of the program, at which memory falls because everything is freed, if they hide
    /// most of the earlier bursts. Also returns the height of the bursts.
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

    /// Returns the number of events before each idle point between bursts, and the durations of these points, if
    /// durations decide.
    fn idle(&self) -> (Vec<u64>, Option<Idle>) {
        let peak = self.rows.iter().map(|turn| turn.bytes).max().unwrap_or(0);
        let (run, height) = Self::among(&self.rows, self.depth.max(peak / FINEST)).of_run();
        if height == 0 {
            return (Vec::new(), None);
        }
        // Bursts differ in height; idle time distinguishes them from other changes near the lowest total.
        let lows = run.lows(height / 8, height / 2);
        // The bursts begin at the first minimum, and end at the last.
        let rests: Vec<u64> = lows.iter().skip(1).rev().skip(1).rev().map(|(_, rest_ns)| *rest_ns).collect();
        let idle = idle_among(&rests);
        let is_always_idle = !rests.is_empty() && rests.iter().all(|rest_ns| *rest_ns >= IDLE_NS);
        if idle.is_none() && !is_always_idle {
            return (run.lows(height / 2, height / 2).into_iter().map(|(low, _)| low).collect(), None);
        }
        let shortest_ns = idle.map_or(0, |idle| idle.shortest_ns);
        let is_end = |row: usize| row == 0 || row + 1 == lows.len();
        let is_idle = |(row, (_, rest_ns)): &(usize, &(u64, u64))| is_end(*row) || *rest_ns >= shortest_ns;
        (lows.iter().enumerate().filter(is_idle).map(|(_, (low, _))| *low).collect(), idle)
    }

    /// Returns the minima between which the total rises by at least `depth`, and which are less than `above` above all
    /// later minima. Each has the number of events before it, and the longest time between two events around it.
    fn lows(&self, depth: u64, above: u64) -> Vec<(u64, u64)> {
        let Self { rows, .. } = Self::among(&self.rows, self.depth.max(depth));
        let mut lows: Vec<(Turn, u64)> = Vec::new();
        let mut floor = u64::MAX;
        for (row, turn) in rows.iter().enumerate().rev() {
            floor = floor.min(turn.bytes);
            let next = rows.get(row + 1);
            let mut beside = row.checked_sub(1).and_then(|row| rows.get(row)).into_iter().chain(next);
            // Memory may fall far in the middle of a burst, and rise again.
            if beside.all(|beside| beside.bytes > turn.bytes) && turn.bytes - floor < above {
                lows.push((*turn, next.map_or(0, |next| next.before_ns).max(turn.before_ns).max(turn.after_ns)));
            }
        }
        lows.reverse();
        // Blocks loaded before the first burst raise the floor, and the last burst may not be over.
        let rises = |pair: Option<&[(Turn, u64)]>| pair.is_some_and(|pair| pair[1].0.bytes >= pair[0].0.bytes + above);
        let (first, last) = (rises(lows.windows(2).next()), rises(lows.windows(2).next_back()));
        let end = lows.len() - usize::from(last);
        let kept = lows.get(usize::from(first)..end).unwrap_or_default();
        kept.iter().map(|(turn, rest_ns)| (turn.events, *rest_ns)).collect()
    }
}

/// Divides minima into those within bursts and idle points, by the duration of the rest at each. The limit is where the
/// ratio to the next longer rest is largest. `None` if all rests are similar, or if there are too few.
fn idle_among(rests_ns: &[u64]) -> Option<Idle> {
    let mut sorted: Vec<u64> = rests_ns.iter().map(|rest_ns| (*rest_ns).max(SHORTEST_NS)).collect();
    sorted.sort_unstable();
    // Some of the requests that arrive at random times follow each other without a pause.
    let fewest_short = (sorted.len() / 20).max(2);
    let divisions =
        (fewest_short..(sorted.len() + 1).saturating_sub(FEWEST_IDLE)).map(|row| [sorted[row - 1], sorted[row]]);
    let [longest_within_ns, shortest_ns] = divisions.max_by(|a, b| {
        let ratio = |[short, long]: &[u64; 2]| *long as f64 / *short as f64;
        ratio(a).total_cmp(&ratio(b))
    })?;
    (shortest_ns / longest_within_ns >= LONGER).then_some(Idle { shortest_ns, longest_within_ns })
}

/// Determines the height of a program's bursts: the height for which the number of bursts at least that high, less one,
/// times the height is largest. Returns that product and the height. Loading a model once does not count, regardless of
/// its size, nor do many small allocations. A burst is the range between two points below which the total never falls
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

/// Finds the bursts for each element of `asked`, which is a device and the total that determines when it is idle.
/// Bursts are numbered from 0; each begins at an idle point and ends at the next.
///
/// # Errors
/// Fails like [`Source::each_window`].
pub(super) fn bursts(source: &Source<'_>, asked: &[(DeviceId, Metric)], watch: Watch<'_>) -> Result<Vec<Steps>> {
    let mut all: Vec<Turns> = asked.iter().map(|_| Turns::new(1)).collect();
    let map = |trace: &Trace| {
        asked.iter().map(|(device, metric)| Turns::in_window(trace, *device, *metric)).collect::<Vec<Turns>>()
    };
    source.each_window(map, |parts| all.iter_mut().zip(parts).for_each(|(all, part)| all.append(part)), watch)?;
    let steps = |turns: Turns| {
        let (lows, idle) = turns.idle();
        let run = |(pair, step): (&[u64], u32)| Run { step, events: pair[0]..pair[1], phases: Vec::new() };
        let runs = lows.windows(2).zip(0..).map(run).collect();
        let how_to_mark = how_to_mark_steps(source.facts());
        Steps { runs, facts: Vec::new(), events: source.events(), how_to_mark, idle }
    };
    Ok(all.into_iter().map(steps).collect())
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::Arc;

    use super::*;
    use highwater_notation::trace_from_text;
    use highwater_snapshots::format::{Windows, write_trace};

    fn bursts_of(source: &Source<'_>) -> Steps {
        let asked = [(DeviceId(0), Metric::Requested)];
        bursts(source, &asked, &mut |_| ControlFlow::Continue(())).unwrap().remove(0)
    }

    fn bounds(text: &str) -> Vec<u64> {
        bounds_in(&Source::in_memory(trace_from_text(text).unwrap()))
    }

    fn bounds_in(source: &Source<'_>) -> Vec<u64> {
        let runs = bursts_of(source).runs;
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

    /// Requests, as by [`request`], each that many milliseconds after the one before, which may leave memory. Within a
    /// request, memory is at its floor for a millisecond.
    fn requests_after(pauses_ms: &[u64], leak: u64) -> String {
        let mut now_us = 0;
        let mut text = "baseline w 50000\n".to_owned();
        for (number, pause) in pauses_ms.iter().enumerate() {
            now_us += pause * 1000;
            let mut line = |line: String, us: u64| {
                now_us += us;
                text += &format!("{line} t={now_us}us\n");
            };
            for part in 0..3 {
                line(format!("alloc a{number}.{part} 900"), 1000);
                line(format!("free a{number}.{part}"), 200);
            }
            if leak > 0 {
                line(format!("alloc l{number} {leak}"), 10);
            }
        }
        text
    }

    /// What is between idle moments, as numbers of requests.
    fn requests_between(pauses_ms: &[u64], leak: u64) -> Vec<u64> {
        let events = 9 + u64::from(leak > 0);
        // What leaks after a burst belongs to the next one.
        bounds(&requests_after(pauses_ms, leak)).windows(2).map(|pair| (pair[1] - pair[0]).div_ceil(events)).collect()
    }

    #[test]
    fn lows_within_bursts_are_shorter_than_idle_moments() {
        let bursts: Vec<u64> = (0..12).flat_map(|burst| [&[150 + 20 * burst][..], &[3; 20]].concat()).collect();
        for leak in [0, 1, 40, 400] {
            assert_eq!(requests_between(&bursts, leak), [21; 12], "of {leak} bytes a request");
            assert_eq!(requests_between(&[100, 150, 300, 120, 170, 250], leak), [1; 6], "of {leak} bytes a request");
        }
        // Without pauses, every return to the floor counts.
        assert_eq!(bounds(&requests_after(&[1; 4], 0)).len(), 3 * 4 + 1);
    }

    #[test]
    fn bursts_are_the_same_where_the_recording_is_read_in_windows() {
        let pauses: Vec<u64> = (0..60).flat_map(|burst| [&[150 + 20 * burst][..], &[3; 20]].concat()).collect();
        let trace = trace_from_text(&requests_after(&pauses, 40)).unwrap();
        let bytes: Arc<[u8]> = write_trace(Vec::new(), &trace).unwrap().into();
        let windows = Windows::open(Arc::new(bytes), &mut |_| ControlFlow::Continue(())).unwrap();
        let parts = Source::in_windows(windows).unwrap().in_windows_of(700);
        assert!(parts.passes().len() > 10);
        let whole = Source::in_memory(trace);
        assert_eq!(bounds_in(&whole).len(), 61);
        assert_eq!(bounds_in(&parts), bounds_in(&whole));
        assert_eq!(bursts_of(&parts).idle, bursts_of(&whole).idle);
    }

    #[test]
    fn more_bursts_than_are_in_memory_become_longer_ones() {
        let mut turns = Turns::new(1);
        for event in 0..(3 * MAX_TURNS as u64) {
            turns.push(Turn::new(event, 1000 + 900 * (event % 2)));
        }
        let (lows, _) = turns.idle();
        assert!(lows.len() > MAX_TURNS / 8 && lows.len() < MAX_TURNS, "{}", lows.len());
        assert!(lows.windows(2).all(|pair| pair[0] < pair[1] && (pair[1] - pair[0]) % 2 == 0));
    }
}
