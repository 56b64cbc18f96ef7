//! Identifies shared values without keeping them in memory, for the keys of background queries.

use std::fmt;
use std::sync::{Arc, Weak};

/// The identity of a shared value, such as a recording. Values with equal contents have different identities.
pub(crate) struct Identity<T>(Weak<T>);

impl<T> Identity<T> {
    pub(crate) fn of(value: &Arc<T>) -> Self {
        Self(Arc::downgrade(value))
    }

    /// The value, unless it was dropped.
    pub(crate) fn get(&self) -> Option<Arc<T>> {
        self.0.upgrade()
    }

    pub(crate) fn is(&self, value: &Arc<T>) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(value))
    }
}

impl<T> Clone for Identity<T> {
    fn clone(&self) -> Self {
        Self(Weak::clone(&self.0))
    }
}

impl<T> Default for Identity<T> {
    /// The identity of a value that does not exist.
    fn default() -> Self {
        Self(Weak::new())
    }
}

impl<T> PartialEq for Identity<T> {
    fn eq(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.0, &other.0)
    }
}

impl<T> fmt::Debug for Identity<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({:p})", self.0.as_ptr())
    }
}
