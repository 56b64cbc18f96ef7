//! Recording: starting, finishing and wrapping; and what is left when it is done.

use std::fs::File;
use std::path::{Path, PathBuf};

use highwater_snapshots::event::Event;
use highwater_snapshots::format::{EndFacts, write_trace};
use highwater_snapshots::trace::{DeviceFacts, Header, Trust};
use highwater_snapshots::{StartingState, Trace, TraceBuilder};

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::export::{Exporter, NewOp};
use crate::header;
use crate::hub::{self, Stage};
use crate::level::{self, Level, Wanted};
use crate::options::HistoryOptions;
use crate::writer::Writer;

/// Records what `body` does to memory.
///
/// The recording is finished whether `body` succeeds, fails or panics; when it fails, its error comes back inside
/// [`Error::Body`], beside the path of the recording.
///
/// ```
/// use highwater_recorder::{HistoryOptions, record_memory_history, scope};
///
/// let run = record_memory_history(HistoryOptions::in_memory(), || {
///     for step in 0..3 {
///         scope::step(step);
///         // train_step(&model, &mut optimizer)?;
///     }
///     Ok(())
/// })?;
/// assert_eq!(run.trace.map(|trace| trace.spans.steps()), Some(vec![0, 1, 2]));
/// # Ok::<(), highwater_recorder::Error>(())
/// ```
pub fn record_memory_history<T>(
    options: HistoryOptions,
    body: impl FnOnce() -> Result<T, Box<dyn std::error::Error + Send + Sync>>,
) -> Result<Recorded<T>> {
    let recording = Recording::start(options)?;
    let result = body();
    let finished = recording.finish();
    let value = match result {
        Ok(value) => value,
        Err(source) => return Err(Error::Body { source, file: finished.ok().and_then(|finished| finished.file) }),
    };
    Ok(match finished {
        Ok(Finished { trace, file, counts, problem }) => Recorded { value, trace, file, counts, problem },
        Err(problem) => Recorded { value, trace: None, file: None, counts: Counts::default(), problem: Some(problem) },
    })
}

/// What a wrapped program gave, and its recording. A recording that could not be completed does not cost the program
/// its result: see [`problem`](Self::problem).
#[derive(Debug)]
#[must_use = "the recording may have a problem"]
pub struct Recorded<T> {
    /// What the body returned.
    pub value: T,
    /// The recording, where it was wanted in memory.
    pub trace: Option<Trace>,
    /// The file, where one was wanted.
    pub file: Option<PathBuf>,
    /// How much was recorded.
    pub counts: Counts,
    /// Why a wanted part of the recording is missing; what the file holds up to there can be read.
    pub problem: Option<Error>,
}

/// How much was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events, the lost ones included.
    pub events: u64,
    /// Events lost from a full ring or a slow disk.
    pub events_lost: u64,
    /// Blocks left out because they are smaller than asked for.
    pub small_blocks: u64,
}

/// A finished recording.
#[derive(Debug)]
pub struct Finished {
    /// The recording, where it was wanted in memory.
    pub trace: Option<Trace>,
    /// The file, where one was wanted.
    pub file: Option<PathBuf>,
    /// How much was recorded.
    pub counts: Counts,
    /// Why the file is incomplete, where the recording in memory is whole.
    pub problem: Option<Error>,
}

/// A running recording. Dropping it finishes it, too, without telling what went wrong: prefer [`finish`](Self::finish).
#[must_use = "the recording ends when the guard is dropped"]
#[derive(Debug)]
pub struct Recording {
    writer: Option<Writer>,
    is_finished: bool,
}

impl Recording {
    /// Starts recording: reads the state of every registered allocator, then keeps every event.
    ///
    /// Fails if a recording runs already, or if the file cannot be created.
    pub fn start(options: HistoryOptions) -> Result<Self> {
        if options.ring_events == Some(0) {
            return Err(Error::Options("a ring needs room for at least one event".to_owned()));
        }
        let clock = Clock::start();
        let is_deferred = options.steps.is_some();
        let wanted = options.wanted();
        let streams = options.ring_events.is_none() && wanted.level >= Level::Events;
        let written_at_end = options.sink.path().map(Path::to_owned);
        let path = written_at_end.clone().filter(|_| streams);
        let header = header::of_process(&options, &clock);
        let first_op = {
            let mut hub = hub::lock();
            if hub.active.is_some() {
                return Err(Error::AlreadyRecording);
            }
            hub.begin(options, clock)
        };
        if !streams && let Some(path) = &written_at_end {
            // Refused now rather than after the training.
            if let Err(source) = File::create(path) {
                hub::end();
                return Err(Error::Write { source, path: path.clone() });
            }
        }
        let writer = match path.map(|path| Writer::start(&path, &header, first_op)).transpose() {
            Ok(writer) => writer,
            Err(error) => {
                hub::end();
                return Err(error);
            }
        };
        if !is_deferred || hub::lock().is_in_wanted_step() {
            begin_events(wanted);
        }
        Ok(Self { writer, is_finished: false })
    }

    /// Stops recording and completes the file: waits for the writer, and resolves stacks to source lines.
    pub fn finish(mut self) -> Result<Finished> {
        self.is_finished = true;
        end(self.writer.take())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.is_finished {
            // Errors have nowhere to go from here.
            drop(end(self.writer.take()));
        }
    }
}

