//! The given options that a suggested command repeats, so that it is about the same blocks and moments.

use super::values::{At, Categories, ComparedAt, Where};
use super::{
    CategoryChoice, CheckArguments, DiffArguments, EventsArguments, ExplainArguments, GrowthArguments, InfoArguments,
    OomArguments, PeakArguments, PhasesArguments, WhatIfArguments,
};
use highwater_analysis::Metric;
use highwater_snapshots::units::format_exact_bytes;

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

    fn with(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.0.extend(value.map(|value| (name, value.to_string())));
        self
    }

    fn metric(self, metric: Metric) -> Self {
        self.with("metric", (metric != Metric::Requested).then_some(metric.name()))
    }

    fn filters(mut self, name: &'static str, filters: &[Where]) -> Self {
        self.0.extend(filters.iter().map(|filter| (name, filter.text.clone())));
        self
    }

    fn blocks(self, filter: &Where, categories: &CategoryChoice) -> Self {
        let given = self.with("where", filter.stated());
        let given = given.with("categories", categories.categories.as_ref().map(Categories::to_string));
        categories.skip.iter().fold(given, |given, pattern| given.with("skip", Some(pattern)))
    }
}

impl InfoArguments {
    /// The options that another command may share.
    pub fn given(&self) -> Given {
        Given::default().with("device", self.device).blocks(&self.blocks.filter, &self.categories)
    }
}

impl PeakArguments {
    /// The options that another command may share.
    pub fn given(&self) -> Given {
        let given = Given::default().with("device", self.device.device).with("at", self.at.as_ref().map(At::to_string));
        given.metric(self.metric).blocks(&self.blocks.filter, &self.categories)
    }
}

impl PhasesArguments {
    /// The options that another command may share.
    pub fn given(&self) -> Given {
        let given = Given::default().with("device", self.device.device).metric(self.metric);
        given.blocks(&self.blocks.filter, &self.categories)
    }
}

impl ExplainArguments {
    /// The options that another command may share.
    pub fn given(&self) -> Given {
        let given = Given::default().with("device", self.device.device).metric(self.metric);
        given.blocks(&self.blocks.filter, &self.categories)
    }
}

impl GrowthArguments {
    /// The options that another command may share.
    pub fn given(&self) -> Given {
        let given = Given::default().with("from-step", self.from_step).with("to-step", self.to_step);
        let given = given.with("device", self.device.device).metric(self.metric);
        given.blocks(&self.blocks.filter, &self.categories)
    }
}

impl DiffArguments {
    /// The options that another command may share.
    pub fn given(&self) -> Given {
        let given = Given::default().with("at", self.at.as_ref().map(ComparedAt::to_string));
        let given = given.with("at-b", self.at_b.as_ref().map(ComparedAt::to_string)).with("device", self.device);
        let given = given.with("device-b", self.device_b).metric(self.metric);
        given.blocks(&self.blocks.filter, &self.categories)
    }
}

impl CheckArguments {
    /// The options that another command may share, where the budgets are of `metric`.
    pub fn given(&self, metric: Metric) -> Given {
        Given::default().with("device", self.device).metric(metric).blocks(&Where::default(), &self.categories)
    }
}

impl OomArguments {
    /// The options that another command may share.
    pub fn given(&self) -> Given {
        Given::default().with("device", self.device).blocks(&Where::default(), &self.categories)
    }
}

impl EventsArguments {
    /// The options that another command may share.
    pub fn given(&self) -> Given {
        Given::default().with("device", self.device).blocks(&self.blocks.filter, &self.categories)
    }
}

impl WhatIfArguments {
    /// The options that another command may share, the change among them.
    pub fn given(&self) -> Given {
        let given = Given::default().with("device", self.device.device).with("alloc-conf", self.alloc_conf.as_ref());
        let given = given.with("capacity", self.capacity.map(format_exact_bytes)).filters("without", &self.without);
        let mut given = given.filters("until-last-use", &self.until_last_use);
        given.0.extend(self.scale.iter().map(|scaled| ("scale", scaled.text.clone())));
        given.blocks(&Where::default(), &self.categories)
    }
}
