//! Converts tensors to Rust values, and moves them to other devices.

use super::Tensor;
use crate::backend::to_host;
use crate::device::{Device, Kind, Stream};
use crate::dtype::{DType, Element, Truth};
use crate::error::{Error, Result};

impl Tensor {
    /// The elements in order, the last axis fastest. Takes no memory on the device, so that a look changes no total of
    /// a recording; one that records uses has the host's, on a device without values too. Fails if they are not of type
    /// `T`, or on a device without values.
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

    /// The elements as f64, whatever their type; see [`Self::to_vec`].
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

    /// The one number of a tensor of one element.
    pub fn item(&self) -> Result<f64> {
        match self.to_f64_vec()?[..] {
            [number] => Ok(number),
            _ => Err(Error::shape("item", self.shape(), "give a tensor of one element")),
        }
    }

    /// The one number of a tensor of one element, if the device has values. The look is recorded in either case.
    pub(crate) fn known_item(&self) -> Result<Option<f64>> {
        match self.item() {
            Err(Error::NoValues { .. }) => Ok(None),
            item => item.map(Some),
        }
    }

    /// The same numbers on `device`; this tensor if it is there already. Without history.
    ///
    /// A copy to a CUDA device from its [pinned memory](Device::pinned), or from another CUDA device, returns before it
    /// is done; it is work of the stream that the thread is in. Other copies wait.
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        if self.device() == device {
            return Ok(self.detach());
        }
        let out = self.copied_to(device)?;
        // On every way there alike, and with both alive.
        self.storage().report_use();
        out.storage().report_use();
        Ok(out)
    }

    /// The same numbers on another device.
    fn copied_to(&self, device: &Device) -> Result<Self> {
        let op = "to_device";
        // Whoever copies from pinned memory by itself may be at it when that is freed. On devices that are done when a
        // call returns, saying so makes recordings the same.
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
            // Other CUDA devices and the host copy memory that lies in one piece.
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

    /// Says that work on `stream` uses the tensor's memory, which belongs to another stream: once freed, it is
    /// allocated again only when what `stream` has been given by then is done. See [`crate::device::stream`] for who
    /// says so when.
    ///
    /// # Errors
    /// If the stream is neither of the tensor's device nor, for a tensor in pinned memory, of the device that it is
    /// pinned for.
    pub fn record_stream(&self, stream: &Stream) -> Result<()> {
        self.storage().record_stream(stream)
    }
}
