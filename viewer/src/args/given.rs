//! The given options that a suggested command repeats, so that it is about the same blocks and moments.

use highwater_analysis::Metric;

use super::CategoryChoice;
use super::values::{Categories, Where};

/// Options with their values, in the order in which they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given(Vec<(&'static str, String)>);

impl Given {
    /// The options without their dashes, and their values.
    pub fn options(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// Returns these, with `--device` added if `device` is given and it is missing.
    pub fn on_device(self, device: Option<u16>) -> Self {
        if self.0.iter().any(|(name, _)| *name == "device") { self } else { self.with("device", device) }
    }

    /// Returns these without the option `name`.
    pub fn without(mut self, name: &str) -> Self {
        self.0.retain(|(known, _)| *known != name);
        self
    }

    pub(crate) fn with(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.0.extend(value.map(|value| (name, value.to_string())));
        self
    }

    pub(crate) fn metric(self, metric: Metric) -> Self {
        self.with("metric", (metric != Metric::Requested).then_some(metric.name()))
    }

    pub(crate) fn filters(mut self, name: &'static str, filters: &[Where]) -> Self {
        self.0.extend(filters.iter().map(|filter| (name, filter.text.clone())));
        self
    }

    pub(crate) fn blocks(self, filter: &Where, categories: &CategoryChoice) -> Self {
        let given = self.with("where", filter.stated());
        let given = given.with("categories", categories.categories.as_ref().map(Categories::to_string));
        categories.skip.iter().fold(given, |given, pattern| given.with("skip", Some(pattern)))
    }
}
