//! Devices, which are cheap handles to an allocator and to the backend that computes on its memory.

pub mod cpu;
pub mod cuda;
pub mod pinned;
pub mod stream;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use highwater_kernels::Gpu;
use highwater_recorder::api::DeviceClaim;
use highwater_recorder::{Category, DeviceId, Source, StreamId, api, scope};

use crate::{Error, Result};
use highwater_allocator::{AccountingDriver, AllocConfig, Block, CachingAllocator, Driver, DriverKind};

pub use stream::{Stream, StreamGuard};

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The CPU, with host memory.
    Cpu,
    /// A CUDA device, on which kernels run asynchronously.
    Cuda,
    /// A device that only accounts for memory and computes nothing. Called `meta` on the command line.
    Accounting,
}

/// Size of a CUDA device's workspace for matrix products, which are faster with a workspace. Unless segments
/// are expandable, it fills a segment of its own, so that all other blocks have the same layout as without it.
pub const WORKSPACE_BYTES: u64 = 16 << 20;

/// A device on which tensors are allocated, with its allocator and driver. Clones refer to the same device. Two calls
/// of a constructor create two devices, whose tensors cannot be used in the same operation.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    kind: Kind,
    /// The GPU that runs kernels; `None` unless this is a CUDA device.
    gpu: Option<Arc<Gpu>>,
    workspace: Option<Block>,
    /// Locked by the thread whose work currently uses the workspace.
    workspace_turn: Mutex<()>,
    allocator: Arc<CachingAllocator>,
    /// Number of streams created on a device without a GPU.
    streams: AtomicU64,
    /// The device's pinned host memory, once requested.
    pinned: OnceLock<Device>,
    /// The device that copies from this memory; `None` unless this is pinned host memory.
    owner: Option<Owner>,
    /// Must outlive the allocator, which uses this device id in its last events.
    claim: DeviceClaim,
}

#[derive(Clone)]
struct Owner {
    number: DeviceId,
    gpu: Option<Arc<Gpu>>,
}

impl Device {
    /// Creates a CPU device with the allocator's default settings.
    pub fn cpu() -> Self {
        Self::cpu_with(AllocConfig::default())
    }

    /// Creates a CPU device with these allocator settings.
    pub fn cpu_with(config: AllocConfig) -> Self {
        Self::over(Kind::Cpu, Box::new(cpu::CpuDriver::new()), config)
    }

    /// Creates a CPU device with at most `capacity` bytes of memory, and no more than the host has.
    pub fn cpu_with_capacity(capacity: u64, config: AllocConfig) -> Self {
        Self::over(Kind::Cpu, Box::new(cpu::CpuDriver::with_capacity(capacity)), config)
    }

    /// Creates an accounting device with `capacity` bytes, which tracks memory and computes nothing.
    pub fn accounting(capacity: u64) -> Self {
        Self::accounting_with(capacity, AllocConfig::default())
    }

    /// Like [`Self::accounting`], with these allocator settings.
    pub fn accounting_with(capacity: u64, config: AllocConfig) -> Self {
        Self::over(Kind::Accounting, Box::new(AccountingDriver::new(capacity)), config)
    }

    /// Opens CUDA device `ordinal` with the allocator's default settings.
    ///
    /// # Errors
    /// Fails if the driver, the kernel compiler, cuBLASLt, the device, or memory for the workspace is missing.
    pub fn cuda(ordinal: u16) -> Result<Self> {
        Self::cuda_with(ordinal, None, AllocConfig::default())
    }

    /// Opens CUDA device `ordinal` with these allocator settings and, if given, a limit of `capacity` bytes.
    /// [`WORKSPACE_BYTES`] are allocated at once.
    ///
    /// # Errors
    /// See [`Self::cuda`].
    pub fn cuda_with(ordinal: u16, capacity: Option<u64>, config: AllocConfig) -> Result<Self> {
        let gpu = Gpu::open(ordinal)?;
        let driver = Box::new(cuda::CudaDriver::new(Arc::clone(&gpu), capacity));
        let mut inner = Inner::over(Kind::Cuda, driver, Some(DeviceId(ordinal)), config);
        inner.gpu = Some(gpu);
        inner.take_workspace()?;
        Ok(Self(Arc::new(inner)))
    }

    /// Creates an accounting device that tracks the memory that a CUDA device of `capacity` bytes would use, including
    /// its workspace.
    ///
    /// # Errors
    /// Fails if memory for the workspace cannot be allocated.
    pub fn accounting_for_cuda(capacity: u64, config: AllocConfig) -> Result<Self> {
        let driver = Box::new(AccountingDriver::new(capacity));
        let mut inner = Inner::over(Kind::Accounting, driver, None, config);
        inner.take_workspace()?;
        Ok(Self(Arc::new(inner)))
    }

    fn over(kind: Kind, driver: Box<dyn Driver>, config: AllocConfig) -> Self {
        Self(Arc::new(Inner::over(kind, driver, None, config)))
    }

