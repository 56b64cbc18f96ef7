//! The part of a run that the figures of an explanation cover.

/// The part of a run that peaks are known of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The whole recording, which does not end with a failed request.
    Whole,
    /// The events up to the failed request with which the recording ends: no figure is of a moment after it.
    UpToFailure,
    /// All recorded events, which are not all of the run, or some figure being of a moment after the failed request
    /// with which the recording ends.
    Recorded,
}

impl Reach {
    /// The reach of figures at the events `moments`, in a recording that ends with the failed request `failed`, if any;
    /// numbers of events in the recording, of none for the moment before the first.
    pub fn of(failed: Option<u64>, moments: impl IntoIterator<Item = Option<u64>>) -> Self {
        let Some(failed) = failed else { return Self::Whole };
        let is_later = moments.into_iter().flatten().any(|event| event > failed);
        if is_later { Self::Recorded } else { Self::UpToFailure }
    }

    /// A phrase for the peak over this part, of a total that `of` names: ` of reserved memory`.
    pub fn the_peak(self, of: &str) -> String {
        match self {
            Self::Whole => format!("the peak{of}"),
            Self::UpToFailure => format!("the peak{of} up to the failed request"),
            Self::Recorded => format!("the recorded peak{of}"),
        }
    }
}
