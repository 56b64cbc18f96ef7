//! The display lines of a call stack, and the single line that represents the whole stack.

use std::collections::HashMap;

use super::leading::{entries, set_allocator_apart};
use super::owners::{LineOwner, bare_name};
use highwater_snapshots::ids::{FrameId, StackId};
use highwater_snapshots::tables::{SourceLine, Tables};

pub use super::leading::{LeadingFrame, leading_frame, user_line};
pub(crate) use super::owners::is_python;

/// Functions of frameworks that allocate memory and record the allocation.
const ALLOCATORS: &[&str] = &[
    "highwater_inject::",
    "highwater_recorder::",
    "highwater_allocator::",
    "highwater_engine::alloc::",
    "torch::unwind::",
    "torch::CapturedTraceback::",
    "torch::cuda::",
    "c10::cuda::",
    "c10::hip::",
    "c10::xpu::",
    "at::detail::empty_",
];

/// Path fragments of the files that contain such functions.
const ALLOCATOR_FILES: &[&str] = &["/engine/allocator/src/", "/engine/src/alloc/", "/recorder/src/"];

/// Returns whether `line` belongs to an allocator or a recorder, and does not show the purpose of an allocation.
pub(crate) fn is_allocating(tables: &Tables, line: &SourceLine) -> bool {
    let function = bare_name(tables.string(line.function));
    ALLOCATORS.iter().any(|prefix| function.starts_with(prefix))
        || ALLOCATOR_FILES.iter().any(|part| tables.string(line.file).contains(part))
}

/// A line of a call stack for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackLine {
    /// The text from [`Tables::line_text`], or the module and address if the frame is not symbolized.
    pub text: String,
    /// Whether to show the line to the user: it is from their own code, or if the stack has no such line, from the
    /// first [`LineOwner`] in order of precedence that occurs.
    pub is_program: bool,
}

/// The lines of a stack, innermost first. In a stack with Python lines, all other lines count as framework code.
pub fn stack_lines(tables: &Tables, stack: StackId) -> Vec<StackLine> {
    let kinds: Vec<LineKind> =
        entries(tables, stack).map(|(frame, entry)| LineKind::of(tables, frame, entry)).collect();
    let owners = owners_in_stack(tables, stack, kinds.iter().copied());
    let leading = leading_owner(owners.iter().copied());
    let texts = tables.stack_text(stack);
    let line = |(text, owner)| StackLine { text, is_program: Some(owner) == leading };
    texts.into_iter().zip(owners).map(line).collect()
}

/// The properties of a line that determine its owner in a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineKind {
    is_python: bool,
    has_number: bool,
    /// Whether the line is a compiler-generated entry point. Unlike one written by the user, it has no line number.
    is_entry: bool,
    owner: LineOwner,
}

impl LineKind {
    /// The properties of a line of `frame`, or of its address.
    pub(crate) fn of(tables: &Tables, frame: FrameId, entry: LeadingFrame) -> Self {
        let owner = entry.owner(tables, frame);
        let Some(line) = entry.line() else {
            return Self { is_python: false, has_number: false, is_entry: false, owner };
        };
        let is_python = is_python(tables.string(line.file));
        let is_entry = !is_python && line.line == 0 && tables.string(line.function) == "main";
        Self { is_python, has_number: line.line > 0, is_entry, owner }
    }
}

/// The owner of each line of a stack. In a stack with Python lines, all other lines count as framework code.
pub(crate) fn owners_in_stack(
    tables: &Tables,
    stack: StackId,
    kinds: impl Iterator<Item = LineKind> + Clone,
) -> Vec<LineOwner> {
    let has_python = kinds.clone().any(|kind| kind.is_python);
    let has_numbers = kinds.clone().any(|kind| kind.has_number);
    let owner = |kind: LineKind| match kind {
        LineKind { is_python: false, .. } if has_python => LineOwner::Framework,
        LineKind { is_entry: true, .. } if has_numbers => LineOwner::Framework,
        kind => kind.owner,
    };
    let mut owners: Vec<LineOwner> = kinds.map(owner).collect();
    set_allocator_apart(tables, stack, &mut owners);
    owners
}

