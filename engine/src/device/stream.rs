//! Streams: queues of a device's work, and the current stream of each thread.
//!
//! A stream does its work in order; two streams do theirs at the same time. So memory may pass from one to another only
//! when the other is told. Three rules, which are PyTorch's:
//!
//! - Work goes to the stream that the thread is [in](Stream::enter), which is the device's default one unless said
//!   otherwise, and a new tensor's memory belongs to that stream.
//! - Who reads on one stream what another computes lets it [wait](Stream::wait_for) first.
//! - Who uses a tensor on another stream than the one it was made on, and lets go of it before that work is done,
//!   [says so](crate::Tensor::record_stream). Otherwise its memory may be allocated again, to its own stream, while the
//!   other still uses it. Freeing then waits for the other stream: recordings have the request of the free
//!   (`free_requested`), and its completion when the stream gets so far (`free_completed`).
//!
//! Backward runs each operation on the stream on which it ran forward and lets streams wait for one another as
//! gradients pass between them; gradients of leaves are added up on the stream of whoever calls it.
//!
//! On devices whose work is done when a call returns, streams are only numbers, so that recordings are the same.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use highwater_recorder::StreamId;

use super::Device;
use crate::error::{Error, Result};

/// A queue of work on a device. Clones are the same stream.
#[derive(Clone, PartialEq, Eq)]
pub struct Stream {
    device: Device,
    id: StreamId,
}

thread_local! {
    /// The streams that this thread is in, by the address of their device; default streams are not listed.
    static ENTERED: RefCell<Vec<(usize, StreamId)>> = const { RefCell::new(Vec::new()) };
}

impl Device {
    /// A new stream, beside the default one. It lasts as long as the device.
    ///
    /// # Errors
    /// What the device's driver reports. Pinned host memory has no streams: those that read it are its device's.
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

    /// The stream on which work runs unless the thread is in another.
    pub fn default_stream(&self) -> Stream {
        Stream { device: self.clone(), id: StreamId::default() }
    }

    /// The stream that this thread is in.
    pub fn current_stream(&self) -> Stream {
        Stream { device: self.clone(), id: self.stream() }
    }

    /// The number of the stream that this thread is in, to which its operations go and for which its memory is
    /// allocated.
    #[inline]
    pub fn stream(&self) -> StreamId {
        let entered = ENTERED.try_with(|entered| {
            let entered = entered.borrow();
            if entered.is_empty() {
                return None;
            }
            entered.iter().find(|(device, _)| *device == self.number()).map(|(_, stream)| *stream)
        });
        // A thread that ends is in no stream.
        entered.ok().flatten().unwrap_or_default()
    }

    /// The stream of this number.
    pub(crate) fn stream_of(&self, id: StreamId) -> Stream {
        Stream { device: self.clone(), id }
    }

    /// Puts the thread into stream `id` of this device until the guard drops.
    pub(crate) fn enter_stream(&self, id: StreamId) -> StreamGuard {
        let former = self.stream();
        set(self.number(), id);
        StreamGuard { device: self.clone(), former, stays_on_its_thread: PhantomData }
    }
}

fn set(device: usize, stream: StreamId) {
    // A thread that ends is in no stream.
    let _ = ENTERED.try_with(|entered| {
        let mut entered = entered.borrow_mut();
        entered.retain(|(other, _)| *other != device);
        if stream != StreamId::default() {
            entered.push((device, stream));
        }
    });
}

impl Stream {
    /// Its number, counted from 1 on its device; the default stream has 0.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Where it is.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// This thread's operations on the device go to this stream until the guard drops. Other devices are not concerned.
    pub fn enter(&self) -> StreamGuard {
        self.device.enter_stream(self.id)
    }

    /// Lets all work that this stream is given from now on wait for what `other` has been given so far, perhaps on
    /// another device. The call itself does not wait, unless it is for the host to wait.
    ///
    /// # Errors
    /// What the device's driver reports.
    pub fn wait_for(&self, other: &Self) -> Result<()> {
        match (self.device.gpu(), other.device.gpu()) {
            (_, None) => Ok(()),
            (None, Some(_)) => other.synchronize(),
            (Some(_), Some(_)) if self == other => Ok(()),
            (Some(gpu), Some(awaited)) => Ok(gpu.follow(self.id.0, awaited, other.id.0)?),
        }
    }

    /// Waits until all work that it has been given is done, and fails where an operation has failed unseen.
    ///
    /// # Errors
    /// An index outside of its table that an operation met on the device; what the device's driver reports.
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

/// Puts the thread back into the device's former stream when dropped. Stays on its thread.
#[must_use = "the thread leaves the stream when this is dropped"]
#[derive(Debug)]
pub struct StreamGuard {
    // Held, so that no other device gets its address while it is listed.
    device: Device,
    former: StreamId,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        set(self.device.number(), self.former);
    }
}
