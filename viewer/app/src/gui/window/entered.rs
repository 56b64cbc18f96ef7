//! The outcome of a field that is shown over everything else.

/// The user's input in this frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Entered<T> {
    /// It stays open.
    None,
    /// It was closed.
    Cancelled,
    /// This was entered.
    Value(T),
}
