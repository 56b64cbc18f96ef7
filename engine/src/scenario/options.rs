//! Options: how a scenario is run.

use std::fmt;
use std::str::FromStr;

use super::error::Error;

/// How a scenario is run. What is `None` is as the scenario has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where.
    pub device: DeviceChoice,
    /// How many training steps; with none, the setup alone is recorded.
    pub steps: u32,
    /// Examples in a batch, at least one.
    pub batch: Option<usize>,
    /// Tokens in a sequence, at least one.
    pub seq: Option<usize>,
    /// What changes the parameters.
    pub optimizer: Option<OptimizerKind>,
    /// Whether the optimizer goes through all parameters together, as PyTorch's `foreach`.
    pub foreach: Option<bool>,
    /// Whether each parameter is changed as soon as its gradient is complete; there is no optimizer phase then.
    pub optimizer_in_backward: bool,
    /// Bytes that the device has, up to 64 PiB; on the cpu, at most what the host has.
    pub capacity: Option<u64>,
    /// Settings of the caching allocator, in PyTorch's grammar.
    pub alloc_conf: Option<String>,
    /// Where random numbers begin.
    pub seed: u64,
}

impl Default for Options {
    /// Three steps on the accounting device, as the scenario has them.
    fn default() -> Self {
        Self {
            device: DeviceChoice::Meta,
            steps: 3,
            batch: None,
            seq: None,
            optimizer: None,
            foreach: None,
            optimizer_in_backward: false,
            capacity: None,
            alloc_conf: None,
            seed: 0,
        }
    }
}

/// Where a scenario runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// On the accounting device: every byte is counted, nothing is computed, nothing is needed.
    #[default]
    Meta,
    /// On the host.
    Cpu,
    /// On the GPU of this number.
    Cuda(u16),
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Meta => f.write_str("meta"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// An update rule, with PyTorch's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptimizerKind {
    /// Stochastic gradient descent with a momentum of 0.9.
    Sgd,
    /// Adam.
    Adam,
    /// Adam with decoupled weight decay.
    AdamW,
}

impl OptimizerKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Sgd, Self::Adam, Self::AdamW];

    /// The one spelling, on the command line and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sgd => "sgd",
            Self::Adam => "adam",
            Self::AdamW => "adamw",
        }
    }
}

impl fmt::Display for OptimizerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for OptimizerKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| Error::UnknownOptimizer { name: name.to_owned() })
    }
}
