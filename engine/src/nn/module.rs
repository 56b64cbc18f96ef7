//! The trait of all layers, and the types that compose them.

use std::fmt::Write as _;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use highwater_recorder::snapshots::scope_pattern::{ScopePattern, ScopePatternError};
use highwater_recorder::{ScopeId, scope};

use super::init::Init;
use crate::{Error, Result, Tensor, autograd};

/// A function with parameters, such as a layer or a model. It implements [`forward`](Self::forward), or
/// [`forward_into`](Self::forward_into) if it frees or overwrites its input early.
pub trait Module: Send + Sync + 'static {
    /// Computes the output for `input`.
    ///
    /// # Errors
    /// Fails if the input does not have the expected shape or dtype, or if memory cannot be allocated.
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.forward_into(input.clone())
    }

    /// Like [`Self::forward`]. If the input's memory is not shared, it may be freed before the output is computed, or
    /// overwritten with the output.
    ///
    /// # Errors
    /// See [`Self::forward`].
    fn forward_into(&self, input: Tensor) -> Result<Tensor> {
        self.forward(&input)
    }

    /// Passes the module's own parameters and its children to `visitor`, in order of creation.
    fn visit(&self, visitor: &mut Visitor);

    /// Returns all parameters, including those of children, in order of creation. A tensor that several modules share
    /// is contained once.
    fn parameters(&self) -> Vec<Parameter> {
        visited(self, Visitor::default()).found
    }

    /// Returns all buffers, including those of children, in order of creation.
    fn buffers(&self) -> Vec<Buffer> {
        visited(self, Visitor::default()).buffers
    }

    /// Sets the module and its children to training mode (the default) or inference mode, which affects dropout and
    /// batch norm.
    fn set_training(&self, training: bool) {
        visited(self, Visitor { training: Some(training), ..Visitor::default() });
    }
}

/// A field of a module that [`visit_fields!`](crate::visit_fields) can visit.
pub trait Field {
    /// Passes the field called `name` to `visitor`.
    fn accept(&self, name: &str, visitor: &mut Visitor);
}

impl Field for Tensor {
    fn accept(&self, name: &str, visitor: &mut Visitor) {
        visitor.parameter(name, self);
    }
}

impl<M: Module> Field for Child<M> {
    /// Visits the child under its name.
    fn accept(&self, _name: &str, visitor: &mut Visitor) {
        visitor.child(self);
    }
}

impl Field for Mode {
    fn accept(&self, _name: &str, visitor: &mut Visitor) {
        visitor.mode(self);
    }
}

impl<F: Field> Field for Option<F> {
    fn accept(&self, name: &str, visitor: &mut Visitor) {
        self.iter().for_each(|field| field.accept(name, visitor));
    }
}

impl<F: Field> Field for Vec<F> {
    fn accept(&self, name: &str, visitor: &mut Visitor) {
        self.iter().for_each(|field| field.accept(name, visitor));
    }
}

/// Implements [`Module::visit`](crate::nn::Module::visit) for a module with these fields, visited in this order. Fields
/// are parameters (tensors, named after their fields), children and modes.
#[macro_export]
macro_rules! visit_fields {
    ($($field:ident),+ $(,)?) => {
        fn visit(&self, visitor: &mut $crate::nn::Visitor) {
            $($crate::nn::Field::accept(&self.$field, stringify!($field), visitor);)+
        }
    };
}

fn visited<M: Module + ?Sized>(module: &M, mut visitor: Visitor) -> Visitor {
    module.visit(&mut visitor);
    visitor
}

