//! Verify: `highwater verify`, whether a recording is sound.

use std::io;
use std::path::Path;

use highwater_snapshots::Trace;
use highwater_snapshots::analysis::verify::verify;
use serde::Serialize;

use super::caveats::TrustFigures;
use super::moment::count_of;
use super::outcome::Status;
use super::page::Page;
use super::shell::next_command;

/// The answer, for people and programs.
#[derive(Debug, Serialize)]
pub struct VerifyReport {
    ok: bool,
    problems: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trust: Option<TrustFigures>,
    #[serde(skip)]
    trust_sentences: Vec<String>,
}

impl VerifyReport {
    /// Checks `trace`, and counts what was found wrong while reading.
    pub fn of(trace: &Trace) -> Self {
        let problems: Vec<String> = trace.problems.iter().chain(&verify(trace)).map(ToString::to_string).collect();
        Self {
            ok: problems.is_empty(),
            problems,
            events: Some(trace.events.len()),
            blocks: Some(trace.blocks.len()),
            trust: Some(TrustFigures::of(trace)),
            trust_sentences: trace.trust_sentences(),
        }
    }

    /// The answer for a file of which nothing could be read.
    pub fn of_unreadable(error: &highwater_snapshots::Error) -> Self {
        let problems = vec![error.to_string()];
        Self { ok: false, problems, events: None, blocks: None, trust: None, trust_sentences: Vec::new() }
    }

    /// How the command ends.
    pub fn status(&self) -> Status {
        if self.ok { Status::Fine } else { Status::Unsound }
    }

    /// The answer in words.
    pub fn print(&self, file: &Path, page: &mut Page<'_>) -> io::Result<()> {
        let count = |count: Option<usize>, noun: &str| count_of(count.unwrap_or(0) as u64, noun);
        let size = format!("{}, {}", count(self.events, "event"), count(self.blocks, "block"));
        if self.ok {
            page.headline(&format!("Sound: {size}; every checksum fits, and nothing contradicts anything."))?;
        } else {
            let problems = count_of(self.problems.len() as u64, "problem");
            page.headline(&format!("Not sound: {problems}; what could be read: {size}."))?;
            page.gap()?;
        }
        for problem in &self.problems {
            page.warning(&format!("  {problem}"))?;
        }
        if !self.trust_sentences.is_empty() {
            page.gap()?;
        }
        for sentence in &self.trust_sentences {
            page.line(&format!("Trust: {sentence}."))?;
        }
        page.gap()?;
        page.hint(&next_command(&["info"], file, &[], "for what is in it"))
    }
}
