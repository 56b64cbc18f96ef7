//! Reads the header of a safetensors file: an 8-byte length, JSON of that length, then the data of all tensors.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use safetensors::tensor::{Dtype, Metadata};

use crate::dtype::DType;
use crate::error::{Error, Result};

/// Size in bytes of the header's length field.
pub(super) const LENGTH_BYTES: u64 = 8;

/// Maximum header size, as defined by the format.
const MOST_HEADER_BYTES: u64 = 100_000_000;

/// A tensor's entry in the header.
#[derive(Debug)]
pub(super) struct Entry {
    /// Dtype, or the file's name for an unsupported one.
    pub(super) dtype: Result<DType, String>,
    pub(super) shape: Vec<usize>,
    /// Offset of its data in bytes from the start of the file.
    pub(super) start: u64,
}

/// An open file with a validated header: every tensor is within the file and has the size that its shape and dtype
/// require.
#[derive(Debug)]
pub(super) struct Weights {
    pub(super) file: File,
    /// Tensors by name.
    pub(super) entries: BTreeMap<String, Entry>,
}

impl Weights {
    pub(super) fn open(op: &'static str, path: &Path) -> Result<Self> {
        let mut file = File::open(path).map_err(|why| wrong(op, path, &why))?;
        let length = file.metadata().map_err(|why| wrong(op, path, &why))?.len();
        if length < LENGTH_BYTES {
            let what = format!("it has {length} bytes, too few for a safetensors file; it may have been cut off");
            return Err(wrong(op, path, &what));
        }
        let mut announced = [0; LENGTH_BYTES as usize];
        file.read_exact(&mut announced).map_err(|why| wrong(op, path, &why))?;
        let announced = u64::from_le_bytes(announced);
        if announced > (length - LENGTH_BYTES).min(MOST_HEADER_BYTES) {
            let what = format!(
                "its first bytes announce a header of {announced} bytes, but {} follow; it is not a safetensors file, or \
                 was cut off",
                length - LENGTH_BYTES
            );
            return Err(wrong(op, path, &what));
        }
        let mut text = vec![0; announced as usize];
        file.read_exact(&mut text).map_err(|why| wrong(op, path, &why))?;
        let metadata: Metadata = serde_json::from_slice(&text)
            .map_err(|why| wrong(op, path, &format!("its header is not that of a safetensors file: {why}")))?;
        let first = LENGTH_BYTES + announced;
        let needed = first.saturating_add(metadata.data_len() as u64);
        if needed != length {
            let what = format!("it has {length} bytes, but its header speaks of {needed}; it may have been cut off");
            return Err(wrong(op, path, &what));
        }
        let entry = |(name, info): (String, &safetensors::tensor::TensorInfo)| {
            let start = first + info.data_offsets.0 as u64;
            (name, Entry { dtype: known(info.dtype), shape: info.shape.clone(), start })
        };
        Ok(Self { file, entries: metadata.tensors().into_iter().map(entry).collect() })
    }
}

fn known(dtype: Dtype) -> Result<DType, String> {
    DType::ALL.into_iter().find(|&ours| word(ours) == dtype).ok_or_else(|| dtype.to_string())
}

/// Returns the safetensors dtype that corresponds to `dtype`.
pub(super) fn word(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::F32 => Dtype::F32,
        DType::Bf16 => Dtype::BF16,
        DType::F16 => Dtype::F16,
        DType::I64 => Dtype::I64,
        DType::U8 => Dtype::U8,
        DType::Bool => Dtype::BOOL,
    }
}

/// Returns an error that describes a problem with the file at `path`.
pub(super) fn wrong(op: &'static str, path: &Path, what: &impl ToString) -> Error {
    Error::File { op, path: path.display().to_string().into(), what: what.to_string() }
}
