//! Checkpointed parts of a model, which save only their inputs and are recomputed in backward.
//!
//! Forward builds the graph as usual, but counts each tensor that an operation saves instead of saving it. The
//! operation keeps a [`Slot`], the index of the save. The first operation that reads its slot in backward runs the part
//! again, with the same random numbers. That run saves the same tensors in the same order, and they fill the slots.
//! Each is freed after its operation. The gradients, hooks and op ids are therefore those of the graph built by forward
//! (the scheme of PyTorch's non-reentrant checkpoint; the idea is Chen et al.: "Training Deep Nets with Sublinear
//! Memory Cost", 2016).

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_recorder::{Category, ScopeId, scope};

use crate::rng::{Draw, tape};
use crate::tensor::autocast::{self, AutocastGuard};
use crate::tensor::grad_mode::{RecomputeGuard, enable_grad, recomputes};
use crate::{DType, Error, Result, Tensor};

type Part = dyn Fn(&[Tensor]) -> Result<Tensor> + Send + Sync;

/// Returns the saved inputs for an operation that needs them.
type Inputs = dyn FnOnce(&'static str) -> Result<Vec<Tensor>> + Send;

/// A checkpointed part, which backward runs again.
pub(crate) struct Frame {
    part: Box<Part>,
    scope: ScopeId,
    recomputes: bool,
    products: Option<DType>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Returns the inputs as leaves; `None` after the part has been recomputed.
    inputs: Option<Box<Inputs>>,
    draws: Vec<Draw>,
    /// The saved tensors, by the index of the save.
    saves: Vec<Save>,
}

enum Save {
    /// The recomputed part has not saved this tensor yet.
    Awaited,
    Filled {
        tensor: Tensor,
        version: u32,
    },
    /// The operation has run its backward, or keeps a recipe instead of a slot.
    Done,
}

/// One tensor that an operation would have saved.
pub(crate) struct Slot {
    frame: Arc<Frame>,
    number: usize,
}

thread_local! {
    static RUNNING: RefCell<Vec<Running>> = const { RefCell::new(Vec::new()) };
}

/// The state of a checkpointed part that runs on this thread.
enum Running {
    First(Arc<Frame>),
    /// The recomputation. `saved` has the tensors saved up to now; `wanted` is, for each save in order, whether the
    /// tensor is needed.
    Again {
        wanted: Vec<bool>,
        saved: Vec<Save>,
    },
}

/// The treatment of a tensor that an operation saves.
pub(crate) enum Verdict {
    Keep,
    /// Keep the tensor only until the recomputation ends, since no backward reads it.
    Forget,
    Await(Slot),
}

fn lock(frame: &Frame) -> MutexGuard<'_, State> {
    frame.state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Frame {
    /// Runs the checkpointed part `part` with the tensors `given`. Stores `inputs`, which returns the same tensors for
    /// the recomputation.
    pub(super) fn run(given: &[Tensor], inputs: Box<Inputs>, part: Box<Part>) -> Result<Tensor> {
        let state = Mutex::new(State { inputs: Some(inputs), ..State::default() });
        let (recomputes, products) = (recomputes(), autocast::of_products());
        let frame = Arc::new(Self { part, scope: scope::current_scope(), recomputes, products, state });
        let running = Guard::push(Running::First(frame.clone()));
        let (result, draws) = tape::note(|| (frame.part)(given));
        drop(running);
        lock(&frame).draws = draws;
        result
    }

    /// Runs the part again, and fills the slots that are still empty.
    fn run_again(&self, op: &'static str) -> Result<()> {
        let (inputs, draws, wanted) = {
            let mut state = lock(self);
            let wanted: Vec<bool> = state.saves.iter().map(|save| matches!(save, Save::Awaited)).collect();
            (state.inputs.take(), std::mem::take(&mut state.draws), wanted)
        };
        let inputs = inputs.ok_or_else(|| changed(op))?(op)?;
        let _mode = enable_grad();
        let _way = RecomputeGuard::set(self.recomputes);
        let _products = AutocastGuard::set(self.products);
        let _scope = scope::enter_scope_id(self.scope);
        let _category = scope::category(Category::Temporary);
        let count = wanted.len();
        let running = Guard::push(Running::Again { wanted, saved: Vec::with_capacity(count) });
        let result = tape::play(&draws, || (self.part)(&inputs));
        let saved = running.pop_saved();
        drop((result?, inputs));
        if saved.len() != count {
            return Err(changed(op));
        }
        let mut state = lock(self);
        for (save, filled) in state.saves.iter_mut().zip(saved) {
            if let Save::Awaited = save {
                *save = filled;
            }
        }
        Ok(())
    }
}

fn changed(op: &'static str) -> Error {
    let what = "a checkpointed function saved different tensors when it was recomputed; make it deterministic, and \
                use its results in one backward only";
    Error::Setting { op, what: what.to_owned() }
}

/// Returns how to treat a tensor that an operation saves on this thread. `has_recipe` is whether the operation would
/// otherwise keep a recipe.
pub(crate) fn verdict(tensor: &Tensor, has_recipe: bool) -> Verdict {
    RUNNING.with_borrow_mut(|running| match running.last_mut() {
        None => Verdict::Keep,
        Some(Running::First(frame)) => {
            let saves = &mut lock(frame).saves;
            let number = saves.len();
            if has_recipe {
                saves.push(Save::Done);
                return Verdict::Keep;
            }
            saves.push(Save::Awaited);
            Verdict::Await(Slot { frame: frame.clone(), number })
        }
        Some(Running::Again { wanted, saved }) => {
            let is_wanted = wanted.get(saved.len()).copied().unwrap_or(false);
            saved.push(if is_wanted {
                tensor.storage().tag_saved();
                Save::Filled { tensor: tensor.detach(), version: tensor.storage().version() }
            } else {
                Save::Done
            });
            Verdict::Forget
        }
    })
}

pub(super) fn is_again() -> bool {
    RUNNING.with_borrow(|running| running.iter().any(|running| matches!(running, Running::Again { .. })))
}

impl Slot {
    /// Returns the tensor, for operation `op`, and runs the part again first if no operation has done so.
    pub(crate) fn get(&self, op: &'static str) -> Result<Tensor> {
        let is_awaited = matches!(lock(&self.frame).saves[self.number], Save::Awaited);
        if is_awaited {
            self.frame.run_again(op)?;
        }
        match &lock(&self.frame).saves[self.number] {
            Save::Filled { tensor, version } if tensor.storage().version() == *version => Ok(tensor.detach()),
            Save::Filled { .. } => Err(Error::Overwritten { op }),
            Save::Awaited | Save::Done => Err(changed(op)),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let save = std::mem::replace(&mut lock(&self.frame).saves[self.number], Save::Done);
        drop(save);
    }
}

/// Marks a part as running until the guard is dropped.
struct Guard(());

impl Guard {
    fn push(running: Running) -> Self {
        RUNNING.with_borrow_mut(|stack| stack.push(running));
        Self(())
    }

    fn pop_saved(self) -> Vec<Save> {
        std::mem::forget(self);
        match RUNNING.with_borrow_mut(Vec::pop) {
            Some(Running::Again { saved, .. }) => saved,
            _ => Vec::new(),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let running = RUNNING.with_borrow_mut(Vec::pop);
        drop(running);
    }
}
