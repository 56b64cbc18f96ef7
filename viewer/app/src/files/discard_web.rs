//! Drops large values on platforms without threads.

use std::sync::Weak;

/// Drops `thing`. A page cannot return memory to the browser.
pub(crate) fn discard<T, H>(thing: T, _owner: Weak<H>) {
    drop(thing);
}
