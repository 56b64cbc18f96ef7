//! Nodes of the autograd graph, with the saved tensors of an operation, the destinations of its gradients, and the
//! accumulation of gradients.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use highwater_recorder::{Category, OpId, ScopeId, StreamId, scope};

use super::{Tensor, lock};
use crate::backend::{self, Binary};
use crate::{Result, Shape};

/// The backward of an operation. It owns the tensors saved by forward, and releases them when it runs.
pub trait Gradient: Send {
    /// Computes the inputs' gradients from the result's, and passes each to `inputs`. Gradients that are not
    /// [needed](InputGradients::needs) should not be computed. Saved tensors should be dropped, or overwritten with a
    /// gradient, as soon as they are no longer needed.
    ///
    /// # Errors
    /// Fails if a saved tensor was changed in place, or if memory runs out.
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()>;
}

impl<F: FnOnce(Tensor, &mut InputGradients<'_>) -> Result<()> + Send> Gradient for F {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        (*self)(grad, inputs)
    }
}

/// Returns `back`, a function that implements [`Gradient`] and captures the values saved by forward.
pub fn gradient<F: FnOnce(Tensor, &mut InputGradients<'_>) -> Result<()> + Send>(back: F) -> F {
    back
}

pub(crate) struct Node {
    pub(crate) name: &'static str,
    /// The id of the forward operation in recordings, also used for its backward.
    pub(crate) op: OpId,
    /// The module in which the operation and its backward run.
    pub(crate) scope: ScopeId,
    /// The stream on which the operation and its backward run.
    pub(crate) stream: StreamId,
    /// A number that increases in the order of execution, so that backward can run in reverse.
    pub(crate) sequence: u64,
    pub(crate) shape: Shape,
    work: Mutex<Option<Work>>,
}

/// The backward work of a node, which is done once.
pub(crate) struct Work {
    pub(crate) gradient: Box<dyn Gradient>,
    /// One destination per input; `None` if no gradient is required.
    pub(crate) edges: Vec<Option<Edge>>,
}

/// The destination of an input's gradient.
#[derive(Clone)]
pub(crate) enum Edge {
    /// The operation that computed the input.
    Node(Arc<Node>),
    /// The gradient of the input itself.
    Leaf(Tensor),
}

impl Edge {
    /// Returns the destination of the gradients of `tensor`; `None` if it requires none.
    pub(crate) fn to(tensor: &Tensor) -> Option<Self> {
        match tensor.node() {
            Some(node) => Some(Self::Node(node.clone())),
            None => tensor.requires_grad().then(|| Self::Leaf(tensor.clone())),
        }
    }

    pub(crate) fn shape(&self) -> &Shape {
        match self {
            Self::Node(node) => &node.shape,
            Self::Leaf(leaf) => leaf.shape(),
        }
    }
}

impl Node {
    /// Creates a node for the operation that runs on this thread and has computed `output`.
    pub(crate) fn new(name: &'static str, output: &Tensor, work: Work) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let sequence = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            name,
            op: scope::current_op(),
            scope: scope::current_scope(),
            stream: output.device().stream(),
            sequence,
            shape: *output.shape(),
            work: Mutex::new(Some(work)),
        })
    }

    /// Returns an id that no other live node has.
    pub(crate) fn id(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }

    /// Removes and returns the work; `None` if it was already taken.
    pub(crate) fn take_work(&self) -> Option<Work> {
        lock(&self.work).take()
    }

    /// Calls `visit` with each edge, unless the work is done.
    pub(crate) fn each_edge(&self, visit: impl FnMut(&Edge)) {
        if let Some(work) = &*lock(&self.work) {
            work.edges.iter().flatten().for_each(visit);
        }
    }
}

impl Drop for Node {
    /// Drops long chains of nodes one after another, since nested drops would overflow the stack.
    fn drop(&mut self) {
        let mut edges: Vec<Edge> = Vec::new();
        let loosen = |node: &mut Self, edges: &mut Vec<Edge>| {
            if let Some(work) = node.take_work() {
                edges.extend(work.edges.into_iter().flatten());
            }
        };
        loosen(self, &mut edges);
        while let Some(edge) = edges.pop() {
            if let Edge::Node(node) = edge
                && let Some(mut node) = Arc::into_inner(node)
            {
                loosen(&mut node, &mut edges);
            }
        }
    }
}

/// The accumulated gradients of a backward pass, by node. Contains only nodes whose backward has not run yet.
pub(crate) struct Sums {
    by_node: HashMap<usize, Sum>,
    /// The stream of the caller of backward, on which gradients of leaves are accumulated.
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