/// Enables activation checkpointing for the children whose path matches `pattern`, and returns their number, which is
/// not 0. From then on, each of these children keeps only the inputs of its [forward](Child::run), which is recomputed
/// in backward (see [`autograd::checkpoint`](autograd::checkpoint())).
///
/// A [`ScopePattern`] such as `encoder.layers.*` or `encoder.layers.{0-9}` can match several paths. A child that keeps
/// nothing for backward, such as a frozen child, has nothing to recompute.
///
/// # Errors
/// Fails if the pattern is invalid, or if no child matches it; the error lists the paths of the children.
pub fn checkpoint_scopes<M: Module + ?Sized>(module: &M, pattern: &str) -> Result<usize> {
    let op = "checkpoint_scopes";
    let parsed = pattern.parse().map_err(|why: ScopePatternError| Error::Setting { op, what: why.to_string() })?;
    let checkpoints = Some(Checkpoints { pattern: parsed, matched: 0, paths: Vec::new() });
    let visitor = visited(module, Visitor { checkpoints, ..Visitor::default() });
    match visitor.checkpoints {
        Some(checkpoints) if checkpoints.matched > 0 => Ok(checkpoints.matched),
        checkpoints => {
            let paths = checkpoints.map_or_else(Vec::new, |checkpoints| checkpoints.paths);
            let what = format!("no module matches '{pattern}'; {}", listed(&paths));
            Err(Error::Setting { op, what })
        }
    }
}

/// Lists the paths of a model's modules, joining paths that differ in one number.
fn listed(paths: &[String]) -> String {
    /// Maximum number of patterns in an error message.
    const MOST: usize = 16;
    if paths.is_empty() {
        return "the model has no submodules".to_owned();
    }
    let patterns: Vec<String> = ScopePattern::joined(paths).iter().map(ToString::to_string).collect();
    let rest = if patterns.len() > MOST { ", …" } else { "" };
    format!("the modules of the model are {}{rest}", patterns[..patterns.len().min(MOST)].join(", "))
}

/// A parameter, trained or frozen, and its position in the model.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Path from the model's root, such as `encoder.layers.3.mlp.fc1.weight`.
    pub path: String,
    /// Scope of its module, as in recordings.
    pub scope: ScopeId,
    /// The tensor itself.
    pub tensor: Tensor,
}

/// A tensor that belongs to a model but is not trained.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Path from the model's root.
    pub path: String,
    /// Scope of its module, as in recordings.
    pub scope: ScopeId,
    /// The tensor itself.
    pub tensor: Tensor,
}

/// Whether a module is in training mode (the default) or in inference mode.
#[derive(Debug)]
pub struct Mode(AtomicBool);

impl Mode {
    /// Creates a mode with the value training.
    pub fn new() -> Self {
        Self(AtomicBool::new(true))
    }

