//! The tables of the views of a recording, as CSV.

use std::io;

use super::{OpenFile, scene_of};
use crate::gui::widgets::layout::{Bottom, Side};

/// Writes a table.
pub type WriteTable = Box<dyn FnOnce(&mut dyn io::Write) -> io::Result<()> + Send>;

impl OpenFile {
    /// The table of the view at the side as CSV.
    ///
    /// # Errors
    ///
    /// Fails with a message if the view has no table.
    pub(crate) fn side_csv(&mut self, side: Side) -> Result<String, String> {
        let now = self.moment();
        let Self { recording, selection, timeline, search, .. } = self;
        let context = scene_of(recording, selection, timeline, search, now);
        match side {
            Side::Moment => Ok(self.panel.csv(&context, selection.range())),
            Side::Block => Err("Block has no table to copy. Its stacks have Copy buttons.".to_owned()),
            Side::Statistics => self.statistics.csv().ok_or_else(|| unfinished("the statistics are")),
        }
    }

    /// Returns a closure that writes the table of the view below the timeline as CSV on any thread.
    ///
    /// # Errors
    ///
    /// Fails with a message if the table is still being computed.
    pub(crate) fn below_csv(&mut self, bottom: Bottom) -> Result<WriteTable, String> {
        let now = self.moment();
        let Self { recording, selection, timeline, search, .. } = self;
        let context = scene_of(recording, selection, timeline, search, now);
        match bottom {
            Bottom::Segments => whole(self.segments.csv(), "the segments are"),
            Bottom::Explain => whole(self.explain.csv(), "the explanation is"),
            Bottom::WhatIf => whole(self.whatif.csv(), "the prediction is"),
            Bottom::Plan => whole(self.plan.csv(), "the plan is"),
            Bottom::Events => {
                let export = self.events.export(&context).map_err(|why| why.to_string())?;
                Ok(Box::new(move |out| export.write_csv(out)))
            }
        }
    }
}

fn unfinished(subject: &str) -> String {
    format!("{subject} still being computed; try again in a moment")
}

/// Writes a table that is computed as a whole; `subject` is what it is about, if it is not ready.
fn whole(csv: Option<String>, subject: &str) -> Result<WriteTable, String> {
    let csv = csv.ok_or_else(|| unfinished(subject))?;
    Ok(Box::new(move |out| out.write_all(csv.as_bytes())))
}
