//! A copy of the events that a recording keeps in memory, to be converted into a trace or a file.

use std::fs::File;
use std::path::Path;

use highwater_snapshots::event::Event;
use highwater_snapshots::format::write_trace;
use highwater_snapshots::trace::{DeviceFacts, Header};
use highwater_snapshots::{StartingState, Trace, TraceBuilder};

use crate::error::{Error, Result};
use crate::export::Exporter;
use crate::file;
use crate::intake::{Intake, OpTable};

#[derive(Debug)]
pub(crate) struct HistoryCopy {
    header: Header,
    facts: Vec<DeviceFacts>,
    states: Vec<StartingState>,
    ops: OpTable,
    events: Vec<Event>,
    events_lost: u64,
    facts_at_end: Vec<(String, String)>,
    with_symbols: bool,
}

impl HistoryCopy {
    /// `lost` is the number of events that never reached `intake`. Returns `None` if it keeps nothing in memory.
    pub(crate) fn of(intake: &Intake, header: &Header, lost: u64, with_symbols: bool) -> Option<Self> {
        let history = intake.history.as_ref()?;
        let mut events = Vec::with_capacity(history.len());
        events.extend(history.events());
        Some(Self {
            header: header.clone(),
            facts: intake.facts.clone(),
            states: history.starting_states(),
            ops: intake.ops.clone(),
            events,
            events_lost: history.evicted() + lost,
            facts_at_end: intake.facts_at_end(),
            with_symbols,
        })
    }

    pub(crate) fn into_trace(self) -> Trace {
        let mut exporter = Exporter::new(self.ops.first);
        let mut builder = TraceBuilder::with_capacity(self.events.len());
        builder.set_header(self.header);
        builder.add_facts(self.facts_at_end);
        for facts in self.facts {
            builder.set_device(facts);
        }
        exporter.add_ops(&self.ops.ops);
        for state in &self.states {
            builder.set_starting_state(&exporter.starting_state(state));
        }
        for event in &self.events {
            builder.push(&exporter.event(event));
        }
        builder.trust().events_lost = self.events_lost;
        let (symbols, notes) = if self.with_symbols { exporter.resolve() } else { (Vec::new(), Vec::new()) };
        builder.add_facts(notes);
        *builder.tables() = exporter.into_tables(&symbols);
        builder.finish()
    }
}

/// Writes a complete trace to `file`, the claimed file at `path`.
pub(crate) fn write_file(file: &File, path: &Path, trace: &Trace) -> Result<()> {
    file::empty(file, path)?;
    let io = |source| Error::Write { source, path: path.to_owned() };
    match write_trace(std::io::BufWriter::new(file), trace) {
        Ok(out) => out.into_inner().map(drop).map_err(|why| io(why.into_error())),
        Err(highwater_snapshots::Error::Io { source, .. }) => Err(io(source)),
        Err(other) => Err(other.into()),
    }
}
