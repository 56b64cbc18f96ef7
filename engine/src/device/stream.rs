//! Streams, which are queues of a device's work, and the current stream of each thread.
//!
//! A stream runs its work in order. Two streams run concurrently, so memory may be shared between streams only with
//! synchronization. The rules are those of PyTorch:
//!
//! - Work goes to the thread's [current stream](Stream::enter), by default the device's default stream, and a new
//!   tensor's memory belongs to that stream.
//! - Before work on one stream reads the result of another, the stream must [wait](Stream::wait_for) for the other.
//! - A tensor that is used on another stream than its own, and dropped before that work is complete, must be
//!   [recorded](crate::Tensor::record_stream) for that stream. Otherwise its memory may be allocated again on its own
//!   stream while the other still uses it. The free of a recorded tensor waits for the other stream: recordings contain
//!   the request of the free (`free_requested`) and its completion when the stream reaches that point
//!   (`free_completed`).
//!
//! Backward runs each operation on the stream of its forward, and synchronizes streams when gradients pass between
//! them. Gradients of leaves are accumulated on the current stream of the caller.
//!
//! On devices whose work is complete when a call returns, streams are only ids, which keep recordings the same.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use highwater_recorder::StreamId;

use super::Device;
use crate::{Error, Result};

/// A queue of work on a device. Clones refer to the same stream.
#[derive(Clone, PartialEq, Eq)]
pub struct Stream {
    device: Device,
    id: StreamId,
}

thread_local! {
    /// The current streams of this thread, by the address of the device. Default streams are not listed.
    static ENTERED: RefCell<Vec<(usize, StreamId)>> = const { RefCell::new(Vec::new()) };
}

impl Device {
    /// Creates a stream in addition to the default one. It exists as long as the device.
    ///
    /// # Errors
    /// Fails if the device's driver reports an error, and for pinned host memory, which is read by streams of its
    /// device.
    pub fn new_stream(&self) -> Result<Stream> {
        let id = match self.gpu() {
            Some(gpu) => gpu.new_stream()?,
            None if self.is_pinned() => {
                let what = "pinned host memory has no streams; create one on the device that copies from it";
                return Err(Error::Setting { op: "new_stream", what: what.to_owned() });
            }
            None => self.0.streams.fetch_add(1, Ordering::Relaxed) + 1,
        };
        Ok(Stream { device: self.clone(), id: StreamId(id) })
    }

    /// Returns the device's default stream.
    pub fn default_stream(&self) -> Stream {
        Stream { device: self.clone(), id: StreamId::default() }
    }

    /// Returns the thread's current stream.
    pub fn current_stream(&self) -> Stream {
        Stream { device: self.clone(), id: self.stream() }
    }

    /// Returns the id of the thread's current stream, on which its operations run and its memory is allocated.
    #[inline]
    pub fn stream(&self) -> StreamId {
        let entered = ENTERED.try_with(|entered| {
            let entered = entered.borrow();
            if entered.is_empty() {
                return None;
            }
            entered.iter().find(|(device, _)| *device == self.number()).map(|(_, stream)| *stream)
        });
        // A terminating thread is in no stream.
        entered.ok().flatten().unwrap_or_default()
    }

    pub(crate) fn stream_of(&self, id: StreamId) -> Stream {
        Stream { device: self.clone(), id }
    }

    /// Makes stream `id` of this device the thread's current stream until the guard is dropped.
    pub(crate) fn enter_stream(&self, id: StreamId) -> StreamGuard {
        let former = self.stream();
        set(self.number(), id);
        StreamGuard { device: self.clone(), former, stays_on_its_thread: PhantomData }
    }
}

fn set(device: usize, stream: StreamId) {
    // A terminating thread is in no stream.
    let _ = ENTERED.try_with(|entered| {
        let mut entered = entered.borrow_mut();
        entered.retain(|(other, _)| *other != device);
        if stream != StreamId::default() {
            entered.push((device, stream));
        }
    });
}

impl Stream {
    /// Returns the stream's id, counted from 1 on its device. The default stream has id 0.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Returns the stream's device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Makes this the thread's current stream of the device until the guard is dropped. Other devices are not affected.
    pub fn enter(&self) -> StreamGuard {
        self.device.enter_stream(self.id)
    }

    /// Makes all work submitted to this stream from now on wait for the work submitted to `other` so far, possibly on
    /// another device. The call itself does not block, unless this stream is on the host and `other` is not.
    ///
    /// # Errors
    /// Fails if the device's driver reports an error.
    pub fn wait_for(&self, other: &Self) -> Result<()> {
        match (self.device.gpu(), other.device.gpu()) {
            (_, None) => Ok(()),
            (None, Some(_)) => other.synchronize(),
            (Some(_), Some(_)) if self == other => Ok(()),
            (Some(gpu), Some(awaited)) => Ok(gpu.follow(self.id.0, awaited, other.id.0)?),
        }
    }

    /// Waits until all work submitted to this stream is complete.
    ///
    /// # Errors
    /// Fails if an operation found an index out of range on the device, or if the device's driver reports an error.
    pub fn synchronize(&self) -> Result<()> {
        let Some(gpu) = self.device.gpu() else { return Ok(()) };
        gpu.synchronize(self.id.0)?;
        self.device.check_faults()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {} of {}", self.id.0, self.device)
    }
}

/// Restores the thread's previous stream of the device when dropped. Cannot be sent to another thread.
#[must_use = "dropping the guard immediately restores the previous stream"]
#[derive(Debug)]
pub struct StreamGuard {
    // Keeps the device's address from being reused while it is listed.
    device: Device,
    former: StreamId,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        set(self.device.number(), self.former);
    }
}
