//! Loads parameters from a safetensors file, after checking that all are present and have the right shapes.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use super::header::{Entry, Weights, wrong};
use super::numbers::{self, Failure};
use crate::autograd::no_grad;
use crate::backend::View;
use crate::dtype::DType;
use crate::error::Result;
use crate::nn::Parameter;

/// Maximum number of names listed in an error.
const MOST_LISTED: usize = 8;

/// The tensor in a file that a parameter is loaded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Name of the tensor.
    pub name: String,
    /// Whether the tensor is a matrix that the file stores transposed, as in GPT-2's files for the weights of `Conv1D`.
    pub is_transposed: bool,
}

impl Source {
    /// Returns the source for the tensor called `name`.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), is_transposed: false }
    }

    /// Returns the source for the matrix called `name`, to be transposed.
    pub fn transposed(name: impl Into<String>) -> Self {
        Self { name: name.into(), is_transposed: true }
    }
}

/// Options for loading parameters.
#[derive(Clone, Copy)]
pub struct Loading<'a> {
    /// Converts elements to the parameter's dtype. Integers above 2⁵³ and floating-point values may be rounded.
    pub converts: bool,
    /// Leaves parameters that are missing in the file unchanged.
    pub keeps_missing: bool,
    /// Ignores tensors of the file that match no parameter.
    pub ignores_unexpected: bool,
    /// Returns the source of the parameter with the given path, or `None` to leave it unchanged.
    pub source: &'a dyn Fn(&str) -> Option<Source>,
}

impl Default for Loading<'_> {
    /// Strict: dtypes must match, nothing may be missing or unexpected, and a tensor's name is the parameter's path.
    fn default() -> Self {
        let source = &|path: &str| Some(Source::named(path));
        Self { converts: false, keeps_missing: false, ignores_unexpected: false, source }
    }
}

impl fmt::Debug for Loading<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { converts, keeps_missing, ignores_unexpected, .. } = self;
        write!(f, "converts: {converts}, keeps missing: {keeps_missing}, ignores unexpected: {ignores_unexpected}")
    }
}

/// Loads `parameters` from the safetensors file at `path`; each takes the tensor that has the parameter's path as its
/// name.
///
/// On a device without values everything is checked, but no elements are read. No memory is allocated on the device.
///
/// # Errors
/// If the file cannot be read, is not a safetensors file, lacks a parameter, contains a tensor that is not a parameter,
/// or has one with another shape or dtype. The error names each of them; parameters are only changed after all checks.
pub fn load_safetensors(parameters: &[Parameter], path: impl AsRef<Path>) -> Result<()> {
    load_safetensors_with(parameters, path, Loading::default())
}

