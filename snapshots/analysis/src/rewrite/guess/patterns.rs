//! The table of recognized functions and files, which classifies individual frames.

use std::sync::LazyLock;

use FrameSense::As;

/// The activity of a stack's code, determined by the innermost recognized frame, with these exceptions:
///
/// - a module called from within backward is recomputing ([`Role::Recompute`]), and one called by an inference engine
///   keeps nothing for backward ([`Role::Inference`], [`Role::ProfilingRun`], [`Role::GraphCapture`]);
/// - a method called `backward` counts only below `torch.autograd.Function.apply`;
/// - functions of `torch.nn.functional`, constructors and data loaders count only if no frame further out is
///   recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// No Python frame, and no other recognized frame: autograd's threads, recorded without C++ frames.
    Bare,
    /// Unrecognized Python code.
    Unknown,
    /// A module is built, moved or loaded.
    ModelSetup,
    /// A module's buffer is created.
    Buffer,
    /// Attention keys and values are cached.
    Cache,
    /// A module called for inference, where nothing is kept for backward.
    Inference,
    /// A run of an inference engine's model with dummy inputs, to measure the memory that the model needs.
    ProfilingRun,
    /// An inference engine captures CUDA graphs of its model.
    GraphCapture,
    /// A constructor of the user's code.
    Constructor,
    /// Data is loaded.
    Data,
    /// Modules compute.
    Forward,
    /// Autograd computes gradients.
    Backward,
    /// Modules are recomputed for backward, as activation checkpoints do.
    Recompute,
    /// An optimizer steps.
    Optimizer,
    /// An optimizer creates its state, within a step.
    OptimizerState,
    /// An optimizer is built or restored.
    OptimizerInit,
    /// Gradients are cleared.
    ZeroGrad,
    /// A kernel library allocates scratch space.
    Workspace,
}

impl Role {
    /// Returns whether code of this role may run in any phase, so that it does not determine the phase.
    pub(super) fn is_of_any_phase(self) -> bool {
        matches!(self, Self::ModelSetup | Self::Buffer | Self::Cache | Self::Constructor | Self::Data | Self::Workspace)
    }

    /// Whether modules compute without keeping anything for backward.
    pub(super) fn is_inference(self) -> bool {
        matches!(self, Self::Inference | Self::ProfilingRun | Self::GraphCapture)
    }
}

/// The meaning of an individual frame for its call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameSense {
    /// The frame is not recognized.
    Nothing,
    /// The role of the stack, unless frames further out change it.
    As(Role),
    /// Autograd releases tensors that an operation saved for backward.
    SavedTensors,
    /// `torch.autograd.Function.apply`, which counts as forward. A method `backward` below it counts as backward.
    FunctionApply,
    /// A method called `backward`.
    BackwardMethod,
    /// The outermost function of a program's own thread.
    Program,
    /// A function of `torch.nn.functional`. Counts as forward unless a frame further out indicates otherwise.
    Functional,
}

