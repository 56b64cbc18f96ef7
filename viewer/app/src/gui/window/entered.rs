//! The outcome of a field that is shown over everything else.

/// The user's input in this frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Entered<T> {
    /// Nothing was entered yet: the field stays open.
    None,
    /// The user has closed the field.
    Cancelled,
    /// The user has entered this value.
    Value(T),
}
