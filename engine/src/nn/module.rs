//! Module: what all layers have in common, and how they are put together.

use std::fmt::Write as _;
use std::ops::Deref;

use highwater_recorder::{ScopeId, scope};

use super::init::Init;
use crate::error::Result;
use crate::tensor::Tensor;

/// A function with parameters.
pub trait Module {
    /// Computes the result for `input`.
    fn forward(&self, input: &Tensor) -> Result<Tensor>;

    /// Names the module's own parameters and its children to `visitor`, in the order in which they were made.
    fn visit(&self, visitor: &mut Visitor);

    /// All parameters, those of children included, in the order in which they were made.
    fn parameters(&self) -> Vec<Parameter> {
        let mut visitor = Visitor { path: String::new(), found: Vec::new() };
        self.visit(&mut visitor);
        visitor.found
    }
}

/// A tensor that training changes, and where it belongs.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its path from the model, as `encoder.layers.3.mlp.fc1.weight`.
    pub path: String,
    /// The module that it belongs to, as recordings name it.
    pub scope: ScopeId,
    /// The tensor itself.
    pub tensor: Tensor,
}

/// Collects parameters on its way through a model.
#[derive(Debug)]
pub struct Visitor {
    path: String,
    found: Vec<Parameter>,
}

impl Visitor {
    /// The module has this parameter. A tensor that several modules share counts once, where it is met first.
    pub fn parameter(&mut self, name: &str, tensor: &Tensor) {
        if self.found.iter().any(|parameter| parameter.tensor.id() == tensor.id()) {
            return;
        }
        let path = format!("{}{name}", self.path);
        let scope = scope::current_scope();
        self.found.push(Parameter { path, scope, tensor: tensor.clone() });
    }

    /// The module has this child.
    pub fn child<M: Module>(&mut self, child: &Child<M>) {
        let _scope = scope::scope(&child.name);
        let length = self.path.len();
        write!(self.path, "{}.", child.name).expect("writing to a string cannot fail");
        child.module.visit(self);
        self.path.truncate(length);
    }
}

/// A module under the name that its parent gives it.
#[derive(Debug)]
pub struct Child<M> {
    name: Box<str>,
    module: M,
}

impl<M> Child<M> {
    /// Makes a child within its scope, so that its parameters are recorded there.
    pub fn new(name: impl Into<Box<str>>, init: &mut Init, make: impl FnOnce(&mut Init) -> Result<M>) -> Result<Self> {
        let name = name.into();
        let _scope = scope::scope(&name);
        Ok(Self { module: make(init)?, name })
    }

    /// Calls `body` with the module, within its scope.
    pub fn within<R>(&self, body: impl FnOnce(&M) -> R) -> R {
        let _scope = scope::scope(&self.name);
        body(&self.module)
    }
}

impl<M: Module> Child<M> {
    /// The module's forward, within its scope.
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.within(|module| module.forward(input))
    }
}

impl<M> Deref for Child<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.module
    }
}

/// Modules one after another, named `0`, `1` and so on.
#[derive(Debug)]
pub struct Sequence<M> {
    children: Vec<Child<M>>,
}

impl<M> Sequence<M> {
    /// Makes `count` modules; `make` is told the position.
    pub fn new(count: usize, init: &mut Init, mut make: impl FnMut(usize, &mut Init) -> Result<M>) -> Result<Self> {
        let child = |position: usize| Child::new(position.to_string(), init, |init| make(position, init));
        Ok(Self { children: (0..count).map(child).collect::<Result<_>>()? })
    }

    /// The modules in order.
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

    fn visit(&self, visitor: &mut Visitor) {
        for child in &self.children {
            visitor.child(child);
        }
    }
}
