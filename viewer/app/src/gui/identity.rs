//! Identifies shared values without keeping them in memory, for the keys of questions about them.

use std::fmt;
use std::sync::{Arc, Weak};

/// A shared value, such as a recording. Equal if it is the same one; others may have equal contents.
pub struct Identity<T>(Weak<T>);

impl<T> Identity<T> {
    /// The identity of `value`, whose memory is freed whoever keeps this.
    pub fn of(value: &Arc<T>) -> Self {
        Self(Arc::downgrade(value))
    }

    /// The value, unless it is gone.
    pub fn get(&self) -> Option<Arc<T>> {
        self.0.upgrade()
    }

    /// Whether it is the identity of `value`.
    pub fn is(&self, value: &Arc<T>) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(value))
    }
}

impl<T> Clone for Identity<T> {
    fn clone(&self) -> Self {
        Self(Weak::clone(&self.0))
    }
}

impl<T> Default for Identity<T> {
    /// The identity of no value.
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