    /// Returns this device's pinned host memory, from which the device copies asynchronously and to which it copies
    /// without an intermediate buffer. Pinned memory is a separate device with its own allocator and entry in
    /// recordings, and operations on its tensors run on the CPU. It is created on first use. For a device without a
    /// GPU, it is ordinary memory of the same kind.
    ///
    /// A copy of a pinned tensor [to this device](crate::Tensor::to_device) returns before it is complete. Until then
    /// the tensor's memory is not reused, and operations that modify the tensor wait.
    pub fn pinned(&self) -> Self {
        if self.is_pinned() {
            return self.clone();
        }
        let make = || {
            let (kind, driver): (Kind, Box<dyn Driver>) = match (self.kind(), &self.0.gpu) {
                (_, Some(gpu)) => (Kind::Cpu, Box::new(pinned::PinnedDriver::new(Arc::clone(gpu)))),
                (Kind::Accounting, None) => {
                    let driver = AccountingDriver::of_kind(DriverKind::Pinned, cpu::host_memory());
                    (Kind::Accounting, Box::new(driver))
                }
                (_, None) => (Kind::Cpu, Box::new(cpu::CpuDriver::pinned())),
            };
            let number = Some(pinned::number_of(self.id()));
            let mut inner = Inner::over(kind, driver, number, AllocConfig::default());
            inner.owner = Some(Owner { number: self.id(), gpu: self.0.gpu.clone() });
            Self(Arc::new(inner))
        };
        self.0.pinned.get_or_init(make).clone()
    }

    /// Returns whether this is pinned host memory of some device.
    pub fn is_pinned(&self) -> bool {
        self.0.owner.is_some()
    }

    /// Returns the id in this pinned host memory of a stream that copies from it, or `None` for a stream of another
    /// device.
    pub(crate) fn pinned_stream(&self, stream: &Stream) -> Option<StreamId> {
        let owner = self.0.owner.as_ref()?;
        let is_its = match (&owner.gpu, &stream.device().0.gpu) {
            (Some(gpu), Some(other)) => Arc::ptr_eq(gpu, other),
            (None, None) => owner.number == stream.device().id(),
            _ => false,
        };
        is_its.then(|| pinned::stream_of(stream.id()))
    }

    /// Returns the GPU that copies from this pinned host memory; `None` for other devices.
    pub(crate) fn pinned_for(&self) -> Option<&Gpu> {
        self.0.owner.as_ref()?.gpu.as_deref()
    }

    /// Returns the kind of the device.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Returns the device id in recordings.
    pub fn id(&self) -> DeviceId {
        self.0.claim.id()
    }

    /// Returns the allocator, which also provides statistics.
    pub fn allocator(&self) -> &Arc<CachingAllocator> {
        &self.0.allocator
    }

    /// Returns whether the values of tensors on this device can be read.
    pub fn has_values(&self) -> bool {
        self.kind() != Kind::Accounting
    }

    pub(crate) fn gpu(&self) -> Option<&Gpu> {
        self.0.gpu.as_deref()
    }

    /// Returns an id that is unique among live devices.
    fn number(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Returns the address and size in bytes of memory that kernels may use between two launches on the thread's
    /// current stream. There is one workspace, which belongs to the default stream, where kernels use it in order.
    /// Other streams, whose work may run concurrently, have no workspace, which is returned as (0, 0), so that they use
    /// no more memory; kernels are slower there if they can work without a workspace.
    pub(crate) fn workspace(&self) -> (u64, u64) {
        match &self.0.workspace {
            Some(block) if self.stream() == block.stream() => (block.address(), WORKSPACE_BYTES),
            _ => (0, 0),
        }
    }

    /// Keeps other threads that call this out of the workspace until the guard is dropped, because one kernel leaves
    /// results in it for the next. Returns `None` if the thread's current stream has no workspace.
    pub(crate) fn workspace_turn(&self) -> Option<MutexGuard<'_, ()>> {
        let (_, bytes) = self.workspace();
        (bytes > 0).then(|| self.0.workspace_turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until all operations are complete. Operations of CPU and accounting devices are complete when they return.
    ///
    /// # Errors
    /// Fails if an operation found an index out of range on the device, or if the device's driver reports an error.
    pub fn synchronize(&self) -> Result<()> {
        let Some(gpu) = self.gpu() else { return Ok(()) };
        gpu.synchronize_all()?;
        self.check_faults()
    }

    /// Fails if a completed operation found an index out of range.
    pub(crate) fn check_faults(&self) -> Result<()> {
        match self.gpu().and_then(Gpu::take_fault) {
            None => Ok(()),
            Some(fault) => {
                let size = usize::try_from(fault.size).unwrap_or(0);
                Err(Error::Index { op: "an operation on the device", index: fault.index, size })
            }
        }
    }
}

impl Inner {
    fn over(kind: Kind, driver: Box<dyn Driver>, number: Option<DeviceId>, config: AllocConfig) -> Self {
        let claim = DeviceClaim::new(number);
        let allocator = CachingAllocator::new(driver, claim.id(), config);
        let source: Arc<dyn Source> = allocator.clone();
        api::register(&source);
        Self {
            kind,
            gpu: None,
            workspace: None,
            workspace_turn: Mutex::default(),
            allocator,
            streams: AtomicU64::new(0),
            pinned: OnceLock::new(),
            owner: None,
            claim,
        }
    }

    fn take_workspace(&mut self) -> Result<()> {
        let _category = scope::category(Category::Workspace);
        self.workspace = Some(self.allocator.malloc(WORKSPACE_BYTES, StreamId::default())?);
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(block) = self.workspace.take() {
            self.allocator.free(block);
        }
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind(), self.gpu()) {
            _ if self.is_pinned() => f.write_str("pinned"),
            (Kind::Cpu, _) => f.write_str("cpu"),
            (_, Some(gpu)) => write!(f, "cuda:{}", gpu.ordinal()),
            _ => f.write_str("meta"),
        }
    }
}
