//! Gradients: where an operation's backward puts what it computed, and how contributions are added up.

use std::collections::HashMap;

use highwater_recorder::{Category, StreamId, scope};

use super::Tensor;
use super::node::Edge;
use crate::backend::{self, Binary};
use crate::error::Result;
use crate::shape::Shape;

/// The sums of a backward pass that are under way: by node, for those that have not run yet.
pub(crate) struct Sums {
    by_node: HashMap<usize, Sum>,
    /// The stream of whoever called backward, on which gradients of leaves are added up.
    caller: StreamId,
}

/// A gradient, and the stream that wrote it last.
struct Sum {
    tensor: Tensor,
    stream: StreamId,
}

impl Sum {
    fn new(tensor: Tensor) -> Self {
        let stream = tensor.device().stream();
        Self { tensor, stream }
    }

    /// The gradient, for the stream that the thread is in now.
    fn here(self) -> Result<Tensor> {
        let device = self.tensor.device();
        if device.stream() != self.stream {
            let here = device.current_stream();
            here.wait_for(&device.stream_of(self.stream))?;
            self.tensor.record_stream(&here)?;
        }
        Ok(self.tensor)
    }

    /// Whether the stream that the thread is in now can add to it in place.
    fn is_usable(&self) -> bool {
        let is_here = self.tensor.device().stream() == self.stream;
        is_here && self.tensor.is_contiguous() && self.tensor.is_free_to_write()
    }
}

impl Sums {
    /// None yet, of a backward pass from `result`.
    pub(crate) fn new(result: &Tensor) -> Self {
        Self { by_node: HashMap::new(), caller: result.device().stream() }
    }

    /// Gives a node its whole gradient.
    pub(crate) fn begin(&mut self, node: usize, grad: Tensor) {
        self.by_node.insert(node, Sum::new(grad));
    }

    /// Whether a node has a gradient, or a part of it.
    pub(crate) fn has(&self, node: usize) -> bool {
        self.by_node.contains_key(&node)
    }

    /// Takes a node's gradient out, for the stream that the thread is in.
    pub(crate) fn take(&mut self, node: usize) -> Result<Option<Tensor>> {
        self.by_node.remove(&node).map(Sum::here).transpose()
    }
}

/// What an operation's backward gives its results to: one place for each input.
pub struct InputGradients<'a> {
    edges: &'a [Option<Edge>],
    sums: &'a mut Sums,
}

impl<'a> InputGradients<'a> {
    pub(crate) fn new(edges: &'a [Option<Edge>], sums: &'a mut Sums) -> Self {
        Self { edges, sums }
    }

    /// Whether anybody wants the gradient of input `input`.
    pub fn needs(&self, input: usize) -> bool {
        self.edges.get(input).is_some_and(Option::is_some)
    }

    /// Gives the gradient of input `input`, or a contribution to it. It is moved, not copied, where it is the first; it is
    /// added in place where the memory of either is free; it is dropped where nobody wants it.
    pub fn give(&mut self, input: usize, grad: Tensor) -> Result<()> {
        let Some(Some(edge)) = self.edges.get(input) else {
            return Ok(());
        };
        assert_eq!(grad.shape(), edge.shape(), "a gradient has the shape of its tensor");
        match edge {
            Edge::Leaf(leaf) => {
                let sum = Sum::new(grad);
                let _stream = leaf.device().enter_stream(self.sums.caller);
                leaf.add_grad(sum.here()?)
            }
            Edge::Node(node) => {
                let sum = match self.sums.take(node.id())? {
                    Some(existing) => existing.accumulate(grad)?,
                    None => grad,
                };
                self.sums.begin(node.id(), sum);
                Ok(())
            }
        }
    }

    /// Takes the sum so far of input `input`, if there is one whose memory is free and contiguous: to be added to by the
    /// kernel itself, and then [given](Self::give) back.
    pub fn take_sum(&mut self, input: usize) -> Option<Tensor> {
        let Some(Some(edge)) = self.edges.get(input) else {
            return None;
        };
        match edge {
            Edge::Leaf(leaf) => {
                let sum = Sum { tensor: leaf.take_grad()?, stream: self.sums.caller };
                if sum.is_usable() {
                    return Some(sum.tensor);
                }
                leaf.set_grad(sum.tensor).expect("a gradient goes back to where it was");
                None
            }
            Edge::Node(node) => {
                let sum = self.sums.by_node.remove(&node.id())?;
                if sum.is_usable() {
                    return Some(sum.tensor);
                }
                self.sums.by_node.insert(node.id(), sum);
                None
            }
        }
    }

    /// The sum so far of input `input`, contiguous, or zeros: to be added to and then [given](Self::give). Named a
    /// gradient in recordings if it is a leaf's.
    pub fn take_sum_or_zeros(&mut self, input: usize, like: &Tensor) -> Result<Tensor> {
        match self.take_sum(input) {
            Some(sum) => Ok(sum),
            None => {
                let sum = self.allocate(input, like)?;
                backend::fill(sum.view(), 0.0)?;
                Ok(sum)
            }
        }
    }

    /// The sum so far of input `input`, contiguous, and 1; or new memory, whose content is unspecified, and 0: the factor
    /// of what is there, for what is to be [given](Self::give). Named a gradient in recordings if it is a leaf's.
    pub fn take_sum_or_new(&mut self, input: usize, like: &Tensor) -> Result<(Tensor, f64)> {
        match self.take_sum(input) {
            Some(sum) => Ok((sum, 1.0)),
            None => Ok((self.allocate(input, like)?, 0.0)),
        }
    }

    /// Contiguous memory for the gradient of input `input`, of `like`'s type and device; its content is unspecified.
    pub fn allocate(&self, input: usize, like: &Tensor) -> Result<Tensor> {
        let edge = self.edges.get(input).and_then(Option::as_ref);
        let _category = matches!(edge, Some(Edge::Leaf(_))).then(|| scope::category(Category::Gradient));
        let shape = edge.map_or(*like.shape(), |edge| *edge.shape());
        Tensor::empty(shape, like.dtype(), like.device())
    }

    /// Gives the gradient of a part of input `input`: `grad`'s elements from `start` on along `axis`. The rest of the
    /// gradient is zero, or what other parts gave.
    pub(crate) fn give_part(&mut self, input: usize, axis: usize, start: usize, grad: &Tensor) -> Result<()> {
        if !self.needs(input) {
            return Ok(());
        }
        let existing = self.take_sum(input);
        let is_new = existing.is_none();
        let whole = match existing {
            Some(sum) => sum,
            None => {
                let whole = self.allocate(input, grad)?;
                backend::fill(whole.view(), 0.0)?;
                whole
            }
        };
        let layout = whole.layout().narrow("narrow", axis, start, grad.shape()[axis])?;
        let part = backend::View { layout: &layout, ..whole.view() };
        if is_new {
            backend::copy(part, grad.view())?;
        } else {
            backend::binary(part, Binary::Add, None, grad.view())?;
        }
        self.give(input, whole)
    }

    /// The shape of input `input`, if its gradient is wanted.
    pub fn shape(&self, input: usize) -> Option<&Shape> {
        self.edges.get(input)?.as_ref().map(Edge::shape)
    }
}
