//! Backward, which walks the graph from a result to the leaves.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use highwater_recorder::scope::PhaseGuard;
use highwater_recorder::{Category, Phase, scope};

use crate::tensor::grad_mode::no_grad;
use crate::tensor::node::{Edge, InputGradients, Node, Sums};
use crate::{Error, Result, Tensor};

impl Tensor {
    /// Computes the gradients of this scalar with respect to all leaves that require them, and adds each gradient to
    /// its leaf. Frees saved tensors during the pass, so a second backward through the same operations fails.
    ///
    /// # Errors
    /// Fails if the tensor does not have exactly one element or requires no gradient, if an earlier backward has freed
    /// the saved tensors, if a saved tensor was changed in place, if a hook fails, or if memory runs out.
    pub fn backward(&self) -> Result<()> {
        if self.elements() != 1 {
            return Err(Error::NotScalar { shape: self.shape().to_string().into() });
        }
        self.check_graph()?;
        let phase = backward_phase();
        let one = {
            let _category = scope::category(Category::Temporary);
            self.ones_like()?
        };
        let outcome = walk(self, one);
        drop(phase);
        outcome
    }

    /// Like [`Self::backward`], for a result of any shape with the gradient `grad`.
    ///
    /// # Errors
    /// Fails if the shape, dtype or device of `grad` differ from those of the result, and for the reasons in
    /// [`Self::backward`].
    pub fn backward_from(&self, grad: Self) -> Result<()> {
        let op = "backward_from";
        if grad.shape() != self.shape() {
            return Err(Error::shapes(op, grad.shape(), self.shape(), "expected a gradient of the tensor's shape"));
        }
        self.check_operand(op, &grad)?;
        self.check_graph()?;
        let _phase = backward_phase();
        walk(self, grad)
    }

    fn check_graph(&self) -> Result<()> {
        if self.requires_grad() { Ok(()) } else { Err(Error::NoGraph) }
    }
}

/// Enters phase backward, even within a phase marked by the program.
pub(crate) fn backward_phase() -> PhaseGuard {
    scope::phase_of_call(Phase::Backward).unwrap_or_else(|| scope::phase(Phase::Backward))
}

fn walk(result: &Tensor, grad: Tensor) -> Result<()> {
    let _mode = no_grad();
    let Some(root) = result.node() else {
        let edges = [Edge::to(result)];
        InputGradients::new(&edges, &mut Sums::new(result)).give(0, grad)?;
        return result.run_hooks();
    };
    let (mut nodes, mut contributions) = reachable(root);
    // Later operations first. Every consumer of a result runs before its producer, so each node has its complete
    // gradient.
    nodes.sort_unstable_by_key(|node| node.sequence);
    let mut sums = Sums::new(result);
    sums.begin(root.id(), grad);
    while let Some(node) = nodes.pop() {
        let Some(work) = node.take_work() else {
            match sums.has(node.id()) {
                true => return Err(Error::Consumed { op: node.name }),
                false => continue,
            }
        };
        let stream = result.device().enter_stream(node.stream);
        if let Some(grad) = sums.take(node.id())? {
            let _op = scope::resume_op(node.op);
            let _scope = scope::enter_scope_id(node.scope);
            let _category = scope::category(Category::Temporary);
            work.gradient.backward(grad, &mut InputGradients::new(&work.edges, &mut sums))?;
        }
        drop(stream);
        for edge in work.edges.iter().flatten() {
            if let Edge::Leaf(leaf) = edge {
                let left = contributions.get_mut(&leaf.id()).expect("a reachable leaf was not counted");
                *left -= 1;
                if *left == 0 && leaf.grad().is_some() {
                    leaf.run_hooks()?;
                }
            }
        }
    }
    Ok(())
}

/// Returns all nodes that gradients from `root` can reach, and the number of edges to each leaf, by the leaf's id.
fn reachable(root: &Arc<Node>) -> (Vec<Arc<Node>>, HashMap<usize, usize>) {
    let mut nodes = vec![root.clone()];
    let mut seen = HashSet::from([root.id()]);
    let mut contributions = HashMap::new();
    let mut next = 0;
    while next < nodes.len() {
        let node = nodes[next].clone();
        next += 1;
        node.each_edge(|edge| match edge {
            Edge::Leaf(leaf) => *contributions.entry(leaf.id()).or_insert(0) += 1,
            Edge::Node(node) => {
                if seen.insert(node.id()) {
                    nodes.push(node.clone());
                }
            }
        });
    }
    (nodes, contributions)
}
