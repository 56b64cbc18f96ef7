//! Nodes of the autograd graph: the saved tensors of an operation, where its gradients go, and how contributions to a
//! gradient accumulate.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use highwater_recorder::{Category, OpId, ScopeId, StreamId, scope};

use super::{Tensor, lock};
use crate::backend::{self, Binary};
use crate::error::Result;
use crate::shape::Shape;

/// The backward half of an operation. It owns what forward saved for it, and gives it up when it runs.
pub trait Gradient: Send {
    /// Computes the inputs' gradients from the result's, and gives each to `inputs`. Gradients that nobody
    /// [needs](InputGradients::needs) are not to be computed. Saved tensors should be dropped, or overwritten with a
    /// gradient, as soon as they have served.
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()>;
}

/// An operation that ran forward.
pub(crate) struct Node {
    pub(crate) name: &'static str,
    /// The forward operation's number in recordings; its backward carries it too.
    pub(crate) op: OpId,
    /// The module in which it ran; its backward runs there too.
    pub(crate) scope: ScopeId,
    /// The stream on which it ran; its backward runs there too.
    pub(crate) stream: StreamId,
    /// Grows in the order of execution, so that backward can walk in the reverse of it.
    pub(crate) sequence: u64,
    /// The result's shape.
    pub(crate) shape: Shape,
    work: Mutex<Option<Work>>,
}

/// What a node does once, in backward.
pub(crate) struct Work {
    pub(crate) gradient: Box<dyn Gradient>,
    /// By input; none where no gradient is wanted.
    pub(crate) edges: Vec<Option<Edge>>,
}

/// Where an input's gradient goes.
#[derive(Clone)]
pub(crate) enum Edge {
    /// On to the operation that computed the input.
    Node(Arc<Node>),
    /// Into the gradient of the input itself.
    Leaf(Tensor),
}

impl Edge {
    /// Where gradients of `tensor` go, if it requires any.
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
    /// A node for the operation that runs on this thread and has computed `output`.
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

    /// Tells this node from all others that live.
    pub(crate) fn id(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }

    /// Takes the work out: it can be done once.
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
    /// Takes long chains of nodes apart one after another; nested drops would overflow the stack.
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

    /// Gives the gradient of input `input`, or a contribution to it. It is moved, not copied, where it is the first; it
    /// is added in place where the memory of either is free; it is dropped where nobody wants it.
    pub fn give(&mut self, input: usize, grad: Tensor) -> Result<()> {
        let Some(Some(edge)) = self.edges.get(input) else {
            return Ok(());
        };
        assert_eq!(grad.shape(), edge.shape(), "expected a gradient of the tensor's shape");
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

    /// Takes the sum so far of input `input`, if there is one whose memory is free and contiguous: to be added to by
    /// the kernel itself, and then [given](Self::give) back.
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

    /// The sum so far of input `input`, contiguous, and 1; or new memory, whose content is unspecified, and 0: the
    /// factor of what is there, for what is to be [given](Self::give). Named a gradient in recordings if it is a
    /// leaf's.
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
