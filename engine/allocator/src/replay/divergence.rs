//! The first difference between a replay and its recording.

use std::fmt;

use highwater_recorder::snapshots::units::format_bytes;

use super::driver::{Call, Misfit};

/// The first event at which a replay differs from the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The index of the recorded event.
    pub event: u64,
    /// The kind of difference.
    pub difference: Difference,
}

/// A difference between recording and replay, in bytes or addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The replay reserves memory, whereas the recording reserves a different amount, releases memory, or does neither.
    UnexpectedReservation {
        /// Bytes reserved by the replay.
        bytes: u64,
        /// Bytes reserved by the recording, if any.
        recorded: Option<u64>,
    },
    /// The recording reserves memory that the replay does not need.
    NotObtained {
        /// Bytes reserved by the recording.
        recorded: u64,
    },
    /// The replay releases memory that the recording does not release.
    UnexpectedRelease {
        /// Bytes released by the replay.
        bytes: u64,
    },
    /// The recording releases memory that the replay does not release.
    Kept {
        /// Bytes released by the recording.
        recorded: u64,
    },
    /// A block is at another address.
    Placed {
        /// The address in the recording.
        recorded: u64,
        /// The address in the replay.
        replayed: u64,
    },
    /// A block has another size after rounding.
    Rounded {
        /// The bytes in the recording.
        recorded: u64,
        /// The bytes in the replay.
        replayed: u64,
    },
    /// A request fails in the replay but succeeded in the recording, or vice versa.
    Outcome {
        /// Requested bytes.
        requested: u64,
        /// Whether it fails in the replay.
        fails: bool,
    },
}

impl From<Misfit> for Difference {
    fn from(misfit: Misfit) -> Self {
        match misfit {
            Misfit::UnexpectedReservation { bytes, recorded } => Self::UnexpectedReservation {
                bytes,
                recorded: recorded.and_then(|call| match call {
                    Call::Reserve { bytes, .. } | Call::Map { bytes, .. } => Some(bytes),
                    _ => None,
                }),
            },
            Misfit::UnexpectedRelease { bytes } => Self::UnexpectedRelease { bytes },
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
            Self::UnexpectedReservation { bytes: replayed, recorded: Some(recorded) } => {
                write!(f, "the replay reserves {} from the device, the recording {}", bytes(replayed), bytes(recorded))
            }
            Self::UnexpectedReservation { bytes: replayed, recorded: None } => {
                write!(f, "the replay reserves {} from the device, the recording nothing", bytes(replayed))
            }
            Self::NotObtained { recorded } => {
                write!(f, "the recording reserves {} from the device, the replay nothing", bytes(recorded))
            }
            Self::UnexpectedRelease { bytes: replayed } => {
                write!(f, "the replay releases {} to the device, the recording keeps them", bytes(replayed))
            }
            Self::Kept { recorded } => {
                write!(f, "the recording releases {} to the device, the replay keeps them", bytes(recorded))
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
                write!(f, "a request for {} fails in the replay, but succeeded in the recording", bytes(requested))
            }
            Self::Outcome { requested, fails: false } => {
                write!(f, "a request for {} failed in the recording, but succeeds in the replay", bytes(requested))
            }
        }
    }
}