    /// Returns whether the module is in training mode.
    pub fn is_training(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for Mode {
    fn default() -> Self {
        Self::new()
    }
}

/// Collects the parameters and buffers of a model, or sets the mode of each module.
#[derive(Debug, Default)]
pub struct Visitor {
    path: String,
    found: Vec<Parameter>,
    buffers: Vec<Buffer>,
    training: Option<bool>,
    checkpoints: Option<Checkpoints>,
}

/// The pattern of the children to checkpoint, the number of matches so far, and the paths of all children.
#[derive(Debug)]
struct Checkpoints {
    pattern: ScopePattern,
    matched: usize,
    paths: Vec<String>,
}

impl Visitor {
    /// Visits a parameter. A tensor shared by several modules is counted only at the first visit.
    pub fn parameter(&mut self, name: &str, tensor: &Tensor) {
        if self.found.iter().any(|parameter| parameter.tensor.id() == tensor.id()) {
            return;
        }
        let path = format!("{}{name}", self.path);
        let scope = scope::current_scope();
        self.found.push(Parameter { path, scope, tensor: tensor.clone() });
    }

    /// Visits a buffer.
    pub fn buffer(&mut self, name: &str, tensor: &Tensor) {
        let (path, scope) = (format!("{}{name}", self.path), scope::current_scope());
        self.buffers.push(Buffer { path, scope, tensor: tensor.clone() });
    }

    /// Visits the module's mode.
    pub fn mode(&self, mode: &Mode) {
        if let Some(training) = self.training {
            mode.0.store(training, Ordering::Relaxed);
        }
    }

    /// Visits a child.
    pub fn child<M: Module>(&mut self, child: &Child<M>) {
        let _scope = scope::scope(&child.name);
        let length = self.path.len();
        write!(self.path, "{}", child.name).expect("writing to a string cannot fail");
        if let Some(checkpoints) = &mut self.checkpoints {
            if checkpoints.pattern.matches(&self.path) {
                checkpoints.matched += 1;
                child.is_checkpointed.store(true, Ordering::Relaxed);
            }
            checkpoints.paths.push(self.path.clone());
        }
        self.path.push('.');
        child.module.visit(self);
        self.path.truncate(length);
    }
}

/// A module with the name that its parent gives it.
#[derive(Debug)]
pub struct Child<M> {
    name: Box<str>,
    module: Arc<M>,
    is_checkpointed: AtomicBool,
}

impl<M> Child<M> {
    /// Creates a child within its scope, so that its parameters are recorded there.
    ///
    /// # Errors
    /// Fails if `make` fails.
    pub fn new(name: impl Into<Box<str>>, init: &mut Init, make: impl FnOnce(&mut Init) -> Result<M>) -> Result<Self> {
        let name = name.into();
        let _scope = scope::scope(&name);
        Ok(Self { module: Arc::new(make(init)?), name, is_checkpointed: AtomicBool::new(false) })
    }
}

impl<M: Send + Sync + 'static> Child<M> {
    /// Calls `body`, a forward function of the module, with `inputs` and within the child's scope. The inputs are
    /// passed by value, so that `body` can free them or overwrite them with its result.
    ///
    /// If the child is [checkpointed](checkpoint_scopes), `body` is recomputed in backward. It must then compute the
    /// same result, and every tensor that requires a gradient, other than the module's parameters, must be an input.
    ///
    /// # Errors
    /// Fails if `body` fails.
    pub fn run<const N: usize>(
        &self,
        inputs: [Tensor; N],
        body: impl Fn(&M, [Tensor; N]) -> Result<Tensor> + Send + Sync + 'static,
    ) -> Result<Tensor> {
        let _scope = scope::scope(&self.name);
        if autograd::is_grad_enabled() {
            scope::forward();
        }
        if !self.is_checkpointed.load(Ordering::Relaxed) {
            return body(&self.module, inputs);
        }
        let module = self.module.clone();
        let kept: Vec<&Tensor> = inputs.iter().collect();
        autograd::checkpoint(&kept, move |inputs| body(&module, std::array::from_fn(|input| inputs[input].clone())))
    }
}

impl<M: Module> Child<M> {
    /// Calls the module's forward within its scope.
    ///
    /// # Errors
    /// Fails if the module's forward fails.
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.run([input.clone()], |module, [input]| module.forward(&input))
    }

    /// Calls the module's `forward_into` within its scope.
    ///
    /// # Errors
    /// Fails if the module's `forward_into` fails.
    pub fn forward_into(&self, input: Tensor) -> Result<Tensor> {
        self.run([input], |module, [input]| module.forward_into(input))
    }
}

impl<M> Deref for Child<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.module
    }
}

/// Modules in sequence, named `0`, `1` and so on.
#[derive(Debug)]
pub struct Sequence<M> {
    children: Vec<Child<M>>,
}

impl<M> Sequence<M> {
    /// Creates `count` modules with `make`, which receives the position of each.
    ///
    /// # Errors
    /// Fails if `make` fails.
    pub fn new(count: usize, init: &mut Init, mut make: impl FnMut(usize, &mut Init) -> Result<M>) -> Result<Self> {
        let child = |position: usize| Child::new(position.to_string(), init, |init| make(position, init));
        Ok(Self { children: (0..count).map(child).collect::<Result<_>>()? })
    }

    /// Returns an iterator over the modules in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Child<M>> {
        self.children.iter()
    }
}

impl<M: Module> Module for Sequence<M> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let mut result = input.clone();
        for child in &self.children {
            result = child.forward(&result)?;
        }
        Ok(result)
    }

    crate::visit_fields!(children);
}
