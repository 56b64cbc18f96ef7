//! Replaces `drawing.rs` in a build without the app.

use std::path::Path;
use std::sync::Arc;

use highwater_app::session::Recording;
use highwater_snapshots::Trace;

use crate::commands::render::RenderArguments;
use crate::output::{Failure, Page, Status};

pub(crate) fn run(arguments: &RenderArguments, _page: &mut Page<'_>) -> Result<Status, Failure> {
    match Drawing::of(arguments)? {}
}

pub(crate) fn recording(file: &Path, trace: Trace) -> Arc<Recording> {
    Arc::new(Recording::new(file.display().to_string(), Some(file.to_owned()), trace))
}

/// A picture, which cannot exist in this build.
#[derive(Debug)]
pub(crate) enum Drawing {}

impl Drawing {
    /// Returns an error.
    ///
    /// # Errors
    /// Always fails, because this build has no app to draw with.
    pub(crate) fn of(_arguments: &RenderArguments) -> Result<Self, Failure> {
        let text = "this build draws no pictures: build highwater with its default feature 'gui'";
        Err(Failure::Usage(text.to_owned()))
    }

    /// Never called.
    ///
    /// # Errors
    /// Never fails.
    pub(crate) fn draw(&self, _recordings: &[Arc<Recording>]) -> Result<(), Failure> {
        match *self {}
    }
}
