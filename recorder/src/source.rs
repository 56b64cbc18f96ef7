//! Source: an allocator that can say what it holds at this moment, so that a recording can begin in the middle.

use highwater_snapshots::StartingState;
use highwater_snapshots::trace::DeviceFacts;

/// An allocator of one device, registered by [`register`](crate::api::register).
pub trait Source: Send + Sync {
    /// Name, capacity, driver and settings.
    fn facts(&self) -> DeviceFacts;

    /// Locks the allocator, gives its segments and active blocks to `read`, and unlocks it when `read` returns: no
    /// event of this device may be reported meanwhile, so that the state and the events after it fit exactly.
    ///
    /// Scopes and ops in the state are those of [`context`](crate::context) at the time of the allocation. Stacks are
    /// not asked for: set [`StackId::NONE`](crate::StackId::NONE).
    fn freeze(&self, read: &mut dyn FnMut(StartingState));

    /// Says by [`device_used`](crate::api::device_used) what the driver says is in use, where others use the device as well.
    /// Asked when a recording begins and at each boundary of steps and phases, not under any lock. What the allocator
    /// obtains and gives back in between, it samples itself.
    fn sample(&self) {}
}
