//! Starts operations and adds them to the graph.

use std::sync::Arc;

use highwater_recorder::Category;
use highwater_recorder::scope::{self, ContextGuard};

use crate::Tensor;
use crate::tensor::grad_mode::is_grad_enabled;
use crate::tensor::node::{Edge, Gradient, Node, Work};
use crate::tensor::recipe::Offer;

/// A running operation of forward. It has an id in recordings, and its allocations are temporary until they are tagged
/// otherwise. Created first in an operation and kept to its end.
#[must_use = "dropping the operation immediately ends it"]
#[derive(Debug)]
pub struct Operation {
    name: &'static str,
    // Dropped in this order, the reverse of the order in which they were entered.
    _category: ContextGuard,
    _op: ContextGuard,
}

impl Operation {
    /// Begins an operation. If any of `inputs` adds the operation to the graph, the program is in phase forward.
    /// Otherwise the operation may be the first of a network, unless gradients are off or all inputs are single
    /// numbers, as in metrics. An operation that allocates nothing, such as a view, or that is not part of a model
    /// passes no inputs.
    pub fn begin(name: &'static str, inputs: &[&Tensor]) -> Self {
        if Self::is_recorded(inputs) {
            scope::forward();
        } else if is_grad_enabled() && inputs.iter().any(|input| input.elements() > 1) {
            scope::operation();
        }
        let op = scope::op(name);
        Self { name, _category: scope::category(Category::Temporary), _op: op }
    }

    /// Returns the operation's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns whether operations on this thread are recorded at all.
    pub(crate) fn is_recording() -> bool {
        is_grad_enabled()
    }

    /// Returns whether an operation on these inputs is recorded, and therefore must save tensors.
    pub(crate) fn is_recorded(inputs: &[&Tensor]) -> bool {
        is_grad_enabled() && inputs.iter().any(|input| input.requires_grad())
    }

    /// Adds the operation that computed `output` from `inputs` to the graph, if any input requires a gradient and
    /// gradients are enabled. `gradient` creates the operation's backward, and saves the tensors for it. Its argument
    /// states for each input whether it requires a gradient.
    pub fn record<G: Gradient + 'static>(
        &self,
        output: Tensor,
        inputs: &[&Tensor],
        gradient: impl FnOnce(&[bool]) -> G,
    ) -> Tensor {
        if !Self::is_recorded(inputs) {
            return output;
        }
        let edges: Vec<Option<Edge>> = inputs.iter().map(|input| Edge::to(input)).collect();
        let needs: Vec<bool> = edges.iter().map(Option::is_some).collect();
        let work = Work { gradient: Box::new(gradient(&needs)), edges };
        let node = Node::new(self.name, &output, work);
        output.computed_by(node)
    }

    /// Like [`Self::record`], for an operation whose result can be recomputed from `known`, which `gradient` also
    /// refers to.
    pub(crate) fn record_known<K: Offer + 'static, G: Gradient + 'static>(
        &self,
        output: Tensor,
        inputs: &[&Tensor],
        known: impl FnOnce() -> K,
        gradient: impl FnOnce(Arc<K>) -> G,
    ) -> Tensor {
        if !Self::is_recorded(inputs) {
            return output;
        }
        let known = Arc::new(known());
        let offer = known.clone();
        self.record(output, inputs, |_| gradient(known)).with_recipe(&offer)
    }
}