/// Turns events on, then takes the state of every allocator: its events count from its state on.
fn begin_events(wanted: Wanted) {
    if wanted.level < Level::Events {
        return;
    }
    level::set(wanted);
    let sources = hub::lock().sources();
    for source in sources {
        hub::start_device(&*source);
    }
    hub::lock().open();
    hub::sample();
}

/// Enters a training step, or leaves all of them: recordings of chosen steps begin with the first of them, and end
/// before what is none.
pub(crate) fn enter_step(step: Option<u32>) {
    let wish = hub::lock().active.as_ref().and_then(|active| {
        let steps = active.options.steps.as_ref()?;
        let is_wanted = step.is_some_and(|step| steps.contains(&step));
        Some((is_wanted, active.stage, active.options.wanted()))
    });
    if let Some((false, Stage::Open, ..)) = wish {
        level::set(Wanted::default());
        if let Some(active) = hub::lock().active.as_mut() {
            active.stage = Stage::Closed;
        }
    }
    hub::lock().set_step(step);
    match wish {
        Some((true, Stage::Waiting, wanted)) => begin_events(wanted),
        _ => hub::sample(),
    }
}

fn end(writer: Option<Writer>) -> Result<Finished> {
    let state_only = hub::lock().active.as_ref().is_some_and(|active| active.options.level == Level::State);
    if state_only {
        let sources = hub::lock().sources();
        for source in sources {
            hub::start_device(&*source);
        }
    }
    level::set(Wanted::default());
    hub::close();
    let file = writer.map(|writer| writer.finish(|| hub::lock().active.as_ref().map(end_facts).unwrap_or_default()));
    let Some(active) = hub::end() else { return Err(Error::Options("nothing is recorded".to_owned())) };
    let evicted = active.history.as_ref().map_or(0, |history| history.evicted());
    let is_ring = active.options.ring_events.is_some();
    let counts = Counts {
        events: active.events,
        events_lost: active.lost + if is_ring { evicted } else { 0 },
        small_blocks: active.small_blocks,
    };
    let is_wanted = active.options.sink.is_in_memory();
    let mut file = file.transpose();
    let mut trace = None;
    if is_wanted || matches!(file, Ok(None)) {
        let made = Held::of(&active).into_trace();
        if let (Ok(None), Some(path)) = (&file, active.options.sink.path()) {
            file = write_file(path, &made).map(|()| Some(path.to_owned()));
        }
        trace = is_wanted.then_some(made);
    }
    match (file, trace) {
        (Ok(file), trace) => Ok(Finished { trace, file, counts, problem: None }),
        (Err(problem), Some(trace)) => Ok(Finished { trace: Some(trace), file: None, counts, problem: Some(problem) }),
        (Err(problem), None) => Err(problem),
    }
}

fn end_facts(active: &hub::Active) -> EndFacts {
    let trust = Trust { events_lost: active.lost, ..Trust::default() };
    EndFacts { trust, problems: Vec::new() }
}

fn write_file(path: &Path, trace: &Trace) -> Result<()> {
    let io = |source| Error::Write { source, path: path.to_owned() };
    let file = File::create(path).map_err(io)?;
    match write_trace(std::io::BufWriter::new(file), trace) {
        Ok(_) => Ok(()),
        Err(highwater_snapshots::Error::Io { source, .. }) => Err(io(source)),
        Err(other) => Err(other.into()),
    }
}

/// Writes what the running recording holds in memory to a file, and goes on recording. Fails if nothing is held: a
/// recording that streams to a file without a ring has it there already.
pub fn dump_snapshot(path: &Path) -> Result<()> {
    let held = hub::lock().active.as_ref().filter(|active| active.history.is_some()).map(Held::of);
    let held = held.ok_or_else(|| Error::Options("no recording holds its history in memory".to_owned()))?;
    write_file(path, &held.into_trace())
}

/// A copy of what a recording holds in memory.
struct Held {
    header: Header,
    facts: Vec<DeviceFacts>,
    states: Vec<StartingState>,
    ops: Vec<NewOp>,
    events: Vec<Event>,
    first_op: u32,
    events_lost: u64,
}

impl Held {
    fn of(active: &hub::Active) -> Self {
        let history = active.history.as_ref();
        Self {
            header: header::of_process(&active.options, &active.clock),
            facts: active.facts.clone(),
            states: history.map(|history| history.starting_states()).unwrap_or_default(),
            ops: active.ops.clone(),
            events: history.map(|history| history.events().copied().collect()).unwrap_or_default(),
            first_op: active.first_held_op,
            events_lost: history.map_or(0, |history| history.evicted()),
        }
    }

    fn into_trace(self) -> Trace {
        let mut exporter = Exporter::new(self.first_op);
        let mut builder = TraceBuilder::with_capacity(self.events.len());
        builder.set_header(self.header);
        for facts in self.facts {
            builder.set_device(facts);
        }
        exporter.add_ops(&self.ops);
        for state in &self.states {
            builder.set_starting_state(&exporter.starting_state(state));
        }
        for event in &self.events {
            builder.push(&exporter.event(event));
        }
        builder.trust().events_lost = self.events_lost;
        let (symbols, problems) = exporter.resolve();
        for problem in problems {
            builder.add_problem(problem);
        }
        *builder.tables() = exporter.into_tables(&symbols);
        builder.finish()
    }
}
