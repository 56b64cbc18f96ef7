//! Classifies call stacks by their role in training or inference.

use std::collections::HashMap;

use super::patterns::FrameSense::{self, As};
pub use super::patterns::Role;
use super::patterns::sense_of;
use crate::stacks::frames::is_python;
use highwater_snapshots::ids::{StackId, StringId};
use highwater_snapshots::tables::{SourceLine, Tables};

/// The role of every stack of a recording.
#[derive(Clone, Debug)]
pub struct Roles {
    nodes: Vec<Node>,
    has_engine_frames: bool,
    has_classified: bool,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    role: Role,
    /// Whether the frame is below `torch.autograd.Function.apply`.
    is_in_apply: bool,
    /// Whether autograd releases saved tensors in the stack.
    releases_saved: bool,
    /// Whether the code is called by a module or is a method of one.
    is_in_module: bool,
    /// Whether the program's own thread runs the code, rather than a thread of autograd.
    is_of_program: bool,
}

const ROOT: Node =
    Node { role: Role::Bare, is_in_apply: false, releases_saved: false, is_in_module: false, is_of_program: false };

impl Roles {
    /// Classifies each distinct function of a file once, and each stack once, since the tree has parents before
    /// children.
    pub(crate) fn of(tables: &Tables) -> Self {
        let mut frames = Frames { tables, known: HashMap::new(), has_engine_frames: false };
        let mut nodes: Vec<Node> = Vec::with_capacity(tables.stacks.len());
        for stack in &tables.stacks {
            let parent = stack.parent.index().and_then(|row| nodes.get(row)).copied().unwrap_or(ROOT);
            // The lines of a frame are stored innermost first.
            let lines = tables.frame_lines(stack.frame).iter().rev();
            nodes.push(lines.fold(parent, |node, line| node.called(frames.sense(line))));
        }
        let has_classified = nodes.iter().any(|node| !matches!(node.role, Role::Bare | Role::Unknown));
        Self { nodes, has_engine_frames: frames.has_engine_frames, has_classified }
    }

    fn node(&self, stack: StackId) -> &Node {
        stack.index().and_then(|row| self.nodes.get(row)).unwrap_or(&ROOT)
    }

    /// Returns the role of `stack`; [`Role::Bare`] without a stack.
    pub(crate) fn role(&self, stack: StackId) -> Role {
        self.node(stack).role
    }

    /// Returns whether autograd releases tensors in `stack` that an operation saved for backward. For the stack of a
    /// free, this means that the block was saved. Only C++ frames show this.
    pub(crate) fn releases_saved(&self, stack: StackId) -> bool {
        self.node(stack).releases_saved
    }

    /// Whether a module runs in `stack`.
    pub(crate) fn is_in_module(&self, stack: StackId) -> bool {
        self.node(stack).is_in_module
    }

    /// Returns whether `stack` is from the program's own thread, which waits while backward runs in autograd's threads.
    pub(crate) fn is_of_program(&self, stack: StackId) -> bool {
        self.node(stack).is_of_program
    }

    /// Returns whether a stack of [`Role::Bare`] may be from a thread of autograd. This is impossible if C++ frames
    /// were recorded.
    pub(crate) fn bare_may_be_backward(&self) -> bool {
        !self.has_engine_frames
    }

    /// Whether any stack was classified.
    pub(crate) fn has_classified(&self) -> bool {
        self.has_classified
    }
}

#[derive(Clone, Copy, Debug)]
struct Sense {
    sense: FrameSense,
    is_python: bool,
}

struct Frames<'a> {
    tables: &'a Tables,
    /// The sense of frames by function and file, which does not depend on the line.
    known: HashMap<(StringId, StringId), Sense>,
    has_engine_frames: bool,
}

impl Frames<'_> {
    fn sense(&mut self, line: &SourceLine) -> Sense {
        let tables = self.tables;
        *self.known.entry((line.function, line.file)).or_insert_with(|| {
            let (function, file) = (tables.string(line.function), tables.string(line.file));
            let sense = Sense { sense: sense_of(function, file), is_python: is_python(file) };
            self.has_engine_frames |= sense.sense == As(Role::Backward) && !sense.is_python;
            sense
        })
    }
}

