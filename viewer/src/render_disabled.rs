//! Replaces `render.rs` in a build without the app.

use crate::args::RenderArguments;
use crate::cli::output::outcome::{Failure, Status};
use crate::cli::output::page::Page;

/// Fails: this build has no app to draw with.
pub fn run(_arguments: &RenderArguments, _page: &mut Page<'_>) -> Result<Status, Failure> {
    let text = "this build draws no pictures: build highwater with its default feature 'gui'";
    Err(Failure::Usage(text.to_owned()))
}
