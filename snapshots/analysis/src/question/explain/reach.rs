//! The part of a run that an explanation's figures cover.

/// The part of a run for which peaks are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The whole recording, which does not end with a failed request.
    Whole,
    /// The events up to the failed request with which the recording ends; all figures refer to moments before it.
    UpToFailure,
    /// All recorded events, which are only a part of the run, because some figure refers to a moment after the failed
    /// request with which the recording ends.
    Recorded,
}

impl Reach {
    /// Returns the part covered by figures at the events `moments`, in a recording that ends with the failed request
    /// `failed`, if any. Events are given by index; `None` is the state before the first event.
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
