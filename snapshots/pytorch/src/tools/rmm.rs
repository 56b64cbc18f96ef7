//! Reads the log of RMM's `logging_resource_adaptor`, a CSV file, as written by
//! [`logging_resource_adaptor_impl.cpp`](https://github.com/rapidsai/rmm/tree/main/cpp/src/mr/detail).
//!
//! The log has no stacks, no date, and neither the device nor the memory reserved by the upstream resource. The thread
//! of each event is lost.

use std::io::BufRead;
use std::ops::ControlFlow;

use super::calls::{Call, Called, Calls, Outcome};
use super::lines::Lines;
use highwater_snapshots::error::{Error, Result};
use highwater_snapshots::ids::{DeviceId, ScopeId, StackId, StreamId};
use highwater_snapshots::trace::{Header, NOTE, Trace};

const COLUMNS: &str = "Thread,Time,Action,Pointer,Size,Stream";

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;
/// Maximum time span of a log in days. RMM logs are shorter.
const MAX_DAYS: u64 = 36_500;

pub(crate) fn is_log(text: &[u8]) -> bool {
    text.starts_with(COLUMNS.as_bytes())
}

/// Reads a log. `watch` is called regularly with the number of events read, and can stop reading.
pub(crate) fn read(input: impl BufRead, watch: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<Trace> {
    let (mut lines, mut calls) = (Lines::new(input), Calls::default());
    let mut clock = Clock::default();
    while let Some(line) = lines.next()? {
        let line = line.trim_start_matches('\u{feff}');
        // A program that is started again may append to its log.
        if line.is_empty() || line == COLUMNS {
            continue;
        }
        match parse(line) {
            Some(call) => {
                let time_ns = clock.elapsed(call.time_ns);
                calls.calls.push(Call { time_ns, ..call });
            }
            None => lines.leave_out(),
        }
        if calls.calls.len() % 65_536 == 1 && watch(calls.calls.len() as u64).is_break() {
            return Err(Error::Cancelled);
        }
    }
    lines.problems("RMM").for_each(|problem| calls.builder.add_problem(problem));
    let note = "RMM's log contains neither reserved memory nor devices: all blocks are assigned to device 0";
    let facts = vec![(NOTE.to_owned(), note.to_owned())];
    let header = Header { recorder: "RMM".to_owned(), level: "events".to_owned(), facts, ..Header::default() };
    Ok(calls.finish(header, Vec::new(), Called::Allocator))
}

/// Converts times of day to times since the first event.
#[derive(Default)]
struct Clock {
    first: Option<u64>,
    days: u64,
    /// The latest time, in nanoseconds since the midnight before the first event.
    last: u64,
}

impl Clock {
    /// Returns the nanoseconds since the first event. Lines of several threads may be slightly out of order, so only a
    /// step back by half a day or more counts as midnight.
    fn elapsed(&mut self, time_of_day: u64) -> u64 {
        let first = *self.first.get_or_insert(time_of_day);
        if time_of_day + self.days * DAY + DAY / 2 < self.last && self.days < MAX_DAYS {
            self.days += 1;
        }
        self.last = self.last.max(time_of_day + self.days * DAY);
        self.last - first
    }
}

fn parse(line: &str) -> Option<Call> {
    let mut fields = line.split(',').map(str::trim);
    let [_thread, time, action, pointer, size, stream] = std::array::from_fn(|_| fields.next());
    if fields.next().is_some() {
        return None;
    }
    let outcome = match action? {
        "allocate" => Outcome::Allocated,
        "allocate failure" => Outcome::Failed,
        "free" => Outcome::Freed,
        _ => return None,
    };
    Some(Call {
        outcome,
        time_ns: time_of_day(time?)?,
        device: DeviceId(0),
        address: hexadecimal(pointer?)?,
        bytes: size?.parse().ok()?,
        stream: StreamId(hexadecimal(stream?)?),
        stack: StackId::NONE,
        scope: ScopeId::NONE,
    })
}

/// Parses a time such as `14:21:19.998533` to nanoseconds since midnight; `None` if it is not such a time.
fn time_of_day(text: &str) -> Option<u64> {
    let mut parts = text.split([':', '.']);
    let mut next = |most: u64| parts.next()?.parse::<u64>().ok().filter(|number| *number < most);
    let (hours, minutes, seconds, micros) = (next(24)?, next(60)?, next(61)?, next(1_000_000)?);
    Some(((hours * 60 + minutes) * 60 + seconds) * SECOND + micros * 1000)
}

/// Parses a pointer in C or C++ notation, with or without `0x`; `(nil)` is 0. `None` if it is not a pointer.
pub(super) fn hexadecimal(text: &str) -> Option<u64> {
    if text == "(nil)" { Some(0) } else { u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok() }
}
