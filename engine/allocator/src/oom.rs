//! The report of an out-of-memory error, with the request, the uses of the memory, the reason that the cache did not
//! help, and advice.

use std::fmt;

use highwater_recorder::snapshots::units::{format_bytes, format_bytes_apart};
use highwater_recorder::{DeviceId, Pool, StreamId, level};

use super::arena::Use;
use super::driver::DriverError;
use super::heap::Heap;
use super::request::Request;

/// A request that failed for lack of memory, and the state of the allocator at that time. All sizes are in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct OomReport {
    /// The device of the allocator.
    pub device: DeviceId,
    /// The name of the device, as reported by the driver.
    pub device_name: String,
    /// The stream of the request.
    pub stream: StreamId,
    /// The pool of the request.
    pub pool: Pool,
    /// Requested bytes.
    pub requested: u64,
    /// The request after rounding.
    pub rounded: u64,
    /// Bytes needed from the driver for a segment or pages. A free range at the end of an expandable segment may reduce
    /// them.
    pub segment: u64,
    /// Total device memory.
    pub device_total: u64,
    /// Free device memory, as reported by the driver.
    pub device_free: u64,
    /// The maximum number of bytes that this allocator may reserve; `None` without a memory fraction.
    pub limit: Option<u64>,
    /// Bytes reserved from the driver.
    pub reserved: u64,
    /// Bytes of allocated blocks, after rounding.
    pub allocated: u64,
    /// Requested bytes of the allocated blocks.
    pub requested_live: u64,
    /// `allocated` plus the bytes of blocks awaiting free.
    pub active: u64,
    /// Bytes released to the driver when the whole cache was emptied for the request.
    pub released: u64,
    /// The largest free range of this pool and stream.
    pub largest_free: u64,
    /// The remaining reserved memory, by the reason that it could not serve the request.
    pub unusable: Unusable,
    /// Applicable advice.
    pub advice: Vec<Advice>,
}

/// Reserved bytes that are not allocated, by the reason that they could not serve the request. They add up to
/// `reserved - allocated`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unusable {
    /// Bytes in free ranges of the request's pool and stream, none of which could serve the request.
    pub fragmented: u64,
    /// Bytes cached in the request's pool for other streams.
    pub other_stream: u64,
    /// Bytes cached in the other pool.
    pub other_pool: u64,
    /// Bytes that the program has freed, but another stream still uses.
    pub waiting: u64,
}

/// Advice on an out-of-memory error that follows from the allocator's state alone. Only a replay of a recording shows
/// whether other settings or streams, or fewer live blocks, would have helped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The request alone is larger than the device.
    LargerThanDevice,
    /// The request would fit the device, but the required segment of this many bytes does not.
    SegmentLargerThanDevice(u64),
    /// The memory fraction, not the device, prevents the request.
    RaiseMemoryFraction,
    /// This many bytes of device memory are in use outside this allocator. Without that use, the request would fit.
    OtherUsers(u64),
    /// `highwater oom` can test remedies on a recording, but no recording is active.
    Record,
    /// `highwater oom` can test remedies on the active recording.
    AnalyseRecording,
}

impl OomReport {
    /// Returns the cached bytes, which are free for reuse but not released to the driver.
    pub fn cached(&self) -> u64 {
        self.reserved - self.active
    }

    /// Returns the device's bytes in use outside this allocator.
    pub fn outside(&self) -> u64 {
        self.device_total.saturating_sub(self.device_free).saturating_sub(self.reserved)
    }

    fn advise(&self, request: &Request) -> Vec<Advice> {
        let mut advice = Vec::new();
        if self.rounded > self.device_total {
            return vec![Advice::LargerThanDevice];
        }
        if self.segment > self.device_total {
            advice.push(Advice::SegmentLargerThanDevice(self.segment));
        }
        let device_has_it = self.segment <= self.device_free;
        if self.limit.is_some_and(|limit| self.reserved.saturating_add(request.rounded.segment) > limit)
            && device_has_it
        {
            advice.push(Advice::RaiseMemoryFraction);
        }
        if !device_has_it && self.outside() > 0 && self.outside() >= self.segment - self.device_free {
            advice.push(Advice::OtherUsers(self.outside()));
        }
        if self.allocated > 0 {
            advice.push(if level::records_events() { Advice::AnalyseRecording } else { Advice::Record });
        }
        advice
    }
}

