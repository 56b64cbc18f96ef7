//! Devices: cheap handles to an allocator and a backend.

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

use crate::error::{Error, Result};
use highwater_allocator::{AccountingDriver, AllocConfig, Block, CachingAllocator, Driver};

pub use stream::{Stream, StreamGuard};

/// How a device does arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Loops over host memory.
    Cpu,
    /// Kernels on a CUDA device. They run after the call that asked for them has returned.
    Cuda,
    /// Not at all: only memory is counted. Called `meta` on the command line.
    Accounting,
}

/// What a CUDA device keeps for matrix products, which work faster with some room. A whole segment of its own, so that
/// all other blocks lie as they would without it.
pub const WORKSPACE_BYTES: u64 = 16 << 20;

/// A place for tensors: an allocator over a driver. Clones are the same device; two calls of a constructor make two
/// devices, whose tensors cannot meet in one operation.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    kind: Kind,
    /// Where kernels run, on a CUDA device.
    gpu: Option<Arc<Gpu>>,
    workspace: Option<Block>,
    /// Held by the thread whose work uses the workspace now.
    workspace_turn: Mutex<()>,
    allocator: Arc<CachingAllocator>,
    /// How many streams were made that are only numbers.
    streams: AtomicU64,
    /// Its pinned host memory, once asked for.
    pinned: OnceLock<Device>,
    /// Of pinned host memory: who copies from it.
    owner: Option<Owner>,
    /// Outlives the allocator, whose last events carry its number.
    claim: DeviceClaim,
}

/// Whose host memory is pinned.
#[derive(Clone)]
struct Owner {
    number: DeviceId,
    gpu: Option<Arc<Gpu>>,
}

impl Device {
    /// Host memory, with the allocator's default settings.
    pub fn cpu() -> Self {
        Self::cpu_with(AllocConfig::default())
    }

    /// Host memory, with these settings of the allocator.
    pub fn cpu_with(config: AllocConfig) -> Self {
        Self::over(Kind::Cpu, Box::new(cpu::CpuDriver::new()), config)
    }

    /// Host memory of which at most `capacity` bytes may be taken, and no more than the host has.
    pub fn cpu_with_capacity(capacity: u64, config: AllocConfig) -> Self {
        Self::over(Kind::Cpu, Box::new(cpu::CpuDriver::with_capacity(capacity)), config)
    }

    /// A device that counts memory, has `capacity` bytes of it, and computes nothing.
    pub fn accounting(capacity: u64) -> Self {
        Self::accounting_with(capacity, AllocConfig::default())
    }

    /// Like [`Self::accounting`], with these settings of the allocator.
    pub fn accounting_with(capacity: u64, config: AllocConfig) -> Self {
        Self::over(Kind::Accounting, Box::new(AccountingDriver::new(capacity)), config)
    }

    /// CUDA device `ordinal`, with the allocator's default settings.
    ///
    /// # Errors
    /// What is missing: the driver, the compiler of kernels, cuBLASLt, the device, memory for the workspace.
    pub fn cuda(ordinal: u16) -> Result<Self> {
        Self::cuda_with(ordinal, None, AllocConfig::default())
    }

    /// CUDA device `ordinal`, of which at most `capacity` bytes are taken, with these settings of the allocator. It
    /// holds [`WORKSPACE_BYTES`] from the beginning.
    ///
    /// # Errors
    /// As for [`Self::cuda`].
    pub fn cuda_with(ordinal: u16, capacity: Option<u64>, config: AllocConfig) -> Result<Self> {
        let gpu = Gpu::open(ordinal)?;
        let driver = Box::new(cuda::CudaDriver::new(Arc::clone(&gpu), capacity));
        let mut inner = Inner::over(Kind::Cuda, driver, Some(DeviceId(ordinal)), config);
        inner.gpu = Some(gpu);
        inner.take_workspace()?;
        Ok(Self(Arc::new(inner)))
    }

    /// A device that counts the memory that a CUDA device of `capacity` bytes would take, its workspace included.
    ///
    /// # Errors
    /// If there is no memory for the workspace.
    pub fn accounting_for_cuda(capacity: u64, config: AllocConfig) -> Result<Self> {
        let driver = Box::new(AccountingDriver::new(capacity));
        let mut inner = Inner::over(Kind::Accounting, driver, None, config);
        inner.take_workspace()?;
        Ok(Self(Arc::new(inner)))
    }

