//! Streams and their events, and the time at which their work runs.
//!
//! Submitted work runs at once, or in lazy mode when something waits for it, so that reads without a wait see old
//! contents. In idle mode, work is dropped.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use crate::failure::{Code, Failure, Result, fail};

/// A piece of work in a stream.
pub(crate) type Work = Box<dyn FnOnce() -> Result<()> + Send>;

enum Piece {
    Run(Work),
    /// Records an event. Contains the event and the number of the recording.
    Record(u64, u64),
    Wait(Mark),
}

/// A point in a stream: after this many pieces of work.
#[derive(Clone, Copy, Debug)]
struct Mark {
    stream: u64,
    position: u64,
}

struct Stream {
    device: usize,
    /// Whether the stream synchronizes with the device's default stream.
    is_blocking: bool,
    given: u64,
    done: u64,
    pieces: VecDeque<Piece>,
}

struct Event {
    device: usize,
    is_timed: bool,
    recordings: u64,
    mark: Option<Mark>,
    reached: Option<Instant>,
}

/// The streams and events of all devices.
pub(crate) struct Streams {
    is_lazy: bool,
    is_idle: bool,
    next: u64,
    streams: HashMap<u64, Stream>,
    events: HashMap<u64, Event>,
    /// The failure of each device's work, if any. Nothing runs on the device afterwards.
    faults: Vec<Option<Failure>>,
}

/// The first handle. Handles are never reused. Smaller numbers are streams that C code refers to by number.
const FIRST: u64 = 0x5100_0000_0000;
/// The first handle of the devices' default streams.
const OWN: u64 = 0x5000_0000_0000;

impl Streams {
    /// Creates the default stream of each device.
    pub(crate) fn new(devices: usize, is_lazy: bool, is_idle: bool) -> Self {
        let own = |device| Stream { device, is_blocking: false, given: 0, done: 0, pieces: VecDeque::new() };
        Self {
            is_lazy,
            is_idle,
            next: FIRST,
            streams: (0..devices).map(|device| (OWN + device as u64, own(device))).collect(),
            events: HashMap::new(),
            faults: vec![None; devices],
        }
    }

    fn handle(&mut self) -> u64 {
        self.next += 16;
        self.next
    }

    /// Creates a stream.
    pub(crate) fn create(&mut self, device: usize, is_blocking: bool) -> u64 {
        let handle = self.handle();
        self.streams.insert(handle, Stream { device, is_blocking, given: 0, done: 0, pieces: VecDeque::new() });
        handle
    }

    /// Resolves a handle to a stream of a device; 0, 1 and 2 are its default streams.
    pub(crate) fn find(&self, handle: u64, device: usize) -> Result<u64> {
        if handle <= 2 {
            return Ok(OWN + device as u64);
        }
        match self.streams.get(&handle) {
            Some(stream) if stream.device == device => Ok(handle),
            Some(stream) => {
                fail(Code::InvalidHandle, format!("the stream is of device {}, not {device}", stream.device))
            }
            None => fail(Code::InvalidHandle, format!("there is no stream {handle:#x}")),
        }
    }

    /// Destroys a stream, once its work is done.
    pub(crate) fn destroy(&mut self, stream: u64) -> Result<()> {
        let outcome = self.drain(stream);
        self.streams.remove(&stream);
        outcome
    }

    /// The failure of a device's work, if any.
    pub(crate) fn check(&self, device: usize) -> Result<()> {
        self.faults.get(device).and_then(Clone::clone).map_or(Ok(()), Err)
    }

    /// Whether work is dropped when it is submitted.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// Submits work to a stream; in idle mode, drops it.
    pub(crate) fn give(&mut self, stream: u64, work: Work) -> Result<()> {
        if self.is_idle {
            return Ok(());
        }
        self.push(stream, Piece::Run(work))
    }

    fn push(&mut self, stream: u64, piece: Piece) -> Result<()> {
        let Some(found) = self.streams.get(&stream) else {
            return fail(Code::InvalidHandle, format!("there is no stream {stream:#x}"));
        };
        let device = found.device;
        self.check(device)?;
        let is_own = stream < FIRST;
        if is_own {
            // Runs after all that the others were given, and before all that they are given from now on.
            self.drain_those(|other| other.device == device && other.is_blocking)?;
        }
        if let Some(found) = self.streams.get_mut(&stream) {
            found.pieces.push_back(piece);
            found.given += 1;
        }
        if is_own || !self.is_lazy { self.drain(stream) } else { Ok(()) }
    }

    /// Runs the next work item of a stream, or of the work for which it waits. Returns whether there was any.
    fn advance(&mut self, stream: u64) -> Result<bool> {
        let Some(found) = self.streams.get_mut(&stream) else { return Ok(false) };
        let device = found.device;
        let awaited = match found.pieces.front() {
            None => return Ok(false),
            Some(&Piece::Wait(mark)) => Some(mark),
            Some(_) => None,
        };
        if let Some(mark) = awaited
            && !self.is_reached(mark)
        {
            return self.advance(mark.stream);
        }
        let Some(found) = self.streams.get_mut(&stream) else { return Ok(false) };
        let piece = found.pieces.pop_front();
        found.done += 1;
        match piece {
            Some(Piece::Run(work)) => {
                if let Err(failure) = work() {
                    self.give_up(device, &failure);
                    return Err(failure);
                }
            }
            Some(Piece::Record(event, recording)) => {
                if let Some(event) = self.events.get_mut(&event).filter(|event| event.recordings == recording) {
                    event.reached = Some(Instant::now());
                }
            }
            Some(Piece::Wait(_)) | None => {}
        }
        Ok(true)
    }