impl Heap {
    /// Describes a request that failed although `released` bytes were released for it.
    pub(super) fn report(&self, request: &Request, released: u64) -> Result<OomReport, DriverError> {
        let capacity = self.driver.capacity()?;
        let pool = request.rounded.pool;
        let mut unusable = Unusable::default();
        let (mut requested_live, mut largest_free) = (0, 0);
        for (_, record) in self.arena.iter() {
            match record.used {
                Use::Vacant | Use::Unmapped => {}
                Use::Allocated => requested_live += record.requested,
                Use::Waiting => unusable.waiting += record.bytes,
                Use::Free if record.pool != pool => unusable.other_pool += record.bytes,
                Use::Free if record.stream != request.stream => {
                    unusable.other_stream += record.bytes;
                }
                Use::Free => {
                    unusable.fragmented += record.bytes;
                    largest_free = largest_free.max(record.bytes);
                }
            }
        }
        let segment = match self.config.expandable_segments() {
            true => request.rounded.block.next_multiple_of(self.page_bytes(pool)),
            false => request.rounded.segment,
        };
        let mut report = OomReport {
            device: self.device,
            device_name: self.driver.name(),
            stream: request.stream,
            pool,
            requested: request.requested,
            rounded: request.rounded.block,
            segment,
            device_total: capacity.total,
            device_free: capacity.free,
            limit: self.limit()?,
            reserved: self.stats.reserved_bytes.all.current,
            allocated: self.stats.allocated_bytes.all.current,
            requested_live,
            active: self.stats.active_bytes.all.current,
            released,
            largest_free,
            unusable,
            advice: Vec::new(),
        };
        report.advice = report.advise(request);
        Ok(report)
    }
}

impl fmt::Display for OomReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = format_bytes;
        let Self { device, device_name, stream, pool, .. } = self;
        let [needed, free] = format_bytes_apart([self.segment, self.device_free]);
        write!(f, "out of memory on device {} ({device_name}): {} requested", device.0, bytes(self.requested))?;
        let mut line = |name: &str, text: &str| write!(f, "\n  {name:<10} {text}");
        line(
            "request",
            &format!(
                "{} rounded to {}; {needed} needed from the driver; stream {}, {pool} pool",
                bytes(self.requested),
                bytes(self.rounded),
                stream.0
            ),
        )?;
        line(
            "device",
            &format!(
                "{} total, {free} free, {} used outside this allocator",
                bytes(self.device_total),
                bytes(self.outside())
            ),
        )?;
        if let Some(limit) = self.limit {
            line("limit", &format!("at most {} can be reserved (per_process_memory_fraction)", bytes(limit)))?;
        }
        line(
            "reserved",
            &format!(
                "{} = {} allocated + {} awaiting free + {} cached",
                bytes(self.reserved),
                bytes(self.allocated),
                bytes(self.active - self.allocated),
                bytes(self.cached())
            ),
        )?;
        line("allocated", &format!("{} for {} requested", bytes(self.allocated), bytes(self.requested_live)))?;
        line(
            "cached",
            &format!(
                "{} = {} fragmented (largest free range {}) + {} of other streams + {} in the other pool",
                bytes(self.cached()),
                bytes(self.unusable.fragmented),
                bytes(self.largest_free),
                bytes(self.unusable.other_stream),
                bytes(self.unusable.other_pool)
            ),
        )?;
        line("tried", &format!("waiting for all streams; {} of cache released to the driver", bytes(self.released)))?;
        for advice in &self.advice {
            line("advice", &advice.to_string())?;
        }
        Ok(())
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LargerThanDevice => f.write_str("the request alone is larger than the device: split it up"),
            Self::RaiseMemoryFraction => f.write_str(
                "the device has enough memory, but the memory fraction limits it: raise per_process_memory_fraction",
            ),
            Self::OtherUsers(bytes) => {
                write!(
                    f,
                    "{} of the device is used outside this allocator: look for other processes",
                    format_bytes(*bytes)
                )
            }
            Self::SegmentLargerThanDevice(segment) => write!(
                f,
                "a segment for the request needs {}, more than the memory of the whole device",
                format_bytes(*segment)
            ),
            Self::Record => f.write_str(
                "record the run: `highwater oom` shows what is using memory, and tests what would have helped",
            ),
            Self::AnalyseRecording => f.write_str(
                "`highwater oom` on the recording of this run shows what is using memory, and tests what would have \
                 helped",
            ),
        }
    }
}
