//! Frames: which source lines belong to the machinery, and which to the program that a person wrote.

use crate::ids::StackId;
use crate::tables::{SourceLine, Tables};

/// Functions whose lines say how memory was obtained, not why: allocators, frameworks, runtimes.
const INTERNAL_FUNCTIONS: &[&str] = &[
    "highwater_inject::",
    "highwater_recorder::",
    "highwater_engine::alloc::",
    "highwater_engine::autograd::",
    "highwater_engine::backend::",
    "highwater_engine::device::",
    "highwater_engine::ops::",
    "highwater_engine::storage::",
    "highwater_engine::tensor::",
    "alloc::",
    "core::",
    "std::",
    "rayon::",
    "rayon_core::",
    "crossbeam_deque::",
    "crossbeam_epoch::",
    "candle_core::",
    "candle_nn::",
    "dyn_stack::",
    "gemm::",
    "gemm_common::",
    "gemm_f32::",
    "gemm_f64::",
    // What the compiler makes of `#[global_allocator]`: its line is the program's.
    "__rustc::",
    "__rust_",
    "__libc_start",
    "_start",
    // PyTorch, CPython, and what starts their threads.
    "at::",
    "c10::",
    "torch::",
    "cfunction_",
    "__clone",
    "clone3",
    "execute_native_thread_routine",
    "method_vectorcall",
    "start_thread",
];

/// Parts of paths of such functions: an inlined function is known by its bare name, so its file must tell.
const INTERNAL_FILES: &[&str] = &[
    "/engine/src/alloc/",
    "/engine/src/autograd/",
    "/engine/src/backend/",
    "/engine/src/device/",
    "/engine/src/ops/",
    "/engine/src/storage.rs",
    "/engine/src/tensor/",
    "/recorder/src/",
    "/library/alloc/",
    "/library/core/",
    "/library/std/",
    "/rayon-",
    "/rayon-core-",
    "/candle-core/src/",
    "/candle-nn/src/",
    // Packages that cargo fetched: the program's own lines call them.
    "/registry/src/index.crates.io-",
    "cargo/git/checkouts/",
];

/// Parts of paths of Python files, with `/` between names, which belong to PyTorch, to what stands between it and
/// models, or to Python's start.
const INTERNAL_PYTHON: &[&str] = &[
    "-packages/torch/",
    "-packages/triton/",
    "-packages/numpy/",
    "-packages/einops/",
    "/pytorch/torch/",
    "/torchinductor_",
    "<frozen ",
];

/// Folders of CPython's sources in C.
const CPYTHON_FOLDERS: &[&str] = &["/Include/", "/Modules/", "/Objects/", "/Python/"];

/// Functions that record or obtain memory for whoever calls them: even where all is machinery they say nothing.
const ALLOCATING: &[&str] =
    &["torch::unwind::", "torch::CapturedTraceback::", "torch::cuda::", "c10::", "at::detail::empty_"];

/// What obtains memory and records it, among what is machinery anyway.
const ALLOCATORS: &[&str] = &[
    "highwater_inject::",
    "highwater_recorder::",
    "highwater_engine::alloc::",
    "torch::unwind::",
    "torch::CapturedTraceback::",
    "torch::cuda::",
    "c10::cuda::",
    "c10::hip::",
    "c10::xpu::",
    "at::detail::empty_",
];

/// Parts of paths of such functions.
const ALLOCATOR_FILES: &[&str] = &["/engine/src/alloc/", "/recorder/src/"];

/// What a line begins with that tells which node torch.fx generated the code for, and from which line of the model.
const GENERATED: &str = "torch.fx: ";

/// Whether `file` is Python's: a source file, or code without one such as `<string>`.
pub(crate) fn is_python(file: &str) -> bool {
    file.ends_with(".py") || file.starts_with('<') || file.contains("/ipykernel_")
}

