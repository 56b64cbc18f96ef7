//! Reads parameters from a safetensors file, after checking that all are present and have the right shapes.

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

/// So many names are listed in an error.
const MOST_LISTED: usize = 8;

/// Where a parameter's numbers are in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The tensor's name.
    pub name: String,
    /// Whether it is a matrix that the file holds transposed, as GPT-2's files hold the weights of its `Conv1D`.
    pub is_transposed: bool,
}

impl Source {
    /// The tensor called `name`, as it is.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), is_transposed: false }
    }

    /// The tensor called `name`, a matrix, transposed.
    pub fn transposed(name: impl Into<String>) -> Self {
        Self { name: name.into(), is_transposed: true }
    }
}

/// What is allowed in loading, and where the elements are.
#[derive(Clone, Copy)]
pub struct Loading<'a> {
    /// Changes numbers of another type to the parameter's. Integers beyond 2⁵³ and fractions may be rounded.
    pub converts: bool,
    /// Leaves parameters as they are that the file does not hold.
    pub keeps_missing: bool,
    /// Leaves out tensors of the file that no parameter takes.
    pub ignores_unexpected: bool,
    /// Where the parameter of a path is; none for one that shall stay as it is.
    pub source: &'a dyn Fn(&str) -> Option<Source>,
}

impl Default for Loading<'_> {
    /// Nothing is allowed, and names are paths.
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

/// Gives `parameters` the elements of the tensors that are called like their paths in the safetensors file at `path`.
///
/// Fails, and changes nothing, if the file cannot be read, is no safetensors file, lacks a parameter, holds anything
/// else, or holds one in another shape or type; the error names each. On a device without values everything is checked,
/// and no number is read. No memory is taken on the device.
pub fn load_safetensors(parameters: &[Parameter], path: impl AsRef<Path>) -> Result<()> {
    load_safetensors_with(parameters, path, Loading::default())
}

/// [`load_safetensors`] with other names, or less strictly. For the weights of GPT-2 as Hugging Face has them, for
/// example, into a model with its own paths:
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
    // In the file's order, so that it is read from front to back.
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

/// The type of the elements in the file, if they can become the parameter's.
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

/// All that keeps a file from being loaded.
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