/// Returns the owner whose lines represent a stack, given the `owners` of its lines; `None` if all belong to
/// frameworks.
pub(crate) fn leading_owner(owners: impl Iterator<Item = LineOwner>) -> Option<LineOwner> {
    owners.min().filter(|owner| *owner < LineOwner::Framework)
}

/// Returns a short form of a stack: the lines of the program (see [`StackLine::is_program`]), or the one of
/// [`leading_frame`] if there are none, innermost first, and the number of omitted lines.
pub fn short_stack(tables: &Tables, stack: StackId) -> Vec<String> {
    shorten(tables, stack, &stack_lines(tables, stack), None)
}

/// Shortens the stack with `lines`, always including the line with index `beside`.
fn shorten(tables: &Tables, stack: StackId, lines: &[StackLine], beside: Option<usize>) -> Vec<String> {
    let mut chosen: Vec<usize> = (0..lines.len()).filter(|&at| lines[at].is_program).collect();
    if chosen.is_empty() {
        let text = leading_frame(tables, stack).map(|frame| frame.text(tables));
        chosen.extend(lines.iter().position(|line| Some(&line.text) == text.as_ref()));
    }
    chosen.extend(beside.filter(|at| *at < lines.len()));
    chosen.sort_unstable();
    chosen.dedup();
    let mut shown: Vec<String> = chosen.iter().map(|&at| lines[at].text.clone()).collect();
    match lines.len() - shown.len() {
        0 => {}
        1 => shown.push("… and 1 library frame".to_owned()),
        more => shown.push(format!("… and {more} library frames")),
    }
    shown
}