/// Whether `line` belongs to the machinery.
pub fn is_internal(tables: &Tables, line: &SourceLine) -> bool {
    let function = tables.string(line.function);
    let file = tables.string(line.file);
    if is_python(file) {
        let file = if file.contains('\\') { &file.replace('\\', "/") } else { file };
        let is_standard = file.contains("/lib/python3") && !file.contains("-packages/");
        return is_standard || INTERNAL_PYTHON.iter().any(|part| file.contains(part));
    }
    if file == "??" {
        // A library without symbols: PyTorch names its functions by whatever symbol lies next.
        return true;
    }
    let bare = function.trim_start_matches(['<', '&', '(']).trim_start_matches("dyn ");
    INTERNAL_FUNCTIONS.iter().any(|prefix| bare.starts_with(prefix))
        || is_of_pytorch(function)
        || is_of_cpython(function, file)
        || INTERNAL_FILES.iter().any(|part| file.contains(part))
}

/// Whether `line` is an allocator's, or of what records it: how memory was obtained, not what for.
pub fn is_allocating(tables: &Tables, line: &SourceLine) -> bool {
    let function = tables.string(line.function).trim_start_matches(['<', '&', '(']);
    ALLOCATORS.iter().any(|prefix| function.starts_with(prefix))
        || ALLOCATOR_FILES.iter().any(|part| tables.string(line.file).contains(part))
}

/// Whether a function in C++ with its return type before its name, as templates have it, is PyTorch's.
fn is_of_pytorch(function: &str) -> bool {
    let head = function.split('(').next().unwrap_or_default();
    head.split(' ').skip(1).any(|word| ["at::", "c10::", "torch::"].iter().any(|prefix| word.starts_with(prefix)))
}

/// Whether a function in C is CPython's: `PyNumber_Add`, `_PyEval_EvalFrameDefault`, or one in its sources.
fn is_of_cpython(function: &str, file: &str) -> bool {
    let api = function.trim_start_matches('_').strip_prefix("Py");
    let is_api =
        api.is_some_and(|rest| rest.split_once('_').is_some_and(|(word, _)| word.chars().all(char::is_alphabetic)));
    let is_c = file.ends_with(".c") || file.ends_with(".h");
    is_api || (is_c && CPYTHON_FOLDERS.iter().any(|folder| file.contains(folder)))
}

/// A line of a stack as a person reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackLine {
    /// `function (file:line)`, or the module and address where the frame could not be resolved.
    pub text: String,
    /// Whether it belongs to the program, not to the machinery.
    pub is_program: bool,
}

/// The lines of a stack, innermost first. In a stack with lines in Python, all others are machinery.
pub fn stack_lines(tables: &Tables, stack: StackId) -> Vec<StackLine> {
    let lines = || tables.stack_frames(stack).flat_map(|frame| tables.frame_lines(frame));
    let has_python = lines().any(|line| is_python(tables.string(line.file)));
    let is_program = move |line: &SourceLine| {
        let is_of_language = !has_python || is_python(tables.string(line.file));
        is_of_language && !is_internal(tables, line)
    };
    let of_frames = tables.stack_frames(stack).flat_map(|frame| {
        let found = tables.frame_lines(frame);
        let unresolved = found.is_empty().then_some(!has_python);
        found.iter().map(is_program).chain(unresolved)
    });
    let texts = tables.stack_text(stack);
    texts.into_iter().zip(of_frames).map(|(text, is_program)| StackLine { text, is_program }).collect()
}

/// The innermost line of a stack that is not machinery, at best one whose number is known: a program in Python has
/// libraries below it of which no source is known. Else the first that there is of these: the line that names a node of
/// autograd, one that is not machinery, one in Python, one that is not the allocator's, the innermost.
pub fn user_line(tables: &Tables, stack: StackId) -> Option<SourceLine> {
    let lines = || tables.stack_frames(stack).flat_map(|frame| tables.frame_lines(frame)).copied();
    let function = |line: &SourceLine| tables.string(line.function);
    let file = |line: &SourceLine| tables.string(line.file);
    let users = || lines().filter(|line| !is_internal(tables, line));
    let is_node = |line: &SourceLine| function(line).contains("Backward") && function(line).contains("::apply(");
    let is_allocating = |line: &SourceLine| ALLOCATING.iter().any(|prefix| function(line).starts_with(prefix));
    users()
        .find(|line| line.line > 0 || function(line).starts_with(GENERATED))
        .or_else(|| lines().find(is_node))
        .or_else(|| users().next())
        .or_else(|| lines().find(|line| is_python(file(line))))
        .or_else(|| lines().find(|line| !is_allocating(line)))
        .or_else(|| lines().next())
}

