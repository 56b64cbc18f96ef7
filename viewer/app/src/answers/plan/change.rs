//! Changes to a training step that lower its memory use, and their costs.

use std::str::FromStr;

use serde::Serialize;

/// The cost class of a change. Plans of different classes are never compared by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The change costs neither time nor precision.
    Free,
    /// The same numbers, up to rounding, at the same speed or faster.
    SameSpeed,
    /// The same numbers, up to rounding, more slowly.
    Slower,
    /// The results differ, because they are computed with less precision.
    LessPrecise,
    /// The training itself differs, because fewer weights are trained.
    OtherTraining,
}

impl Class {
    /// Describes the class for users.
    pub fn about(self) -> &'static str {
        match self {
            Self::Free => "same numbers, free",
            Self::SameSpeed => "same numbers, no slower",
            Self::Slower => "same numbers, slower",
            Self::LessPrecise => "less precise",
            Self::OtherTraining => "another training",
        }
    }
}

/// A change of the training step, apart from recomputation and allocator settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// The optimizer updates each parameter in one pass, without temporaries for all of them.
    Fused,
    /// Optimizer state in 8 bits.
    EightBit,
    /// Each parameter is updated in backward, and its gradient is freed.
    InBackward,
    /// The batch is split, and gradients are accumulated.
    MicroBatches(usize),
    /// Parameters and activations in bf16.
    Bf16,
    /// Adapters of this rank are trained instead of the weights.
    Lora(usize),
    /// The first blocks are frozen.
    Freeze(usize),
}

impl Change {
    /// Returns the cost class of the change.
    pub fn class(self) -> Class {
        match self {
            Self::Fused | Self::InBackward => Class::SameSpeed,
            Self::MicroBatches(_) => Class::Slower,
            Self::EightBit | Self::Bf16 => Class::LessPrecise,
            Self::Lora(_) | Self::Freeze(_) => Class::OtherTraining,
        }
    }

    /// Returns the permission that the change needs; `None` if none.
    pub fn allowance(self) -> Option<Allowance> {
        match self {
            Self::EightBit => Some(Allowance::EightBit),
            Self::Bf16 => Some(Allowance::Bf16),
            Self::Lora(_) => Some(Allowance::Lora),
            Self::Freeze(_) => Some(Allowance::Freeze),
            Self::Fused | Self::InBackward | Self::MicroBatches(_) => None,
        }
    }

    /// Returns the change as a noun phrase.
    pub fn name(self) -> String {
        match self {
            Self::Fused => "fused optimizer".to_owned(),
            Self::EightBit => "8-bit optimizer state".to_owned(),
            Self::InBackward => "optimizer step in backward".to_owned(),
            Self::MicroBatches(count) => format!("{count} micro-batches"),
            Self::Bf16 => "bf16 parameters and activations".to_owned(),
            Self::Lora(rank) => format!("LoRA adapters of rank {rank}"),
            Self::Freeze(1) => "first block frozen".to_owned(),
            Self::Freeze(count) => format!("first {count} blocks frozen"),
        }
    }

    /// Returns the requirement or restriction that the change imposes on the program; `None` if it imposes none.
    pub fn assumption(self) -> Option<&'static str> {
        match self {
            Self::InBackward => Some(
                "an optimizer step in backward allows neither clipping the norm of all gradients, nor a loss scaler, nor \
                 gradient accumulation",
            ),
            Self::MicroBatches(_) => {
                Some("the loss is a mean or sum over the batch, and no layer computes statistics over the batch")
            }
            _ => None,
        }
    }
}

highwater_snapshots::vocabulary!(
    /// A kind of change that is made only with permission.
    Allowance {
        /// Keep the optimizer's state in 8 bits.
        EightBit = "8bit",
        /// Store parameters and activations in bf16.
        Bf16 = "bf16",
        /// Train LoRA adapters instead of the weights.
        Lora = "lora",
        /// Freeze the first blocks of the model.
        Freeze = "freeze",
    }
);

impl FromStr for Allowance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let failure = || format!("'{text}' cannot be allowed: expected 8bit, bf16, lora or freeze");
        Self::from_name(text).ok_or_else(failure)
    }
}

highwater_snapshots::vocabulary!(
    /// A kind of change that the program cannot make.
    Forbidden {
        /// Update each parameter in one pass, by a fused optimizer.
        Fused = "fused",
        /// Take optimizer steps during backward, which is incompatible with clipping the norm of all gradients.
        InBackward = "in-backward",
        /// Split the batch into micro-batches whose gradients are accumulated.
        MicroBatches = "micro-batches",
        /// Recompute modules in backward.
        Recompute = "recompute",
        /// Change the allocator's settings.
        Settings = "settings",
    }
);

impl FromStr for Forbidden {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::from_name(text).ok_or_else(|| {
            format!("'{text}' cannot be forbidden: expected fused, in-backward, micro-batches, recompute or settings")
        })
    }
}

/// A set of changes to a training step. The default is to change nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Changes other than recomputation and allocator settings.
    pub changes: Vec<Change>,
    /// The paths of the modules to recompute; `None` for those that the program already recomputes.
    pub recomputed: Option<Vec<String>>,
    /// Allocator settings to add to the recorded ones; `None` to add none.
    pub settings: Option<String>,
}

impl Setup {
    /// Returns the number of changes, counting each recomputed module as one.
    pub fn size(&self) -> usize {
        self.changes.len() + self.recomputed.as_ref().map_or(0, Vec::len) + usize::from(self.settings.is_some())
    }
}