    fn over(kind: Kind, driver: Box<dyn Driver>, config: AllocConfig) -> Self {
        Self(Arc::new(Inner::over(kind, driver, None, config)))
    }

    /// Host memory from which this device copies by itself while the program goes on, and to which it copies without a
    /// detour. It is a device of its own, with an allocator and an entry in recordings; tensors there compute as on the
    /// cpu. Made when first asked for; on devices without a GPU, it is memory as theirs.
    ///
    /// A copy [to this device](crate::Tensor::to_device) returns before it is done. Until then the memory is not handed
    /// out again, and whoever changes the tensor waits.
    pub fn pinned(&self) -> Self {
        if self.is_pinned() {
            return self.clone();
        }
        let make = || {
            let (kind, driver) = match (self.kind(), &self.0.gpu) {
                (_, Some(gpu)) => (Kind::Cpu, pinned::PinnedDriver::of_gpu(Arc::clone(gpu))),
                (Kind::Accounting, None) => {
                    let driver = AccountingDriver::new(cpu::host_memory());
                    (Kind::Accounting, pinned::PinnedDriver::plain(Box::new(driver)))
                }
                (_, None) => (Kind::Cpu, pinned::PinnedDriver::plain(Box::new(cpu::CpuDriver::new()))),
            };
            let number = Some(pinned::number_of(self.id()));
            let mut inner = Inner::over(kind, Box::new(driver), number, AllocConfig::default());
            inner.owner = Some(Owner { number: self.id(), gpu: self.0.gpu.clone() });
            Self(Arc::new(inner))
        };
        self.0.pinned.get_or_init(make).clone()
    }

    /// Whether this is some device's pinned host memory.
    pub fn is_pinned(&self) -> bool {
        self.0.owner.is_some()
    }

    /// What this pinned host memory calls a stream that copies from it; none if that is not its device's.
    pub(crate) fn pinned_stream(&self, stream: &Stream) -> Option<StreamId> {
        let owner = self.0.owner.as_ref()?;
        let is_its = match (&owner.gpu, &stream.device().0.gpu) {
            (Some(gpu), Some(other)) => Arc::ptr_eq(gpu, other),
            (None, None) => owner.number == stream.device().id(),
            _ => false,
        };
        is_its.then(|| pinned::stream_of(stream.id()))
    }

    /// The GPU that copies from this pinned host memory.
    pub(crate) fn pinned_for(&self) -> Option<&Gpu> {
        self.0.owner.as_ref()?.gpu.as_deref()
    }

    /// How it does arithmetic.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Its number in recordings.
    pub fn id(&self) -> DeviceId {
        self.0.claim.id()
    }

    /// Its allocator, with the statistics.
    pub fn allocator(&self) -> &Arc<CachingAllocator> {
        &self.0.allocator
    }

    /// Whether tensors here have values that can be read.
    pub fn has_values(&self) -> bool {
        self.kind() != Kind::Accounting
    }

    /// Where kernels run, on a CUDA device.
    pub(crate) fn gpu(&self) -> Option<&Gpu> {
        self.0.gpu.as_deref()
    }

    /// Tells this device from all others that live.
    fn number(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Memory that kernels may use between two launches on the stream that this thread is in: its address and its
    /// bytes. There is one workspace, and it is the default stream's, where kernels use it one after another. On other
    /// streams, whose work may run at the same time, there is none: what works without takes longer there, and the
    /// device no more memory.
    pub(crate) fn workspace(&self) -> (u64, u64) {
        match &self.0.workspace {
            Some(block) if self.stream() == block.stream() => (block.address(), WORKSPACE_BYTES),
            _ => (0, 0),
        }
    }

    /// Keeps other threads' work from coming between what this thread gives to its stream until the guard drops: what
    /// one kernel leaves in the workspace is for the next. Nothing is held where the stream has no workspace.
    pub(crate) fn workspace_turn(&self) -> Option<MutexGuard<'_, ()>> {
        let (_, bytes) = self.workspace();
        (bytes > 0).then(|| self.0.workspace_turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until all operations are done, and fails where one has failed unseen. Operations of the cpu and accounting
    /// devices are done when they return.
    ///
    /// # Errors
    /// An index outside of its table that an operation met on the device; what the device's driver reports.
    pub fn synchronize(&self) -> Result<()> {
        let Some(gpu) = self.gpu() else { return Ok(()) };
        gpu.synchronize_all()?;
        self.check_faults()
    }

    /// Fails if an operation that is done met an index outside of its table.
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
    /// Whether both are handles to the same device.
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
