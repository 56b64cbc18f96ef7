//! Tensors, which are layouts over shared storage with gradient history.

pub mod grad_mode;
pub mod autocast;
pub mod recipe;
pub mod source;
pub mod node;
pub mod apply;
pub mod create;
pub mod convert;
pub mod in_place;
pub mod display;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_recorder::{Category, scope};

use crate::backend::View;
use crate::storage::Storage;
use crate::{DType, Device, Error, Layout, Result, Shape};
use node::Node;
use recipe::RecipeOf;

/// Elements of one type in some shape. Clones are cheap and refer to the same tensor, with the same memory and
/// gradient.
#[derive(Clone)]
pub struct Tensor(Arc<Inner>);

struct Inner {
    storage: Arc<Storage>,
    layout: Layout,
    dtype: DType,
    origin: Origin,
    recipe: Option<RecipeOf>,
}

enum Origin {
    /// Created by the program, or computed from tensors that require no gradient.
    Leaf(Leaf),
    /// Computed by an operation from a tensor that requires a gradient.
    Computed(Arc<Node>),
}

#[derive(Default)]
struct Leaf {
    requires_grad: AtomicBool,
    grad: Mutex<Option<Tensor>>,
    hooks: Mutex<Vec<Hook>>,
}

/// Called with a leaf once its gradient is complete.
type Hook = Box<dyn FnMut(&Tensor) -> Result<()> + Send>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Guarded values are replaced as a whole, so they are valid even after a panic elsewhere.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tensor {
    pub(crate) fn from_parts(storage: Arc<Storage>, layout: Layout, dtype: DType) -> Self {
        debug_assert!(layout.end() * dtype.size() <= storage.bytes(), "a view extends past the end of its storage");
        Self(Arc::new(Inner { storage, layout, dtype, origin: Origin::Leaf(Leaf::default()), recipe: None }))
    }

    pub(crate) fn computed_by(self, node: Arc<Node>) -> Self {
        self.viewed(self.0.layout, Origin::Computed(node))
    }

    /// Returns the same memory in another layout, as a leaf without history.
    pub(crate) fn with_layout(&self, layout: Layout) -> Self {
        self.viewed(layout, Origin::Leaf(Leaf::default()))
    }

    fn viewed(&self, layout: Layout, origin: Origin) -> Self {
        let (storage, dtype, recipe) = (self.0.storage.clone(), self.0.dtype, self.0.recipe.clone());
        debug_assert!(layout.end() * dtype.size() <= storage.bytes(), "a view extends past the end of its storage");
        Self(Arc::new(Inner { storage, layout, dtype, origin, recipe }))
    }

    /// Returns the lengths of the axes.
    pub fn shape(&self) -> &Shape {
        self.0.layout.shape()
    }

    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.shape().rank()
    }

    /// Returns the number of elements, counting broadcast elements repeatedly.
    pub fn elements(&self) -> usize {
        self.0.layout.elements()
    }

    /// Returns the data type of the elements.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// Returns the device of the memory.
    pub fn device(&self) -> &Device {
        self.0.storage.device()
    }

    /// Returns the positions of the elements in the memory.
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// Returns the memory, which other tensors may share.
    pub fn storage(&self) -> &Arc<Storage> {
        &self.0.storage
    }

    /// Returns whether the elements are contiguous.
    pub fn is_contiguous(&self) -> bool {
        self.0.layout.is_contiguous()
    }

    /// Returns the size of the elements in bytes, counting broadcast elements repeatedly.
    pub fn bytes(&self) -> u64 {
        (self.elements() as u64).saturating_mul(self.dtype().size() as u64)
    }

    /// Returns an id that no other live tensor has, which can be a key for per-parameter state.
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Sets the category of the memory, here and in recordings.
    pub fn tag(&self, category: Category) {
        self.0.storage.tag(category);
    }

    pub(crate) fn view(&self) -> View<'_> {
        View { storage: &self.0.storage, layout: &self.0.layout, dtype: self.0.dtype }
    }

    /// Returns the same elements without history, so that no gradient flows through the result.
    pub fn detach(&self) -> Self {
        self.with_layout(self.0.layout)
    }

    /// Returns whether the tensor may be overwritten, because this is the only handle to the tensor and its memory, and
    /// no two elements share memory.
    pub(crate) fn is_free_to_write(&self) -> bool {
        Arc::strong_count(&self.0) == 1 && Arc::strong_count(&self.0.storage) == 1 && self.0.layout.is_distinct()
    }

    /// Returns whether the tensor [is free to write](Self::is_free_to_write) and contiguous.
    pub(crate) fn is_free_in_order(&self) -> bool {
        self.is_free_to_write() && self.is_contiguous()
    }

    /// Returns whether the memory contains nothing but the elements of this tensor.
    pub(crate) fn fills_storage(&self) -> bool {
        self.0.layout.is_distinct() && self.bytes() == self.0.storage.bytes() as u64
    }

    // Gradients.

    /// Returns whether gradients are computed for this tensor.
    pub fn requires_grad(&self) -> bool {
        match &self.0.origin {
            Origin::Leaf(leaf) => leaf.requires_grad.load(Ordering::Relaxed),
            Origin::Computed(_) => true,
        }
    }

    /// Returns whether this tensor is a leaf, created by the program and not computed from tensors that require a
    /// gradient.
    pub fn is_leaf(&self) -> bool {
        matches!(self.0.origin, Origin::Leaf(_))
    }

    /// Sets whether gradients are computed for this leaf.
    ///
    /// # Errors
    /// Fails for computed tensors, and if `requires_grad` is true and the elements are not floating-point numbers.
    pub fn set_requires_grad(&self, requires_grad: bool) -> Result<()> {
        let op = "set_requires_grad";
        if requires_grad && !self.dtype().is_float() {
            return Err(Error::DType {
                op,
                found: self.dtype(),
                need: "only floating-point tensors can require gradients",
            });
        }
        let Origin::Leaf(leaf) = &self.0.origin else {
            let what = "the tensor is the result of an operation; detach it first, or call this on its inputs";
            return Err(Error::Setting { op, what: what.to_owned() });
        };
        leaf.requires_grad.store(requires_grad, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the gradient that has been accumulated in this leaf; `None` for a computed tensor.
    pub fn grad(&self) -> Option<Self> {
        self.leaf().and_then(|leaf| lock(&leaf.grad).clone())
    }

    /// Takes the gradient out of this leaf. Its memory is freed with the last handle to it. Returns `None` for a
    /// computed tensor.
    pub fn take_grad(&self) -> Option<Self> {
        self.leaf().and_then(|leaf| lock(&leaf.grad).take())
    }

    /// Replaces the gradient of this leaf. Does nothing for a computed tensor.
    ///
    /// # Errors
    /// Fails if the shape, type or device of the gradient differs from the leaf's.
    pub fn set_grad(&self, grad: Self) -> Result<()> {
        if grad.shape() != self.shape() {
            return Err(Error::shapes(
                "set_grad",
                grad.shape(),
                self.shape(),
                "expected a gradient of the tensor's shape",
            ));
        }
        self.check_device("set_grad", &grad)?;
        if grad.dtype() != self.dtype() {
            return Err(Error::DType {
                op: "set_grad",
                found: grad.dtype(),
                need: "expected a gradient of the tensor's dtype",
            });
        }
        if let Some(leaf) = self.leaf() {
            *lock(&leaf.grad) = Some(grad);
        }
        Ok(())
    }

    /// Calls `hook` with this leaf whenever a backward pass has completed its gradient, that is, when no operation of
    /// that pass will contribute to it any more. An optimizer can thus run within backward and free each gradient at
    /// once. The hook receives the tensor; a hook that also captures it keeps it live forever.
    ///
    /// # Errors
    /// Fails if this is not a leaf.
    pub fn on_grad_ready(&self, hook: impl FnMut(&Self) -> Result<()> + Send + 'static) -> Result<()> {
        let Some(leaf) = self.leaf() else {
            let what = "the tensor was computed by an operation; only leaves keep gradients".to_owned();
            return Err(Error::Setting { op: "on_grad_ready", what });
        };
        lock(&leaf.hooks).push(Box::new(hook));
        Ok(())
    }

    /// Returns whether this leaf has hooks. Hooks may take its gradient during backward.
    pub fn has_hooks(&self) -> bool {
        self.leaf().is_some_and(|leaf| !lock(&leaf.hooks).is_empty())
    }

    pub(crate) fn run_hooks(&self) -> Result<()> {
        let Some(leaf) = self.leaf() else {
            return Ok(());
        };
        // Taken out while they run, so that a hook may add others.
        let mut hooks = std::mem::take(&mut *lock(&leaf.hooks));
        let outcome = hooks.iter_mut().try_for_each(|hook| hook(self));
        let added = std::mem::replace(&mut *lock(&leaf.hooks), hooks);
        lock(&leaf.hooks).extend(added);
        outcome
    }

    fn leaf(&self) -> Option<&Leaf> {
        match &self.0.origin {
            Origin::Leaf(leaf) => Some(leaf),
            Origin::Computed(_) => None,
        }
    }

    /// Returns the operation that computed this tensor; `None` for a leaf.
    pub(crate) fn node(&self) -> Option<&Arc<Node>> {
        match &self.0.origin {
            Origin::Leaf(_) => None,
            Origin::Computed(node) => Some(node),
        }
    }

    /// Adds `grad` to this leaf's gradient, in place if possible. A first gradient is kept in the memory of `grad` if
    /// that is not shared and contains nothing else, and is copied otherwise.
    fn add_grad(&self, grad: Self) -> Result<()> {
        let _category = scope::category(Category::Gradient);
        let existing = self.take_grad();
        let sum = match existing {
            Some(existing) => existing.accumulate(grad)?,
            None if grad.is_free_to_write() && grad.fills_storage() => grad,
            None => grad.copied()?,
        };
        sum.tag(Category::Gradient);
        if let Some(leaf) = self.leaf() {
            *lock(&leaf.grad) = Some(sum);
        }
        Ok(())
    }
}
