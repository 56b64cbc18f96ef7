//! Converts tensors to Rust values, and moves them to other devices.

use super::Tensor;
use crate::backend::to_host;
use crate::device::{Kind, Stream};
use crate::dtype::{Element, Truth};
use crate::{DType, Device, Error, Result};

impl Tensor {
    /// Returns the elements in order, in which the last axis varies fastest. Allocates nothing on the device, so that
    /// reading a value does not change a recording's totals. If uses are recorded, this use is recorded too, even on a
    /// device without values.
    ///
    /// # Errors
    /// Fails if the elements are not of type `T`, or on a device without values.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let op = "to_vec";
        if self.dtype() != T::DTYPE {
            return Err(Error::DType { op, found: self.dtype(), need: "expected the tensor's own dtype" });
        }
        self.storage().report_use();
        if !self.device().has_values() {
            return Err(Error::NoValues { op });
        }
        to_host(self.view())
    }

    /// Returns the elements as f64, whatever their type. See [`Self::to_vec`].
    ///
    /// # Errors
    /// Fails on a device without values.
    pub fn to_f64_vec(&self) -> Result<Vec<f64>> {
        fn widened<T: Element>(tensor: &Tensor, widen: impl Fn(T) -> f64) -> Result<Vec<f64>> {
            Ok(tensor.to_vec::<T>()?.into_iter().map(widen).collect())
        }
        match self.dtype() {
            DType::F64 => self.to_vec(),
            DType::F32 => widened::<f32>(self, f64::from),
            DType::Bf16 => widened::<half::bf16>(self, f64::from),
            DType::F16 => widened::<half::f16>(self, f64::from),
            DType::I64 => widened::<i64>(self, |whole| whole as f64),
            DType::U8 => widened::<u8>(self, f64::from),
            DType::Bool => widened::<Truth>(self, |truth| f64::from(u8::from(bool::from(truth)))),
        }
    }

    /// Returns the element of a tensor with exactly one element, as f64.
    ///
    /// # Errors
    /// Fails if there are more elements or none, or on a device without values.
    pub fn item(&self) -> Result<f64> {
        match self.to_f64_vec()?[..] {
            [number] => Ok(number),
            _ => Err(Error::shape("item", self.shape(), "expected a tensor of one element")),
        }
    }

    /// Returns the element of a tensor with exactly one element; `None` if the device has no values. The use is
    /// recorded in either case.
    pub(crate) fn known_item(&self) -> Result<Option<f64>> {
        match self.item() {
            Err(Error::NoValues { .. }) => Ok(None),
            item => item.map(Some),
        }
    }

    /// Returns the same elements on `device`, without history. Returns this tensor if it is already there.
    ///
    /// A copy to a CUDA device from its [pinned memory](Device::pinned), or from another CUDA device, returns before it
    /// is complete, and runs on the thread's current stream. Other copies wait.
    ///
    /// # Errors
    /// Fails if memory runs out, if the driver reports an error, or if the elements of a device without values would
    /// have to be copied to one with values.
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        if self.device() == device {
            return Ok(self.detach());
        }
        let out = self.copied_to(device)?;
        // The use is recorded on every path in the same way, while both tensors are live.
        self.storage().report_use();
        out.storage().report_use();
        Ok(out)
    }

    fn copied_to(&self, device: &Device) -> Result<Self> {
        let op = "to_device";
        // An asynchronous copy may still read pinned memory when that is freed. On devices that are synchronous,
        // recording the stream keeps recordings equal.
        let stream = device.current_stream();
        let is_pinned = self.device().pinned_stream(&stream).is_some();
        if is_pinned {
            self.record_stream(&stream)?;
        }
        if device.kind() == Kind::Accounting {
            return Self::empty(self.shape(), self.dtype(), device);
        }
        let (from, to) = (self.device().kind(), device.kind());
        if from == Kind::Accounting {
            return Err(Error::NoValues { op });
        }
        let source = match (self.is_contiguous(), from) {
            (true, _) => self.detach(),
            // Copies between CUDA devices and from the host need contiguous memory.
            (false, Kind::Cuda) if to == Kind::Cuda => self.copied()?,
            (false, _) => return self.to_device_by_number(device),
        };
        let out = Self::empty(self.shape(), self.dtype(), device)?;
        let (storage, bytes) = (source.storage(), out.storage().bytes());
        let first = source.layout().offset() * self.dtype().size();
        match (from, to) {
            (Kind::Cuda, Kind::Cuda) => storage.copy_across(op, first, out.storage())?,
            (Kind::Cuda, _) => storage.copy_out(op, first, &mut out.storage().write(op)?)?,
            (_, Kind::Cuda) if is_pinned => storage.copy_pinned_to(op, first, out.storage())?,
            (_, Kind::Cuda) => out.storage().copy_in(op, 0, &storage.read(op)?[first..first + bytes])?,
            (_, _) => out.storage().write::<u8>(op)?.copy_from_slice(&storage.read(op)?[first..first + bytes]),
        }
        Ok(out)
    }

    fn to_device_by_number(&self, device: &Device) -> Result<Self> {
        fn moved<T: Element>(tensor: &Tensor, device: &Device) -> Result<Tensor> {
            Tensor::from_host("to_device", &to_host::<T>(tensor.view())?, tensor.shape(), device)
        }
        match self.dtype() {
            DType::F64 => moved::<f64>(self, device),
            DType::F32 => moved::<f32>(self, device),
            DType::Bf16 => moved::<half::bf16>(self, device),
            DType::F16 => moved::<half::f16>(self, device),
            DType::I64 => moved::<i64>(self, device),
            DType::U8 => moved::<u8>(self, device),
            DType::Bool => moved::<Truth>(self, device),
        }
    }

    /// Records that work on `stream` uses the tensor's memory, which belongs to another stream. Once freed, the memory
    /// is reused only when the work submitted to `stream` by then is complete. See [`crate::device::stream`] for when
    /// this is necessary.
    ///
    /// # Errors
    /// Fails unless the stream belongs to the tensor's device or, for a tensor in pinned memory, to the device that it
    /// is pinned for.
    pub fn record_stream(&self, stream: &Stream) -> Result<()> {
        self.storage().record_stream(stream)
    }
}
