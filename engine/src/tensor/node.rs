//! Node: an operation in the graph that backward walks, with what it saved and where its gradients go.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use highwater_recorder::{OpId, ScopeId, StreamId, scope};

use super::gradients::InputGradients;
use super::{Tensor, lock};
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
