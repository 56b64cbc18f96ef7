//! The part of a run that an explanation's figures cover.

/// The part of a run for which peaks are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The whole recording, which does not end with a failed request.
    Whole,
    /// The events up to the failed request at the end of the recording. All figures refer to moments before it.
    UpToFailure,
    /// All recorded events, which are only part of the run, because a figure refers to a moment after the failed
    /// request at the end of the recording.
    Recorded,
}

impl Reach {
    /// Returns the part of the run that figures at the events `moments` cover. `failed` is the failed request at the
    /// end of the recording, if any. Events are indices; `None` is the state before the first event.
    pub fn of(failed: Option<u64>, moments: impl IntoIterator<Item = Option<u64>>) -> Self {
        let Some(failed) = failed else { return Self::Whole };
        let is_later = moments.into_iter().flatten().any(|event| event > failed);
        if is_later { Self::Recorded } else { Self::UpToFailure }
    }

    /// A phrase for the peak over this part; `of` names the total, such as ` of reserved memory`.
    pub fn the_peak(self, of: &str) -> String {
        match self {
            Self::Whole => format!("the peak{of}"),
            Self::UpToFailure => format!("the peak{of} up to the failed request"),
            Self::Recorded => format!("the recorded peak{of}"),
        }
    }
}
