//! Reports the memory that a primitive reads and writes, for recordings with uses.

use highwater_recorder::api;

use super::operand::Argument;
use crate::storage::Storage;

/// Costs one relaxed load.
#[inline]
pub(super) fn are_recorded() -> bool {
    api::records_uses()
}

/// Reports each storage that `arguments` refer to once, in the order of the arguments.
pub(super) fn report(arguments: &[&dyn Argument]) {
    let mut seen: Vec<*const Storage> = Vec::new();
    for argument in arguments {
        argument.views(&mut |view| {
            let place = std::ptr::from_ref(view.storage);
            if !seen.contains(&place) {
                seen.push(place);
                view.storage.report_use();
            }
        });
    }
}
