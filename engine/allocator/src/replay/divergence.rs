//! Divergence: where a replay first differs from the recording, and in what.

use std::fmt;

use highwater_recorder::snapshots::EventId;
use highwater_recorder::snapshots::units::format_bytes;

use super::driver::{Call, Misfit};

/// The first event at which a replay differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The recorded event.
    pub event: EventId,
    /// In what.
    pub difference: Difference,
}

/// A difference between recording and replay, in bytes and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The replay obtains memory; the recording obtains other, gives some back, or does nothing of the kind.
    Obtained {
        /// By the replay.
        bytes: u64,
        /// By the recording, if it obtains any.
        recorded: Option<u64>,
    },
    /// The recording obtains memory that the replay does not need.
    NotObtained {
        /// By the recording.
        recorded: u64,
    },
    /// The replay gives memory back that the recording keeps.
    GaveBack {
        /// By the replay.
        bytes: u64,
    },
    /// The recording gives memory back that the replay keeps.
    Kept {
        /// By the recording.
        recorded: u64,
    },
    /// A block lies at another address.
    Placed {
        /// In the recording.
        recorded: u64,
        /// In the replay.
        replayed: u64,
    },
    /// A block has another size after rounding.
    Rounded {
        /// In the recording.
        recorded: u64,
        /// In the replay.
        replayed: u64,
    },
    /// A request fails that the recording has as met, or the other way round.
    Outcome {
        /// Bytes asked for.
        requested: u64,
        /// Whether it fails in the replay.
        fails: bool,
    },
}

impl From<Misfit> for Difference {
    fn from(misfit: Misfit) -> Self {
        match misfit {
            Misfit::Obtained { bytes, recorded } => Self::Obtained {
                bytes,
                recorded: recorded.and_then(|call| match call {
                    Call::Reserve { bytes, .. } | Call::Map { bytes, .. } => Some(bytes),
                    _ => None,
                }),
            },
            Misfit::GaveBack { bytes } => Self::GaveBack { bytes },
            Misfit::LeftOut(Call::Release { bytes, .. } | Call::Unmap { bytes, .. }) => Self::Kept { recorded: bytes },
            Misfit::LeftOut(Call::Reserve { bytes, .. } | Call::Map { bytes, .. }) => {
                Self::NotObtained { recorded: bytes }
            }
            Misfit::LeftOut(Call::Completed { .. }) => Self::NotObtained { recorded: 0 },
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = format_bytes;
        match *self {
            Self::Obtained { bytes: replayed, recorded: Some(recorded) } => {
                write!(f, "the replay reserves {} from the device, the recording {}", bytes(replayed), bytes(recorded))
            }
            Self::Obtained { bytes: replayed, recorded: None } => {
                write!(f, "the replay reserves {} from the device, the recording nothing", bytes(replayed))
            }
            Self::NotObtained { recorded } => {
                write!(f, "the recording reserves {} from the device, the replay nothing", bytes(recorded))
            }
            Self::GaveBack { bytes: replayed } => {
                write!(f, "the replay gives {} back to the device, the recording keeps them", bytes(replayed))
            }
            Self::Kept { recorded } => {
                write!(f, "the recording gives {} back to the device, the replay keeps them", bytes(recorded))
            }
            Self::Placed { recorded, replayed } => {
                write!(f, "a block is at {recorded:#x} in the recording, at {replayed:#x} in the replay")
            }
            Self::Rounded { recorded, replayed } => write!(
                f,
                "a block has {} after rounding in the recording, {} in the replay",
                bytes(recorded),
                bytes(replayed)
            ),
            Self::Outcome { requested, fails: true } => {
                write!(f, "a request for {} fails in the replay, and did not when it was recorded", bytes(requested))
            }
            Self::Outcome { requested, fails: false } => {
                write!(f, "a request for {} failed when it was recorded, and does not in the replay", bytes(requested))
            }
        }
    }
}