/// A stack in short: its lines that are not machinery, innermost first, and how many are left out. Where every line is
/// machinery, [`user_line`] stands for all.
pub fn short_stack(tables: &Tables, stack: StackId) -> Vec<String> {
    let lines = stack_lines(tables, stack);
    let all = lines.len();
    let mut told: Vec<String> = lines.into_iter().filter(|line| line.is_program).map(|line| line.text).collect();
    if told.is_empty() {
        told.extend(user_line(tables, stack).map(|line| tables.line_text(&line)));
    }
    match all.saturating_sub(told.len()) {
        0 => {}
        1 => told.push("… and 1 line of allocator and framework".to_owned()),
        more => told.push(format!("… and {more} lines of allocator and framework")),
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{FrameId, ModuleId, StringId};
    use crate::tables::{Frame, Stack};

    /// A stack told as function, file and line, innermost first.
    fn stack_of(lines: &[(&str, &str, u32)]) -> (Tables, StackId) {
        let mut tables = Tables::default();
        let mut parent = StackId::NONE;
        for (row, &(function, file, line)) in lines.iter().rev().enumerate() {
            let (first, row) = (2 * row as u32, row as u32);
            tables.strings.extend([function.to_owned(), file.to_owned()]);
            tables.lines.push(SourceLine { function: StringId(first), file: StringId(first + 1), line });
            tables.frames.push(Frame { module: ModuleId::NONE, address: 0, first_line: row, line_count: 1 });
            tables.stacks.push(Stack { parent, frame: FrameId(row) });
            parent = StackId(row);
        }
        (tables, parent)
    }

    /// The user's line of a stack.
    fn users(stack: &[(&str, &str, u32)]) -> String {
        let (tables, stack) = stack_of(stack);
        tables.line_text(&user_line(&tables, stack).unwrap())
    }

    #[test]
    fn below_python_everything_is_machinery_and_so_is_pytorch_itself() {
        let lines = [
            ("torch::unwind::unwind()", "??"),
            ("cublasLtCreate", "libcublasLt.so"),
            ("_call_impl", "C:\\env\\site-packages\\torch\\nn\\modules\\module.py"),
            ("forward", "/env/lib/python3.12/site-packages/transformers/modeling_falcon.py"),
            ("__call__", "/usr/lib/python3.12/functools.py"),
            ("main", "/home/me/train.py"),
        ];
        let (tables, stack) = stack_of(&lines.map(|(function, file)| (function, file, 7)));
        let program: Vec<bool> = stack_lines(&tables, stack).iter().map(|line| line.is_program).collect();
        assert_eq!(program, [false, false, false, true, false, true]);
    }

    const MODULE: (&str, &str, u32) =
        ("_call_impl", "/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", 1750);

    #[test]
    fn of_a_stack_of_pytorch_the_programs_own_python_line_is_told() {
        let stack = [
            ("torch::unwind::unwind()", "??", 0),
            ("_object* torch::autograd::TypeError_to_NotImplemented_<&f>(_object*)", "python_variable_methods.cpp", 0),
            ("void at::meta::common_checks_baddbmm_bmm<at::meta::structured_bmm>(at::Tensor const&)", "a.cpp", 0),
            ("cublasLtCreate", "libcublasLt.so", 0),
            ("PySequence_DelItem", "??", 0),
            ("slot_nb_invert", "/build/python-3.12.7/Objects/typeobject.c", 9189),
            ("type_call", "/build/python-3.12.7/Objects/typeobject.c", 1),
            ("linear", r"C:\venv\Lib\site-packages\torch\nn\functional.py", 12),
            MODULE,
            ("_start_layer", "/home/me/model.py", 7),
            ("_PyEval_EvalFrameDefault", "??", 0),
            ("main", "/home/me/train.py", 3),
        ];
        assert_eq!(users(&stack), "_start_layer (/home/me/model.py:7)");
        assert_eq!(users(&[MODULE, ("main", "<stdin>", 3)]), "main (<stdin>:3)");
    }

    #[test]
    fn what_a_program_wrote_in_another_language_is_its_own_where_its_line_is_known() {
        let python = ("step", "/home/me/train.py", 3);
        assert_eq!(users(&[("mine::norm", "/home/me/src/norm.rs", 5), python]), "mine::norm (/home/me/src/norm.rs:5)");
        assert_eq!(users(&[("mine::norm(at::Tensor)", "norm.so", 0), python]), "step (/home/me/train.py:3)");
        assert_eq!(users(&[("mine::norm(at::Tensor)", "norm.so", 0), MODULE]), "mine::norm(at::Tensor) (norm.so)");
    }

    #[test]
    fn a_stack_in_short_has_the_programs_lines_and_counts_the_others() {
        let stack = [("at::mm()", "", 0), ("forward", "/m.py", 7), MODULE, ("main", "/t.py", 3)];
        let short = |stack: &[_]| {
            let (tables, stack) = stack_of(stack);
            short_stack(&tables, stack)
        };
        let others = "… and 2 lines of allocator and framework";
        assert_eq!(short(&stack), ["forward (/m.py:7)", "main (/t.py:3)", others]);
        assert_eq!(short(&stack[..1]), ["at::mm()"]);
    }

    #[test]
    fn of_a_program_in_rust_the_line_that_called_the_fetched_packages_is_told() {
        let fetched = |path: &str| format!("/home/me/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/{path}");
        let (storage, product) =
            (fetched("candle-core-0.11.1/src/cpu_backend/mod.rs"), fetched("gemm-0.19.0/src/gemm.rs"));
        let stack = [
            (
                "<highwater_recorder::heap::RecordedHeap as core::alloc::GlobalAlloc>::alloc",
                "/recorder/src/heap.rs",
                76,
            ),
            ("__rustc::__rust_alloc", "/home/me/nerf/src/main.rs", 9),
            ("alloc::vec::from_elem", "/rustc/59807616e1fa/library/alloc/src/vec/mod.rs", 9),
            ("matmul", &product, 40),
            ("binary_map", &storage, 300),
            ("candle_core::tensor::Tensor::broadcast_add", "/home/me/candle/candle-core/src/tensor.rs", 7),
            ("forward", "/home/me/nerf/src/network.rs", 55),
            ("main", "/home/me/nerf/src/main.rs", 3),
        ];
        assert_eq!(users(&stack), "forward (/home/me/nerf/src/network.rs:55)");
    }

    #[test]
    fn of_generated_code_the_node_is_told() {
        let node = ("torch.fx: call_module relu model.py:7", "", 0);
        assert_eq!(users(&[("at::relu()", "", 0), node, ("forward", "<eval_with_key>.3", 5), MODULE]), node.0);
    }

    #[test]
    fn where_all_is_machinery_the_line_that_says_most_is_told() {
        let node = "torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)";
        let engine = [
            ("torch::unwind::unwind()", "??", 0),
            ("c10::cuda::CUDACachingAllocator::malloc()", "", 0),
            ("at::native::mm()", "", 0),
            (node, "", 0),
            ("pthread_condattr_setpshared", "??", 0),
            ("torch::autograd::Engine::thread_main()", "", 0),
            ("start_thread", "./nptl/pthread_create.c", 442),
        ];
        assert_eq!(users(&engine), node);
        assert_eq!(users(&engine[..3]), "at::native::mm()");
        assert_eq!(users(&engine[..2]), "torch::unwind::unwind() (??)");
        assert_eq!(users(&[engine[0], engine[2], MODULE]), format!("{} ({}:{})", MODULE.0, MODULE.1, MODULE.2));
    }
}
