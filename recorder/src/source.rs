//! The trait of allocators that can report their current state, so that a recording can begin at any time.

use highwater_snapshots::StartingState;
use highwater_snapshots::trace::DeviceFacts;

/// An allocator of one device, registered by [`register`](crate::api::register).
pub trait Source: Send + Sync {
    /// Returns name, capacity, driver and settings of the device.
    fn facts(&self) -> DeviceFacts;

    /// Locks the allocator, passes its segments and active blocks to `read`, and unlocks it when `read` returns. No
    /// event of this device may be reported meanwhile, so that later events match the state exactly.
    ///
    /// Scopes and ops in the state are those of [`context`](crate::context) at the time of the allocation. Stacks are
    /// not needed, so set [`StackId::NONE`](crate::StackId::NONE).
    fn freeze(&self, read: &mut dyn FnMut(StartingState));

    /// Reports the memory in use according to the driver with [`device_used`](crate::api::device_used), for devices
    /// that are shared with other processes. Called without any lock, with `is_due` when a recording begins, and at
    /// each step and phase boundary, where it may be skipped soon after another sample (see
    /// [`Throttle`](crate::Throttle)). In between, the allocator itself samples when it reserves and releases memory.
    fn sample(&self, is_due: bool) {
        let _ = is_due;
    }
}