/// Like [`load_safetensors`], with other names or less strict checks. For example, to load Hugging Face's weights of
/// GPT-2 into a model with other paths:
///
/// ```no_run
/// # use highwater_engine::nn::{Loading, Parameter, Source, load_safetensors_with};
/// # let parameters: Vec<Parameter> = Vec::new();
/// let source = |path: &str| {
///     let name = path.replace("blocks.", "h.").replace("mlp.fc1", "mlp.c_fc");
///     let is_conv1d = path.starts_with("blocks.") && path.ends_with("fc1.weight");
///     Some(if is_conv1d { Source::transposed(name) } else { Source::named(name) })
/// };
/// let loading = Loading { converts: true, ignores_unexpected: true, source: &source, ..Loading::default() };
/// load_safetensors_with(&parameters, "gpt2/model.safetensors", loading)?;
/// # Ok::<(), highwater_engine::Error>(())
/// ```
///
/// # Errors
/// As for [`load_safetensors`], except for what `loading` allows.
pub fn load_safetensors_with(parameters: &[Parameter], path: impl AsRef<Path>, loading: Loading<'_>) -> Result<()> {
    let (op, path) = ("load_safetensors", path.as_ref());
    let Weights { mut file, entries } = Weights::open(op, path)?;
    let mut problems = Problems::default();
    let mut plan = Vec::new();
    let mut unexpected: BTreeSet<&str> = entries.keys().map(String::as_str).collect();
    for parameter in parameters {
        let Some(source) = (loading.source)(&parameter.path) else { continue };
        unexpected.remove(source.name.as_str());
        match entries.get(&source.name) {
            Some(entry) => match fit(parameter, entry, source.is_transposed, loading.converts) {
                Ok(stored) => plan.push((parameter, entry.start, stored, source.is_transposed)),
                Err(why) => problems.unfit.push(why),
            },
            None if loading.keeps_missing => {}
            None if source.name == parameter.path => problems.missing.push(source.name),
            None => problems.missing.push(format!("{} (for {})", source.name, parameter.path)),
        }
    }
    if !loading.ignores_unexpected {
        problems.unexpected.extend(unexpected.into_iter().map(str::to_owned));
    }
    if !problems.is_empty() {
        return Err(wrong(op, path, &problems));
    }
    // In file order, so that the file is read sequentially.
    plan.sort_by_key(|&(_, start, ..)| start);
    let _mode = no_grad();
    for (parameter, start, stored, is_transposed) in plan {
        let tensor = &parameter.tensor;
        tensor.begin_change(op)?;
        let layout = if is_transposed { tensor.layout().transpose(0, 1) } else { *tensor.layout() };
        tensor.storage().report_use();
        if !tensor.device().has_values() {
            continue;
        }
        let place = View { layout: &layout, ..tensor.view() };
        let seek = file.seek(SeekFrom::Start(start)).map_err(Failure::File);
        seek.and_then(|_| numbers::read(place, &mut file, stored)).map_err(|why| match why {
            Failure::Memory(why) => why,
            Failure::File(why) => wrong(op, path, &format!("{}: {why}", parameter.path)),
        })?;
    }
    Ok(())
}

/// Returns the dtype of the elements in the file, or the reason why they cannot be loaded into the parameter.
fn fit(parameter: &Parameter, entry: &Entry, is_transposed: bool, converts: bool) -> Result<DType, String> {
    let (path, tensor) = (&parameter.path, &parameter.tensor);
    let stored = match &entry.dtype {
        Ok(stored) => *stored,
        Err(word) => return Err(format!("{path} is of type {word}, which is not supported")),
    };
    let shape: Vec<usize> = match (is_transposed, &tensor.shape()[..]) {
        (true, &[rows, columns]) => vec![columns, rows],
        (true, _) => {
            return Err(format!("{path} is to be transposed, but it has shape {}; give matrices", tensor.shape()));
        }
        (false, lengths) => lengths.to_vec(),
    };
    if entry.shape != shape {
        let found = format!("{path} has shape {:?} in the file and {} in the model", entry.shape, tensor.shape());
        let note = if is_transposed { ", from which it is to be transposed" } else { "" };
        return Err(format!("{found}{note}"));
    }
    if stored != tensor.dtype() && !converts {
        let found = format!("{path} is of type {stored} in the file and {} in the model", tensor.dtype());
        return Err(format!("{found}; allow `converts` to change it"));
    }
    Ok(stored)
}

/// The problems that prevent a file from being loaded.
#[derive(Default)]
struct Problems {
    missing: Vec<String>,
    unexpected: Vec<String>,
    unfit: Vec<String>,
}

impl Problems {
    fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.unfit.is_empty()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("it lacks ", &self.missing, ", "),
            ("nothing takes its ", &self.unexpected, ", "),
            ("", &self.unfit, "; "),
        ];
        for (position, (what, list, between)) in lists.into_iter().filter(|(_, list, _)| !list.is_empty()).enumerate() {
            let gap = if position > 0 { "; " } else { "" };
            let shown = list[..list.len().min(MOST_LISTED)].join(between);
            write!(f, "{gap}{what}{shown}")?;
            if list.len() > MOST_LISTED {
                write!(f, " and {} more", list.len() - MOST_LISTED)?;
            }
        }
        Ok(())
    }
}
