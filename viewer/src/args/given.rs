//! The files and given options that a suggested command repeats, so that it is about the same blocks and moments.

use std::path::{Path, PathBuf};

use highwater_analysis::Metric;

use super::values::{Categories, Where};
use super::{BlockChoice, CategoryChoice};

/// Files, and options with their values, in the order in which they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The files.
    pub files: Vec<PathBuf>,
    /// The options without their dashes, and their values.
    pub options: Vec<(&'static str, String)>,
}

impl Given {
    /// A file, without options.
    pub fn of(file: &Path) -> Self {
        Self { files: vec![file.to_owned()], options: Vec::new() }
    }

    /// Returns the same options for other files.
    pub fn about(self, files: &[&Path]) -> Self {
        Self { files: files.iter().map(|file| (*file).to_owned()).collect(), ..self }
    }

    /// Returns these, with `--device` added if `device` is given and it is missing.
    pub fn on_device(self, device: Option<u16>) -> Self {
        if self.options.iter().any(|(name, _)| *name == "device") { self } else { self.with("device", device) }
    }

    /// Returns these without the option `name`.
    pub fn without(mut self, name: &str) -> Self {
        self.options.retain(|(known, _)| *known != name);
        self
    }

    pub(crate) fn with(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.options.extend(value.map(|value| (name, value.to_string())));
        self
    }

    pub(crate) fn metric(self, metric: Metric) -> Self {
        self.with("metric", (metric != Metric::Requested).then_some(metric.name()))
    }

    pub(crate) fn filters(mut self, name: &'static str, filters: &[Where]) -> Self {
        self.options.extend(filters.iter().map(|filter| (name, filter.text.clone())));
        self
    }

    pub(crate) fn blocks(self, blocks: &BlockChoice) -> Self {
        self.with("where", blocks.filter.stated()).categories(&blocks.categories)
    }

    pub(crate) fn categories(self, choice: &CategoryChoice) -> Self {
        let given = self.with("categories", choice.categories.as_ref().map(Categories::to_string));
        choice.skip.iter().fold(given, |given, pattern| given.with("skip", Some(pattern)))
    }
}
