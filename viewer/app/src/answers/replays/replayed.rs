//! Replays a recording of any length. If the recording is too long for memory, writes the replay to a temporary file,
//! of which only a few windows are in memory at a time.

use std::ops::ControlFlow;
use std::sync::Arc;

use highwater_allocator::replay::{Plan, ReplayOutcome, Stream, StreamStart, addresses_end, replay};
use highwater_analysis::Source;
use highwater_snapshots::byte_source::ByteSource;
use highwater_snapshots::event::Event;
use highwater_snapshots::format::{EndFacts, SnapWriter, Windows};
use highwater_snapshots::{EventId, Header, Result, Trace};

use super::block_changes::BlockChanges;
use crate::answers::prediction::{Change, Figures};

/// Number of events that are written at a time.
const CHUNK: usize = 1 << 16;

/// A replay of a recording; events are identified by their index.
pub(super) struct Replayed {
    pub(super) recording: Source<'static>,
    /// The recorded event that corresponds to each event of the replay; empty if the recording is not in memory.
    pub(super) source: Vec<EventId>,
    pub(super) figures: Figures,
    pub(super) outcome: ReplayOutcome,
}

pub(super) struct Replays<'a> {
    pub(super) source: &'a Source<'a>,
    /// The reader of windows and the starting state, if the recording is not in memory.
    stream: Option<(&'a Windows, StreamStart)>,
}

impl<'a> Replays<'a> {
    /// # Errors
    /// Fails if the recording cannot be read.
    pub(super) fn new(source: &'a Source<'a>) -> Result<Self> {
        let Some(windows) = source.windows() else { return Ok(Self { source, stream: None }) };
        let mut end = 0;
        let mut watch = |_| ControlFlow::Continue(());
        source.each_window(addresses_end, |of_window| end = of_window.max(end), &mut watch)?;
        Ok(Self { source, stream: Some((windows, StreamStart::new(windows.base(), windows.starting(), end))) })
    }

    /// Replays the recording with the settings and block changes of `plan`. If the recording is not in memory, `plan`
    /// contains only changes to blocks that are live at its start, and `change` determines the changes to all other
    /// blocks. `note` is added to the header of the result.
    ///
    /// # Errors
    /// Fails if the recording cannot be read, or the temporary file cannot be written.
    pub(super) fn by(&self, plan: &Plan<'_>, change: Option<&Change>, note: Option<&str>) -> Result<Replayed> {
        let (recording, source, outcome) = match &self.stream {
            None => in_memory(self.source.facts(), plan, note),
            Some((windows, start)) => {
                let (recording, outcome) = in_file((self.source, windows), start, (plan, change), note)?;
                (recording, Vec::new(), outcome)
            }
        };
        Ok(Replayed { figures: Figures::of(&recording, plan.device)?, recording, source, outcome })
    }
}

fn in_memory(trace: &Trace, plan: &Plan<'_>, note: Option<&str>) -> (Source<'static>, Vec<EventId>, ReplayOutcome) {
    let replay = replay(trace, plan);
    let replayed = match note {
        Some(_) => replay.trace.edited(|trace| add_note(&mut trace.header, note)),
        None => replay.trace,
    };
    (Source::in_memory(replayed), replay.source, replay.outcome.numbered_from(trace.start.events))
}

fn in_file(
    (source, windows): (&Source<'_>, &Windows),
    start: &StreamStart,
    (plan, change): (&Plan<'_>, Option<&Change>),
    note: Option<&str>,
) -> Result<(Source<'static>, ReplayOutcome)> {
    let (mut stream, facts, state) = Stream::new(start, plan);
    let mut header = windows.base().header.clone();
    add_note(&mut header, note);
    let mut writer = SnapWriter::new(scratch()?, &header)?;
    writer.write_device(&facts)?;
    windows.write_tables(&mut writer)?;
    writer.write_starting_state(&state)?;
    let mut failed = None;
    let mut write = |events: &mut Vec<Event>, least: usize| {
        if events.len() >= least.max(1) {
            failed = writer.write_events(events).err();
            events.clear();
        }
        if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    for range in source.passes() {
        let changes = match change {
            Some(change) => BlockChanges::of_events(&source.window(range.clone())?.trace, change),
            None => Vec::new(),
        };
        let mut changes = changes.into_iter().peekable();
        let mut is_over = false;
        let mut take = |first: u64, run: &[Event]| {
            for (number, event) in (first..).zip(run) {
                let (_, change) = changes.next_if(|(of, _)| *of == number).unwrap_or_default();
                let taken = stream.take(number, event, change);
                let flow = if taken.is_break() { taken } else { write(stream.events(), CHUNK) };
                is_over = flow.is_break();
                flow?;
            }
            ControlFlow::Continue(())
        };
        windows.read(range, &mut take)?;
        if is_over {
            break;
        }
    }
    stream.end();
    let _ = write(stream.events(), 0);
    if let Some(why) = failed {
        return Err(why);
    }
    let written = writer.finish(&EndFacts { trust: windows.base().trust.clone(), problems: Vec::new() })?;
    let replayed = Windows::open(readable(written), &mut |_| ControlFlow::Continue(()))?;
    Ok((Source::in_windows(replayed)?, stream.finish()))
}

fn add_note(header: &mut Header, note: Option<&str>) {
    if let Some(note) = note {
        header.facts.insert(0, ("replay".to_owned(), note.to_owned()));
    }
}

/// The file is deleted when it is closed.
#[cfg(not(target_family = "wasm"))]
fn scratch() -> Result<std::fs::File> {
    let unwritable =
        |source| highwater_snapshots::Error::Io { doing: "write a replay to", source, path: std::env::temp_dir() };
    tempfile::tempfile().map_err(unwritable)
}

/// Browsers have no files.
#[cfg(target_family = "wasm")]
fn scratch() -> Result<Vec<u8>> {
    Ok(Vec::new())
}

#[cfg(not(target_family = "wasm"))]
fn readable(written: std::fs::File) -> Arc<dyn ByteSource> {
    Arc::new(written)
}

#[cfg(target_family = "wasm")]
fn readable(written: Vec<u8>) -> Arc<dyn ByteSource> {
    let written: Arc<[u8]> = written.into();
    Arc::new(written)
}
