//! Saves parameters to a safetensors file.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use safetensors::tensor::{Metadata, TensorInfo};

use super::header::{LENGTH_BYTES, word, wrong};
use super::numbers::{self, Failure};
use crate::error::{Error, Result};
use crate::nn::Parameter;

/// Saves `parameters` to a safetensors file at `path`, each under its own path. An existing file is replaced only after
/// everything has been written.
///
/// # Errors
/// If the file cannot be written, if two parameters have the same path, or on a device without values.
pub fn save_safetensors(parameters: &[Parameter], path: impl AsRef<Path>) -> Result<()> {
    let (op, path) = ("save_safetensors", path.as_ref());
    if parameters.iter().any(|parameter| !parameter.tensor.device().has_values()) {
        return Err(Error::NoValues { op });
    }
    // Larger dtypes first, so that every tensor is aligned to its element size.
    let mut parameters: Vec<&Parameter> = parameters.iter().collect();
    parameters.sort_by(|a, b| word(b.tensor.dtype()).cmp(&word(a.tensor.dtype())).then_with(|| a.path.cmp(&b.path)));
    let header = header(&parameters).map_err(|what| wrong(op, path, &what))?;
    let partial = Partial::beside(path);
    let file = File::create(&partial.0).map_err(|why| wrong(op, path, &why))?;
    let mut file = BufWriter::new(file);
    let mut write = || -> Result<(), Failure> {
        file.write_all(&header)?;
        for parameter in &parameters {
            parameter.tensor.storage().report_use();
            numbers::write(parameter.tensor.view(), &mut file)?;
        }
        file.flush()?;
        Ok(fs::rename(&partial.0, path)?)
    };
    write().map_err(|why| match why {
        Failure::Memory(why) => why,
        Failure::File(why) => wrong(op, path, &why),
    })
}

/// Returns the length field and the JSON, padded to a multiple of eight bytes so that the elements are aligned.
fn header(parameters: &[&Parameter]) -> Result<Vec<u8>, String> {
    let mut end = 0;
    let mut infos = Vec::new();
    let mut paths = HashSet::new();
    for parameter in parameters {
        let tensor = &parameter.tensor;
        if !paths.insert(&parameter.path) {
            return Err(format!("two parameters have the path {}; give each its own", parameter.path));
        }
        let start = end;
        end += tensor.bytes() as usize;
        let info =
            TensorInfo { dtype: word(tensor.dtype()), shape: tensor.shape().to_vec(), data_offsets: (start, end) };
        infos.push((parameter.path.clone(), info));
    }
    // Hugging Face's libraries require this entry; names and shapes follow PyTorch's layers.
    let facts = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let metadata = Metadata::new(Some(facts), infos).map_err(|why| why.to_string())?;
    let mut text = serde_json::to_vec(&metadata).map_err(|why| why.to_string())?;
    text.resize(text.len().next_multiple_of(LENGTH_BYTES as usize), b' ');
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.extend(text);
    Ok(header)
}

/// A partially written file next to its destination; removed on drop unless it was renamed.
struct Partial(PathBuf);

impl Partial {
    fn beside(path: &Path) -> Self {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".partial-{}", std::process::id()));
        Self(path.with_file_name(name))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}