/// The short forms of several stacks of one or more recordings, like [`short_stack`]. Stacks with equal short forms
/// also show the innermost line in which they are not all equal.
pub fn short_stacks(stacks: &[(&Tables, StackId)]) -> Vec<Vec<String>> {
    let mut shown: Vec<Vec<String>> = stacks.iter().map(|&(tables, stack)| short_stack(tables, stack)).collect();
    let mut alike: HashMap<&[String], Vec<usize>> = HashMap::new();
    shown.iter().enumerate().for_each(|(at, lines)| alike.entry(lines).or_default().push(at));
    let alike: Vec<Vec<usize>> = alike.into_values().filter(|rows| rows.len() > 1).collect();
    for rows in alike {
        let lines: Vec<Vec<StackLine>> = rows.iter().map(|&at| stack_lines(stacks[at].0, stacks[at].1)).collect();
        let text = |of: usize, at: usize| lines[of].get(at).map(|line| line.text.as_str());
        let longest = lines.iter().map(Vec::len).max().unwrap_or(0);
        let differs = (0..longest).find(|&at| (1..lines.len()).any(|of| text(of, at) != text(0, at)));
        for (of, &row) in rows.iter().enumerate() {
            let (tables, stack) = stacks[row];
            shown[row] = shorten(tables, stack, &lines[of], differs);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_snapshots::ids::{FrameId, ModuleId, StringId};
    use highwater_snapshots::tables::{Frame, Stack};

    /// Builds a stack of functions, files and lines, innermost first.
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

    /// The line that represents a stack.
    fn users(stack: &[(&str, &str, u32)]) -> String {
        let (tables, stack) = stack_of(stack);
        tables.line_text(&user_line(&tables, stack).unwrap())
    }

    #[test]
    fn below_python_everything_is_the_frameworks_and_libraries_give_way_to_the_users_lines() {
        let lines = [
            ("torch::unwind::unwind()", "??"),
            ("cublasLtCreate", "libcublasLt.so"),
            ("_call_impl", "C:\\env\\site-packages\\torch\\nn\\modules\\module.py"),
            ("forward", "/env/lib/python3.12/site-packages/transformers/modeling_falcon.py"),
            ("__call__", "/usr/lib/python3.12/functools.py"),
            ("main", "/home/me/train.py"),
        ];
        let of = |lines: &[(&str, &str)]| -> Vec<bool> {
            let lines: Vec<_> = lines.iter().map(|(function, file)| (*function, *file, 7)).collect();
            let (tables, stack) = stack_of(&lines);
            stack_lines(&tables, stack).iter().map(|line| line.is_program).collect()
        };
        assert_eq!(of(&lines), [false, false, false, false, false, true]);
        assert_eq!(of(&lines[..5]), [false, false, false, true, false]);
        assert_eq!(of(&lines[..3]), [false; 3]);
    }

    const MODULE: (&str, &str, u32) =
        ("_call_impl", "/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", 1750);

    #[test]
    fn the_innermost_line_of_the_users_own_python_leads() {
        let stack = [
            ("torch::unwind::unwind()", "??", 0),
            ("_object* torch::autograd::TypeError_to_NotImplemented_<&f>(_object*)", "python_variable_methods.cpp", 0),
            ("void at::meta::common_checks_baddbmm_bmm<at::meta::structured_bmm>(at::Tensor const&)", "a.cpp", 0),
            ("cublasLtCreate", "libcublasLt.so", 0),
            ("PySequence_DelItem", "??", 0),
            ("slot_nb_invert", "/build/python-3.12.7/Objects/typeobject.c", 9189),
            ("type_call", "/build/python-3.12.7/Objects/typeobject.c", 1),
            ("linear", r"C:\venv\Lib\site-packages\torch\nn\functional.py", 12),
            ("forward", "/venv/lib/python3.12/site-packages/transformers/models/gpt2/modeling_gpt2.py", 900),
            MODULE,
            ("_start_layer", "/home/me/model.py", 7),
            ("training_step", "/venv/lib/python3.12/site-packages/lightning/pytorch/trainer.py", 8),
            ("_PyEval_EvalFrameDefault", "??", 0),
            ("main", "/home/me/train.py", 3),
        ];
        assert_eq!(users(&stack), "/home/me/model.py:7 _start_layer");
        assert_eq!(users(&[MODULE, ("main", "<stdin>", 3)]), "<stdin>:3 main");
    }

    #[test]
    fn where_the_user_wrote_none_of_it_the_innermost_library_leads_and_not_pytorch() {
        let lightning = ("run", "/venv/lib/python3.12/site-packages/lightning/pytorch/trainer.py", 8);
        let model = ("forward", "/venv/lib/python3.12/site-packages/transformers/models/t5.py", 90);
        let node = ("torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)", "", 0);
        assert_eq!(users(&[MODULE, model, MODULE, lightning, node]), format!("{}:90 forward", model.1));
        assert_eq!(users(&[node, MODULE]), "MmBackward0");
    }

    #[test]
    fn what_a_program_wrote_in_another_language_is_its_own_where_its_line_is_known() {
        let python = ("step", "/home/me/train.py", 3);
        assert_eq!(users(&[("mine::norm", "/home/me/src/norm.rs", 5), python]), "/home/me/src/norm.rs:5 mine::norm");
        assert_eq!(users(&[("mine::norm(at::Tensor)", "norm.so", 0), python]), "/home/me/train.py:3 step");
        assert_eq!(users(&[("mine::norm(at::Tensor)", "norm.so", 0), MODULE]), "mine::norm(at::Tensor) (norm.so)");
    }

    #[test]
    fn a_stack_in_short_has_the_users_lines_and_counts_the_others() {
        let stack = [("at::mm()", "", 0), ("forward", "/m.py", 7), MODULE, ("main", "/t.py", 3)];
        let short = |stack: &[_]| {
            let (tables, stack) = stack_of(stack);
            short_stack(&tables, stack)
        };
        assert_eq!(short(&stack), ["/m.py:7 forward", "/t.py:3 main", "… and 2 library frames"]);
        assert_eq!(short(&stack[..1]), ["at::mm()"]);
    }

    #[test]
    fn the_line_of_a_program_in_rust_that_called_fetched_crates_leads() {
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
        assert_eq!(users(&stack), "/home/me/nerf/src/network.rs:55 forward");
    }

    #[test]
    fn a_program_on_the_engine_leads_and_a_built_in_scenario_is_led_by_its_model() {
        let scenario = [
            ("highwater_allocator::caching::Caching::malloc", "engine/allocator/src/caching.rs", 9),
            ("{{closure}}", "engine/src/optim/moments.rs", 29),
            ("highwater_engine::nn::linear::Linear::forward", "engine/src/nn/linear.rs", 8),
            ("highwater_engine::models::vit::Vit::forward::{{closure}}", "engine/src/models/vit.rs", 120),
            ("highwater_engine::scenario::run", "engine/src/scenario/mod.rs", 7),
            ("highwater::commands::record::run", "viewer/src/commands/record.rs", 5),
        ];
        assert_eq!(users(&scenario), "engine/src/models/vit.rs:120 highwater_engine::models::vit::Vit::forward");
        let mut inlined = scenario.to_vec();
        inlined.push(("closure", "/home/me/highwater/viewer/src/lib.rs", 115));
        assert_eq!(users(&inlined), users(&scenario), "functions of the binary that were inlined have no crate");
        let mut whole = scenario.to_vec();
        whole.push(("main", "", 0));
        let (tables, stack) = stack_of(&whole);
        let shown = short_stack(&tables, stack);
        assert!(shown[0].starts_with("engine/src/models/vit.rs:120 "), "not the entry point: {shown:?}");
        assert_eq!(users(&scenario[..3]), "engine/src/nn/linear.rs:8 highwater_engine::nn::linear::Linear::forward");
        let mut own = scenario.to_vec();
        own.push(("app::main::{{closure}}", "/home/me/app/src/main.rs", 12));
        assert_eq!(users(&own), "/home/me/app/src/main.rs:12 app::main");
        let optimizer = [scenario[0], scenario[1], scenario[4]];
        assert_eq!(users(&optimizer), "engine/src/scenario/mod.rs:7 highwater_engine::scenario::run");
    }

    #[test]
    fn stacks_that_differ_in_library_lines_alone_show_the_line_that_differs_in_its_place() {
        let own = ("app::train", "/home/me/app/src/main.rs", 12);
        let library = |line| ("adam::state", "/home/me/.cargo/registry/src/index-1/adam-1.0.0/src/lib.rs", line);
        let mut tables = Tables::default();
        let mut stack = |lines: &[(&str, &str, u32)]| {
            let mut parent = StackId::NONE;
            for &(function, file, line) in lines.iter().rev() {
                let (string, row) = (tables.strings.len() as u32, tables.stacks.len() as u32);
                tables.strings.extend([function.to_owned(), file.to_owned()]);
                tables.lines.push(SourceLine { function: StringId(string), file: StringId(string + 1), line });
                tables.frames.push(Frame { module: ModuleId::NONE, address: 0, first_line: row, line_count: 1 });
                tables.stacks.push(Stack { parent, frame: FrameId(row) });
                parent = StackId(row);
            }
            parent
        };
        let stacks = [stack(&[library(1), own]), stack(&[library(2), own]), stack(&[library(1), own, own])];
        let inner = ("app::layer", "/home/me/app/src/layer.rs", 3);
        let nested = [1, 2].map(|line| stack(&[inner, library(7), own, library(line), own]));
        let shown = short_stacks(&stacks.map(|stack| (&tables, stack)));
        assert!(shown[0][0].contains("lib.rs:1") && shown[1][0].contains("lib.rs:2"), "{shown:?}");
        assert_eq!(shown[0][1..], shown[1][1..]);
        assert!(shown[2][0].contains("main.rs:12"), "it has other lines of the program: {shown:?}");
        let shown = short_stacks(&nested.map(|stack| (&tables, stack)));
        assert_eq!(shown[1].len(), 5, "{shown:?}");
        assert!(shown[1][0].contains("layer.rs:3") && shown[1][2].contains("lib.rs:2"), "{shown:?}");
        assert_eq!(shown[1][4], "… and 1 library frame");
    }

    #[test]
    fn of_generated_code_the_node_leads() {
        let node = ("torch.fx: call_module relu model.py:7", "", 0);
        assert_eq!(users(&[("at::relu()", "", 0), node, ("forward", "<eval_with_key>.3", 5), MODULE]), node.0);
    }

    #[test]
    fn where_all_is_a_framework_the_line_that_says_most_leads() {
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
        assert_eq!(users(&engine), "MmBackward0");
        assert_eq!(users(&engine[..3]), "at::native::mm()");
        assert_eq!(users(&engine[..2]), "torch::unwind::unwind()");
        assert_eq!(users(&[engine[0], engine[2], MODULE]), format!("{}:{} {}", MODULE.1, MODULE.2, MODULE.0));
    }
}