impl Node {
    /// Returns the node of a frame that this one calls.
    fn called(self, frame: Sense) -> Self {
        let is_silent = matches!(self.role, Role::Bare | Role::Unknown);
        let is_setup = matches!(self.role, Role::ModelSetup | Role::Buffer | Role::Constructor);
        let is_backward = matches!(self.role, Role::Backward | Role::Recompute);
        let role = match frame.sense {
            // The code that creates the state also calls the step's helpers.
            As(Role::Optimizer) if matches!(self.role, Role::OptimizerState | Role::OptimizerInit) => self.role,
            FrameSense::BackwardMethod if self.is_in_apply => Role::Backward,
            As(Role::Forward) if is_backward => Role::Recompute,
            As(Role::Forward | Role::Inference) if self.role.is_inference() => self.role,
            FrameSense::Functional if is_silent || self.role == Role::Constructor => Role::Forward,
            As(Role::Cache) if is_backward => self.role,
            As(Role::Constructor) if !is_silent => self.role,
            As(Role::Data) if !is_silent && !is_setup && self.role != Role::Inference => self.role,
            As(role) => role,
            _ if self.role == Role::Bare && frame.is_python => Role::Unknown,
            _ => self.role,
        };
        Self {
            role,
            is_in_apply: self.is_in_apply || frame.sense == FrameSense::FunctionApply,
            releases_saved: self.releases_saved || frame.sense == FrameSense::SavedTensors,
            is_in_module: self.is_in_module || role == Role::Forward,
            is_of_program: self.is_of_program || frame.sense == FrameSense::Program,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::trace_of;
    use super::*;

    /// The role of a stack whose frames are given in the text notation, innermost first.
    fn role(frames: &str) -> Role {
        let trace = trace_of(&format!("alloc a 1 < {frames}"));
        Roles::of(&trace.tables).role(trace.blocks.stack[0])
    }

    const CALL: &str = "_call_impl@torch/nn/modules/module.py";

    #[test]
    fn the_innermost_frame_that_says_something_decides() {
        assert_eq!(role("linear@own.py < main@own.py"), Role::Unknown);
        assert_eq!(role(&format!("linear@own.py < {CALL} < main@own.py")), Role::Forward);
        assert_eq!(role("step@torch/optim/adam.py < main@train.py"), Role::Optimizer);
        let closure = format!("{CALL} < closure@train.py < step@torch/optim/lbfgs.py < main@train.py");
        assert_eq!(role(&closure), Role::Forward);
        assert_eq!(role("normalize@torch/nn/functional.py < step@torch/optim/muon.py < main@t.py"), Role::Optimizer);
        assert_eq!(role("cross_entropy@torch/nn/functional.py < main@t.py"), Role::Forward);
    }

    #[test]
    fn what_a_checkpoint_computes_again_is_not_forward() {
        let again = format!(
            "gelu@m.py < {CALL} < recompute_fn@torch/utils/checkpoint.py < unpack_hook@torch/utils/checkpoint.py"
        );
        assert_eq!(role(&again), Role::Recompute);
        let first = format!("gelu@m.py < {CALL} < checkpoint@torch/utils/checkpoint.py < main@t.py");
        assert_eq!(role(&first), Role::Forward);
    }

    #[test]
    fn a_method_called_backward_counts_below_function_apply_alone() {
        assert_eq!(role("matmul@m.py < backward@m.py < apply@torch/autograd/function.py"), Role::Backward);
        assert_eq!(role("scale@m.py < backward@accelerator.py < main@t.py"), Role::Unknown);
    }

    #[test]
    fn a_stack_without_python_is_bare_unless_its_frames_speak() {
        assert_eq!(role("at::empty@Register.cpp < start_thread@"), Role::Bare);
        assert_eq!(role("at::empty@Register.cpp < torch::autograd::Engine::thread_main@engine.cpp"), Role::Backward);
        let trace = trace_of("alloc a 1\nalloc b 1 < torch::autograd::Engine::thread_main@engine.cpp");
        let roles = Roles::of(&trace.tables);
        assert_eq!(roles.role(trace.blocks.stack[0]), Role::Bare);
        assert!(!roles.bare_may_be_backward());
    }

    #[test]
    fn inference_engines_profile_capture_and_serve() {
        let module = format!("mm@/site/vllm/model_executor/layers/linear.py < forward@/site/vllm/llama.py < {CALL}");
        let runner = "gpu_model_runner.py";
        let dummy = format!("{module} < _dummy_run@/site/vllm/v1/worker/{runner}");
        let worker = "gpu_worker.py < main@serve.py";
        let profiled = format!(
            "{dummy} < profile_run@/site/vllm/v1/worker/{runner} < \
             determine_available_memory@/site/vllm/v1/worker/{worker}"
        );
        assert_eq!(role(&profiled), Role::ProfilingRun);
        let captured = format!("{dummy} < capture_model@/site/vllm/v1/worker/{runner} < main@serve.py");
        assert_eq!(role(&captured), Role::GraphCapture);
        assert_eq!(role(&format!("{dummy} < compile_or_warm_up_model@/site/vllm/v1/worker/{worker}")), Role::Inference);
        let served = format!("{module} < execute_model@/site/vllm/v1/worker/{runner} < main@serve.py");
        assert_eq!(role(&served), Role::Inference);
        let inputs =
            "_prepare_inputs@/site/vllm/v1/worker/gpu_model_runner.py < execute_model@/site/vllm/v1/worker/a.py";
        assert_eq!(role(inputs), Role::Data);
        let scratch = format!("at::cuda::getNewWorkspace()@ < {served}");
        assert_eq!(role(&scratch), Role::Workspace);
        let loaded = "create_weights@/site/vllm/model_executor/layers/linear.py < main@serve.py";
        assert_eq!(role(loaded), Role::ModelSetup);
    }

    #[test]
    fn scratch_space_is_known_by_the_library_that_takes_it() {
        let stack = format!("malloc@ < at::cuda::getNewWorkspace()@ < gemm@Blas.cpp < {CALL} < main@t.py");
        assert_eq!(role(&stack), Role::Workspace);
    }
}
