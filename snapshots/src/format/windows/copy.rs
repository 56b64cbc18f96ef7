//! Writes a recording that is read in parts as a single file.

use std::io::Write;
use std::ops::ControlFlow;

use super::{Watch, Windows};
use crate::error::{Error, Problem, Result};
use crate::event::Event;
use crate::format::reader::Progress;
use crate::format::section::CHUNK_EVENTS;
use crate::format::tables_codec::EndFacts;
use crate::format::whole::write_tables;
use crate::format::writer::SnapWriter;

impl Windows {
    /// Writes the recording as one finished file, with only a few sections in memory at a time. The files of a rotation
    /// are merged, and missing summaries are added. Returns `out`.
    ///
    /// # Errors
    /// Fails if the recording cannot be read or `out` cannot be written. Returns [`Error::Cancelled`] if `watch`
    /// breaks.
    pub fn copy<W: Write + Send>(&self, out: W, watch: Watch<'_>) -> Result<W> {
        let mut writer = SnapWriter::new(out, &self.base.header)?;
        for facts in &self.base.devices {
            writer.write_device(facts)?;
        }
        self.write_tables(&mut writer)?;
        for state in &self.starting {
            writer.write_starting_state(state)?;
        }
        let (count, length) = (self.files.count, self.files.length());
        let mut failed = None;
        let mut take = |first: u64, run: &[Event]| {
            for chunk in run.chunks(CHUNK_EVENTS) {
                if let Err(why) = writer.write_events(chunk) {
                    failed = Some(why);
                    return ControlFlow::Break(());
                }
            }
            let events = first + run.len() as u64;
            let bytes_read = (u128::from(events) * u128::from(length) / u128::from(count.max(1))) as u64;
            let now = Progress { bytes_read, bytes: length, events, events_in_all: Some(count), levels: None };
            let flow = watch(now);
            if flow.is_break() {
                failed = Some(Error::Cancelled);
            }
            flow
        };
        self.files.read(0..count, &mut take)?;
        if let Some(why) = failed {
            return Err(why);
        }
        writer.append_attributes(&self.shape_attributes())?;
        writer.append_sources(&self.base.sources)?;
        let problems = self.base.problems.iter().filter(|problem| !problem.is_index_only);
        let problems = problems.map(|problem| Problem::new(problem.to_string())).collect();
        writer.finish(&EndFacts { trust: self.base.trust.clone(), problems })
    }

    /// Writes the tables of the recording, to which its events refer.
    ///
    /// # Errors
    /// Fails if the recording cannot be read, or the output cannot be written.
    pub fn write_tables<W: Write>(&self, writer: &mut SnapWriter<W>) -> Result<()> {
        write_tables(writer, &self.base.tables)?;
        self.ops.each_section(&self.files, |ops| writer.append_ops(&ops))
    }
}