    /// Drops all work of a device.
    fn give_up(&mut self, device: usize, failure: &Failure) {
        if let Some(fault) = self.faults.get_mut(device) {
            fault.get_or_insert_with(|| failure.clone());
        }
        for stream in self.streams.values_mut().filter(|stream| stream.device == device) {
            stream.pieces.clear();
            stream.done = stream.given;
        }
    }

    fn is_reached(&self, mark: Mark) -> bool {
        // A stream that is gone has done its work.
        self.streams.get(&mark.stream).is_none_or(|stream| stream.done >= mark.position)
    }

    /// Runs all work of a stream.
    pub(crate) fn drain(&mut self, stream: u64) -> Result<()> {
        while self.advance(stream)? {}
        Ok(())
    }

    /// Runs all work of a device.
    pub(crate) fn drain_device(&mut self, device: usize) -> Result<()> {
        self.check(device)?;
        self.drain_those(|stream| stream.device == device)
    }

    /// Runs all work of all devices without a failure.
    pub(crate) fn drain_all(&mut self) -> Result<()> {
        self.drain_those(|_| true)
    }

    fn drain_those(&mut self, fits: impl Fn(&Stream) -> bool) -> Result<()> {
        let mut those: Vec<u64> =
            self.streams.iter().filter(|(_, stream)| fits(stream)).map(|(&handle, _)| handle).collect();
        those.sort_unstable();
        those.into_iter().try_for_each(|stream| self.drain(stream))
    }

    /// Runs another work item of a stream. Returns whether all of its work is done.
    pub(crate) fn query(&mut self, stream: u64) -> Result<bool> {
        self.advance(stream)?;
        Ok(self.streams.get(&stream).is_none_or(|stream| stream.pieces.is_empty()))
    }

    /// Creates an event.
    pub(crate) fn create_event(&mut self, device: usize, is_timed: bool) -> u64 {
        let handle = self.handle();
        self.events.insert(handle, Event { device, is_timed, recordings: 0, mark: None, reached: None });
        handle
    }

    /// Destroys an event. Work that already waits for the event is unaffected.
    pub(crate) fn destroy_event(&mut self, event: u64) -> Result<()> {
        self.event(event)?;
        self.events.remove(&event);
        Ok(())
    }

    fn event(&mut self, event: u64) -> Result<&mut Event> {
        match self.events.get_mut(&event) {
            Some(event) => Ok(event),
            None => fail(Code::InvalidHandle, format!("there is no event {event:#x}")),
        }
    }

    /// Records an event at the end of a stream's submitted work.
    pub(crate) fn record(&mut self, event: u64, stream: u64) -> Result<()> {
        let position = self.streams.get(&stream).map_or(0, |stream| stream.given) + 1;
        let device = self.streams.get(&stream).map(|stream| stream.device);
        let found = self.event(event)?;
        if Some(found.device) != device {
            return fail(Code::InvalidHandle, format!("the event is of device {}, the stream is not", found.device));
        }
        found.recordings += 1;
        found.mark = Some(Mark { stream, position });
        found.reached = None;
        let recording = found.recordings;
        self.push(stream, Piece::Record(event, recording))
    }

    /// Makes a stream wait for an event.
    pub(crate) fn follow(&mut self, stream: u64, event: u64) -> Result<()> {
        match self.event(event)?.mark {
            Some(mark) => self.push(stream, Piece::Wait(mark)),
            None => Ok(()),
        }
    }

    /// Runs another piece of work of an event's stream, and returns whether the event is reached.
    pub(crate) fn query_event(&mut self, event: u64) -> Result<bool> {
        let device = self.event(event)?.device;
        self.check(device)?;
        let Some(mark) = self.event(event)?.mark else { return Ok(true) };
        if !self.is_reached(mark) {
            self.advance(mark.stream)?;
        }
        Ok(self.is_reached(mark))
    }

    /// Runs all work up to an event.
    pub(crate) fn wait(&mut self, event: u64) -> Result<()> {
        let device = self.event(event)?.device;
        self.check(device)?;
        let Some(mark) = self.event(event)?.mark else { return Ok(()) };
        while !self.is_reached(mark) {
            self.advance(mark.stream)?;
        }
        Ok(())
    }

    /// Milliseconds between two events.
    pub(crate) fn elapsed_ms(&mut self, start: u64, end: u64) -> Result<f32> {
        let mut times = [None; 2];
        for (time, event) in times.iter_mut().zip([start, end]) {
            let event = self.event(event)?;
            if !event.is_timed || event.mark.is_none() {
                return fail(Code::InvalidHandle, "the event was made without time, or never recorded");
            }
            *time = event.reached;
        }
        let [Some(start), Some(end)] = times else { return fail(Code::NotReady, "") };
        let (forth, back) = (end.saturating_duration_since(start), start.saturating_duration_since(end));
        Ok((forth.as_secs_f32() - back.as_secs_f32()) * 1e3)
    }

    /// Removes a device's streams, events and failure.
    pub(crate) fn reset(&mut self, device: usize) {
        self.streams.retain(|&handle, stream| stream.device != device || handle < FIRST);
        self.events.retain(|_, event| event.device != device);
        if let Some(fault) = self.faults.get_mut(device) {
            *fault = None;
        }
    }
}