    /// Returns the gradient for use on the thread's current stream.
    fn here(self) -> Result<Tensor> {
        let device = self.tensor.device();
        if device.stream() != self.stream {
            let here = device.current_stream();
            here.wait_for(&device.stream_of(self.stream))?;
            self.tensor.record_stream(&here)?;
        }
        Ok(self.tensor)
    }

    /// Returns whether the thread's current stream can add to the gradient in place.
    fn is_usable(&self) -> bool {
        let is_here = self.tensor.device().stream() == self.stream;
        is_here && self.tensor.is_contiguous() && self.tensor.is_free_to_write()
    }
}

impl Sums {
    pub(crate) fn new(result: &Tensor) -> Self {
        Self { by_node: HashMap::new(), caller: result.device().stream() }
    }

    /// Sets a node's gradient, as far as it is accumulated.
    pub(crate) fn begin(&mut self, node: usize, grad: Tensor) {
        self.by_node.insert(node, Sum::new(grad));
    }

    /// Returns whether a node has a gradient, or part of one.
    pub(crate) fn has(&self, node: usize) -> bool {
        self.by_node.contains_key(&node)
    }

    /// Takes a node's gradient for use on the thread's current stream.
    pub(crate) fn take(&mut self, node: usize) -> Result<Option<Tensor>> {
        self.by_node.remove(&node).map(Sum::here).transpose()
    }
}

/// The destinations of the gradients that an operation's backward computes, one for each input.
pub struct InputGradients<'a> {
    edges: &'a [Option<Edge>],
    sums: &'a mut Sums,
}

impl<'a> InputGradients<'a> {
    pub(crate) fn new(edges: &'a [Option<Edge>], sums: &'a mut Sums) -> Self {
        Self { edges, sums }
    }

    /// Returns whether the gradient of input `input` is required.
    pub fn needs(&self, input: usize) -> bool {
        self.edges.get(input).is_some_and(Option::is_some)
    }

    /// Accumulates a gradient of input `input`. The first gradient is moved, or copied if the input is a leaf and the
    /// memory is shared or contains more. Later gradients are added in place if the memory of either is not shared. A
    /// gradient that is not required is dropped.
    ///
    /// # Errors
    /// Fails if memory runs out.
    ///
    /// # Panics
    /// Panics if the gradient and the input differ in shape.
    pub fn give(&mut self, input: usize, grad: Tensor) -> Result<()> {
        let Some(Some(edge)) = self.edges.get(input) else {
            return Ok(());
        };
        assert_eq!(grad.shape(), edge.shape(), "the gradient differs from the tensor in shape");
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

    /// Takes the accumulated gradient of input `input`; `None` if there is none, if it is shared or not contiguous,
    /// or if another stream wrote it last. The caller's kernel adds to it, and passes it [back](Self::give).
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
                leaf.set_grad(sum.tensor).expect("the gradient cannot be put back");
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

    /// Like [`Self::take_sum`], but returns contiguous zeros instead of `None`. The caller adds to it and then [passes
    /// it back](Self::give). It is recorded as a gradient if the input is a leaf.
    ///
    /// # Errors
    /// Fails if memory runs out.
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

    /// Returns the tensor of [`Self::take_sum`] and 1, or, instead of `None`, new, contiguous, uninitialized memory and
    /// 0. The number is the factor of the existing contents in the result to [pass back](Self::give). The memory is
    /// recorded as a gradient if the input is a leaf.
    ///
    /// # Errors
    /// Fails if memory runs out.
    pub fn take_sum_or_new(&mut self, input: usize, like: &Tensor) -> Result<(Tensor, f64)> {
        match self.take_sum(input) {
            Some(sum) => Ok((sum, 1.0)),
            None => Ok((self.allocate(input, like)?, 0.0)),
        }
    }

    /// Allocates contiguous, uninitialized memory for the gradient of input `input`, with the type and device of
    /// `like`.
    ///
    /// # Errors
    /// Fails if memory runs out.
    pub fn allocate(&self, input: usize, like: &Tensor) -> Result<Tensor> {
        let edge = self.edges.get(input).and_then(Option::as_ref);
        let _category = matches!(edge, Some(Edge::Leaf(_))).then(|| scope::category(Category::Gradient));
        let shape = edge.map_or(*like.shape(), |edge| *edge.shape());
        Tensor::empty(shape, like.dtype(), like.device())
    }

    /// Accumulates the gradient of a part of input `input`, which consists of the elements of `grad`, from `start`
    /// along `axis`. The rest of the gradient is zero, or comes from other parts.
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

    /// Returns the shape of input `input`; `None` if its gradient is not required.
    pub fn shape(&self, input: usize) -> Option<&Shape> {
        self.edges.get(input)?.as_ref().map(Edge::shape)
    }
}