/// The pattern of a function name: any name, or a list of words separated by spaces. A name matches if it equals,
/// starts with or contains one of the words.
#[derive(Clone, Copy)]
enum Name {
    Any,
    Is(&'static str),
    Starts(&'static str),
    Holds(&'static str),
}

/// A row of the table. A frame matches if its path contains one of `files` (any path if empty) and its function
/// matches; its meaning is then `sense`.
struct Pattern {
    sense: FrameSense,
    files: Vec<&'static str>,
    names: Vec<&'static str>,
    meets: fn(&str, &str) -> bool,
}

fn pattern(sense: FrameSense, files: &'static str, function: Name) -> Pattern {
    let (names, meets): (_, fn(&str, &str) -> bool) = match function {
        Name::Any => ("", |_, _| true),
        Name::Is(names) => (names, |function, name| function == name),
        Name::Starts(names) => (names, |function, name| function.starts_with(name)),
        Name::Holds(names) => (names, |function, name| function.contains(name)),
    };
    let words = |text: &'static str| text.split(' ');
    Pattern { sense, files: words(files).collect(), names: words(names).collect(), meets }
}

/// Files that contain only code of optimizers.
const OPTIMIZERS: &str = "\
    torch/optim/ torch/distributed/optim/ apex/optimizers/ apex/contrib/optimizers/ bitsandbytes/optim/ \
    colossalai/nn/optimizer/ deepspeed/ops/adagrad/ deepspeed/ops/adam/ deepspeed/ops/lamb/ deepspeed/ops/lion/ \
    distributed_shampoo/ fairscale/optim/ galore_torch/ lion_pytorch/ megatron/core/optimizer/ megatron/optimizer/ \
    pytorch_optimizer/ schedulefree/ timm/optim/ torchao/optim/ transformer_engine/pytorch/optimizers/ \
    transformers/optimization.py";

/// Files that contain both an optimizer's step and backward hooks, so that only code called by the step counts.
const WRAPPED_OPTIMIZERS: &str = "\
    deepspeed/runtime/bf16_optimizer.py deepspeed/runtime/fp16/ deepspeed/runtime/zero/ torch/amp/grad_scaler.py \
    torch/cuda/amp/grad_scaler.py";

/// Folders of vLLM's model runners, in the V1 engine and in the earlier engine.
const VLLM_RUNNERS: &str = "vllm/v1/worker/ vllm/worker/";

/// The patterns of source lines, of which the first match applies. Paths use forward slashes here on every system.
static PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    vec![
        pattern(
            As(Role::Workspace),
            "",
            Name::Holds("getNewWorkspace BlasLtWorkspace Workspace::Workspace run_conv_plan"),
        ),
        pattern(As(Role::ZeroGrad), "", Name::Holds("zero_grad")),
        // Learning-rate schedules and weight averages are in the optimizers' folder but are not optimizers.
        pattern(FrameSense::Nothing, "torch/optim/lr_scheduler.py torch/optim/swa_utils.py", Name::Any),
        pattern(
            As(Role::OptimizerState),
            OPTIMIZERS,
            Name::Is("_init_group init_group _init_state init_state initialize_state"),
        ),
        pattern(As(Role::OptimizerState), WRAPPED_OPTIMIZERS, Name::Is("initialize_optimizer_states")),
        pattern(
            As(Role::OptimizerInit),
            OPTIMIZERS,
            Name::Is("__init__ __setstate__ add_param_group load_state_dict state_dict"),
        ),
        // Megatron prepares gradients within backward in these functions.
        pattern(FrameSense::Nothing, "megatron/core/optimizer/ megatron/optimizer/", Name::Holds("hook scale_loss")),
        pattern(As(Role::Optimizer), OPTIMIZERS, Name::Any),
        pattern(
            As(Role::Optimizer),
            WRAPPED_OPTIMIZERS,
            Name::Is("step _maybe_opt_step _optimizer_step _unscale_grads_ unscale_ unscale_and_clip_grads update"),
        ),
        pattern(
            As(Role::Optimizer),
            "",
            Name::Starts(
                "_multi_tensor_ _single_tensor_ _fused_adagrad _fused_adam _fused_lamb _fused_sgd Optimizer.step",
            ),
        ),
        // The user's own optimizers, recognized by their file name.
        pattern(As(Role::Optimizer), "optim", Name::Is("step")),
        // Both run after a node's backward and when a graph is dropped without one. `deleteNode` alone is not enough: an
        // `AccumulateGrad` node, whose parameter it releases, also goes through it.
        pattern(
            FrameSense::SavedTensors,
            "",
            Name::Holds(
                "torch::autograd::SavedVariable::reset_data torch::autograd::SavedVariable::~SavedVariable \
                std::vector<torch::autograd::SavedVariable ::release_variables",
            ),
        ),
        // C++ frames of autograd's threads. `torch::autograd::VariableType` and `THPVariable_…` belong to forward.
        pattern(
            As(Role::Backward),
            "",
            Name::Holds(
                "torch::autograd::Engine:: torch::autograd::python::PythonEngine:: \
                torch::autograd::AccumulateGrad:: torch::autograd::CopySlices:: torch::autograd::CppNode< \
                torch::autograd::PyNode:: THPEngine_run_backward",
            ),
        ),
        pattern(As(Role::Backward), "torch/_tensor.py", Name::Is("backward")),
        pattern(
            As(Role::Backward),
            "torch/autograd/__init__.py torch/autograd/graph.py",
            Name::Is("backward grad _make_grads _engine_run_backward"),
        ),
        pattern(
            As(Role::Backward),
            "torch/utils/checkpoint.py",
            Name::Is("backward unpack_hook inner_unpack unpack recompute_fn"),
        ),
        pattern(
            As(Role::Backward),
            "torch/_functorch/_aot_autograd/ torch/distributed/fsdp/ torch/distributed/_composable/fsdp/",
            Name::Holds("backward"),
        ),
        pattern(FrameSense::FunctionApply, "torch/autograd/function.py", Name::Is("apply")),
        pattern(FrameSense::BackwardMethod, "", Name::Is("backward")),
        pattern(
            As(Role::Forward),
            "torch/nn/modules/module.py",
            Name::Is("_call_impl _wrapped_call_impl _slow_forward __call__"),
        ),
        pattern(As(Role::Buffer), "", Name::Is("register_buffer reset_running_stats")),
        pattern(
            As(Role::ModelSetup),
            "torch/nn/modules/",
            Name::Is(
                "__init__ _apply _load_from_state_dict _reset_parameters bfloat16 convert cuda double float half \
                load_state_dict reset_parameters to to_empty type",
            ),
        ),
        pattern(As(Role::ModelSetup), "torch/nn/parameter.py torch/nn/init.py", Name::Any),
        pattern(
            As(Role::ModelSetup),
            "",
            Name::Is(
                "_init_weights _load_state_dict_into_model from_pretrained init_weights initialize_weights \
                load_state_dict reset_parameters set_module_tensor_to_device",
            ),
        ),
        // Attention keys and values, kept from token to token: vLLM, SGLang, transformers, gpt-fast and torchtune.
        pattern(As(Role::Cache), "vllm/worker/cache_engine.py sglang/srt/mem_cache/memory_pool.py", Name::Any),
        pattern(As(Role::Cache), "transformers/cache_utils.py", Name::Any),
        pattern(
            As(Role::Cache),
            "",
            Name::Is(
                "_allocate_kv_cache _allocate_kv_cache_tensors _init_kv_cache _initialize_kv_caches \
                allocate_kv_cache allocate_kv_cache_tensors init_kv_cache initialize_kv_cache \
                initialize_kv_cache_tensors setup_caches",
            ),
        ),
        // Inference servers build their own modules, whose weights no PyTorch function allocates.
        pattern(
            As(Role::ModelSetup),
            "/vllm/ /sglang/",
            Name::Is("_initialize_model create_weights initialize_model load_model load_weights"),
        ),
        pattern(As(Role::ProfilingRun), VLLM_RUNNERS, Name::Is("profile_run")),
        pattern(As(Role::GraphCapture), VLLM_RUNNERS, Name::Is("capture_model")),
        pattern(
            As(Role::GraphCapture),
            "sglang/srt/model_executor/ sglang/srt/speculative/",
            Name::Is("capture capture_one_batch_size"),
        ),
        pattern(As(Role::Inference), VLLM_RUNNERS, Name::Is("_dummy_run execute_model")),
        pattern(
            As(Role::Inference),
            "sglang/srt/managers/tp_worker.py sglang/srt/speculative/",
            Name::Is("forward_batch_generation"),
        ),
        pattern(As(Role::Inference), "transformers/generation/utils.py", Name::Is("generate")),
        pattern(FrameSense::Functional, "torch/nn/functional.py", Name::Any),
        pattern(FrameSense::Program, "", Name::Is("<module> _bootstrap _run_code _run_module_as_main")),
        pattern(As(Role::Forward), "", Name::Is("forward")),
        pattern(As(Role::Data), "torch/utils/data/", Name::Any),
        pattern(
            As(Role::Data),
            "",
            Name::Is("_prepare_input _prepare_inputs get_batch load_batch next_batch pin_memory send_to_device"),
        ),
        pattern(As(Role::Data), "", Name::Holds("collate")),
        // A constructor outside PyTorch and data code most often builds a module.
        pattern(FrameSense::Nothing, "/torch/ data", Name::Is("__init__")),
        pattern(As(Role::Constructor), "", Name::Is("__init__")),
    ]
});

/// Returns the meaning of a frame of `function` in `file`.
pub(super) fn sense_of(function: &str, file: &str) -> FrameSense {
    let normalised;
    let file = if file.contains('\\') {
        normalised = file.replace('\\', "/");
        &normalised
    } else {
        file
    };
    let meets = |pattern: &&Pattern| {
        pattern.names.iter().any(|name| (pattern.meets)(function, name))
            && pattern.files.iter().any(|part| file.contains(part))
    };
    PATTERNS.iter().find(meets).map_or(FrameSense::Nothing, |pattern| pattern.sense)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::frames::is_python;

    #[test]
    fn frames_of_pytorch_and_of_programs_are_distinguished() {
        let site = "/usr/lib/python3/site-packages/";
        let cases = [
            ("_multi_tensor_adam", "torch/optim/adam.py", As(Role::Optimizer)),
            ("step", "torch/optim/sgd.py", As(Role::Optimizer)),
            ("_init_group", "torch/optim/adam.py", As(Role::OptimizerState)),
            ("load_state_dict", "torch/optim/optimizer.py", As(Role::OptimizerInit)),
            ("zero_grad", "torch/optim/optimizer.py", As(Role::ZeroGrad)),
            ("step", "torch/optim/lr_scheduler.py", FrameSense::Nothing),
            ("step", "apex/optimizers/fused_adam.py", As(Role::Optimizer)),
            ("step", "deepspeed/runtime/zero/stage3.py", As(Role::Optimizer)),
            ("reduce_ipg_grads", "deepspeed/runtime/zero/stage3.py", FrameSense::Nothing),
            ("step", "megatron/core/optimizer/distrib_optimizer.py", As(Role::Optimizer)),
            ("backward", "torch/_tensor.py", As(Role::Backward)),
            ("_make_grads", "torch/autograd/__init__.py", As(Role::Backward)),
            ("_post_backward_hook", "torch/distributed/fsdp/_runtime_utils.py", As(Role::Backward)),
            ("unpack_hook", "torch/utils/checkpoint.py", As(Role::Backward)),
            ("checkpoint", "torch/utils/checkpoint.py", FrameSense::Nothing),
            ("_call_impl", "torch/nn/modules/module.py", As(Role::Forward)),
            ("forward", "torch/nn/modules/linear.py", As(Role::Forward)),
            ("_apply", "torch/nn/modules/module.py", As(Role::ModelSetup)),
            ("kaiming_uniform_", "torch/nn/init.py", As(Role::ModelSetup)),
            ("default_collate", "torch/utils/data/_utils/collate.py", As(Role::Data)),
            ("_allocate_kv_cache_tensors", "vllm/v1/worker/gpu_model_runner.py", As(Role::Cache)),
            ("_allocate_kv_cache", "vllm/worker/cache_engine.py", As(Role::Cache)),
            ("update", "transformers/cache_utils.py", As(Role::Cache)),
            ("_create_buffers", "sglang/srt/mem_cache/memory_pool.py", As(Role::Cache)),
            ("create_weights", "vllm/model_executor/layers/linear.py", As(Role::ModelSetup)),
            ("profile_run", "vllm/v1/worker/gpu_model_runner.py", As(Role::ProfilingRun)),
            ("_dummy_run", "vllm/v1/worker/gpu/model_runner.py", As(Role::Inference)),
            ("capture_model", "vllm/v1/worker/gpu_model_runner.py", As(Role::GraphCapture)),
            ("capture", "sglang/srt/model_executor/cuda_graph_runner.py", As(Role::GraphCapture)),
            ("forward_batch_generation", "sglang/srt/managers/tp_worker.py", As(Role::Inference)),
            ("generate", "transformers/generation/utils.py", As(Role::Inference)),
            ("generate", "diffusers/pipelines/pipeline.py", FrameSense::Nothing),
        ];
        for (function, file, sense) in cases {
            assert_eq!(sense_of(function, &format!("{site}{file}")), sense, "{function} in {file}");
        }
        let own = [
            ("step", "/home/me/basics/optimizer.py", As(Role::Optimizer)),
            ("step", "/home/me/train.py", FrameSense::Nothing),
            ("__init__", "/home/me/model.py", As(Role::Constructor)),
            ("__init__", "/home/me/dataset.py", FrameSense::Nothing),
            ("_fused_rms_norm", "/home/me/model.py", FrameSense::Nothing),
            ("get_batch", "/home/me/train.py", As(Role::Data)),
            ("_allocate_kv_cache", "/home/me/serve.py", As(Role::Cache)),
            ("load_model", "/home/me/serve.py", FrameSense::Nothing),
            ("profile_run", "/home/me/serve.py", FrameSense::Nothing),
        ];
        for (function, file, sense) in own {
            assert_eq!(sense_of(function, file), sense, "{function} in {file}");
        }
    }

    #[test]
    fn paths_of_windows_say_the_same() {
        let adam = r"C:\venv\Lib\site-packages\torch\optim\adam.py";
        assert_eq!(sense_of("step", adam), As(Role::Optimizer));
        assert!(is_python(adam));
    }

    #[test]
    fn autograds_own_c_frames_are_backward_and_those_of_forward_calls_are_not() {
        let library = "/usr/lib/libtorch_cpu.so";
        let backward = [
            "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)",
            "torch::autograd::PyNode::apply(std::vector<at::Tensor>&&)",
        ];
        for function in backward {
            assert_eq!(sense_of(function, library), As(Role::Backward), "{function}");
        }
        let saved = [
            "torch::autograd::SavedVariable::reset_data()",
            "torch::autograd::generated::BmmBackward0::release_variables()",
            "torch::autograd::PyNode::release_variables()",
        ];
        for function in saved {
            assert_eq!(sense_of(function, library), FrameSense::SavedTensors, "{function}");
        }
        let forward = [
            "torch::autograd::deleteNode(torch::autograd::Node*)",
            "torch::autograd::VariableType::(anonymous namespace)::mul_Tensor(c10::DispatchKeySet)",
            "torch::autograd::THPVariable_to(_object*, _object*, _object*)",
        ];
        for function in forward {
            assert_eq!(sense_of(function, library), FrameSense::Nothing, "{function}");
        }
        assert_eq!(sense_of("at::cuda::getNewWorkspace()", ""), As(Role::Workspace));
    }
}
