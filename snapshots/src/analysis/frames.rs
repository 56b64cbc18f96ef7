//! Frames: which source lines belong to the machinery, and which to the program that a person wrote.

use crate::ids::StackId;
use crate::tables::{SourceLine, Tables};

/// Functions whose lines say how memory was obtained, not why: allocators, frameworks, runtimes.
const INTERNAL_FUNCTIONS: &[&str] = &[
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
    "__rust_",
    "__libc_start",
    "_start",
    "at::",
    "c10::",
    "torch::",
    "_Py",
    "PyEval_",
    "PyImport_",
    "PyObject_",
    "PyRun_",
    "PyVectorcall_",
    "Py_",
    "cfunction_",
    "method_vectorcall",
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
];

/// Parts of paths below Python: in a stack with Python lines, what is written in C or C++ is machinery, and so are these.
const PYTHON_INTERNAL_FILES: &[&str] = &[
    "-packages/torch/",
    "-packages/torchvision/ops/",
    "-packages/triton/",
    "-packages/numpy/",
    "-packages/einops/",
    "/torch/_inductor/",
    "/torchinductor_",
    "<frozen ",
];

/// A line of a stack as a person reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackLine {
    /// `function (file:line)`, or the module and address where the frame could not be resolved.
    pub text: String,
    /// Whether it belongs to the program, not to the machinery.
    pub is_program: bool,
}

/// The lines of a stack, innermost first.
pub fn stack_lines(tables: &Tables, stack: StackId) -> Vec<StackLine> {
    let lines = || tables.stack_frames(stack).flat_map(|frame| tables.frame_lines(frame));
    let has_python = lines().any(|line| is_python(tables.string(line.file)));
    let of_frames = tables.stack_frames(stack).flat_map(|frame| {
        let found = tables.frame_lines(frame);
        let unresolved = found.is_empty().then_some(!has_python);
        found.iter().map(move |line| !is_machinery(tables, line, has_python)).chain(unresolved)
    });
    let texts = tables.stack_text(stack);
    texts.into_iter().zip(of_frames).map(|(text, is_program)| StackLine { text, is_program }).collect()
}

/// The innermost line of a stack that is not machinery; where every line is, the innermost of Python, or of all.
pub fn user_line(tables: &Tables, stack: StackId) -> Option<SourceLine> {
    let lines = || tables.stack_frames(stack).flat_map(|frame| tables.frame_lines(frame)).copied();
    let is_python = |line: &SourceLine| is_python(tables.string(line.file));
    let has_python = lines().any(|line| is_python(&line));
    let program = lines().find(|line| !is_machinery(tables, line, has_python));
    program.or_else(|| lines().find(is_python)).or_else(|| lines().next())
}

fn is_machinery(tables: &Tables, line: &SourceLine, has_python: bool) -> bool {
    let (function, file) = (tables.string(line.function), tables.string(line.file));
    if has_python {
        return !is_python(file) || is_python_machinery(&file.replace('\\', "/"));
    }
    let bare = function.trim_start_matches(['<', '&', '(']).trim_start_matches("dyn ");
    INTERNAL_FUNCTIONS.iter().any(|prefix| bare.starts_with(prefix))
        || INTERNAL_FILES.iter().any(|part| file.contains(part))
}

/// Whether the file is Python's: a source file, or one of the names that Python gives to code without a file.
fn is_python(file: &str) -> bool {
    file.ends_with(".py") || file.starts_with("<eval_with_key>") || file.starts_with("<ipython") || file == "<stdin>"
}

/// Whether a Python file, its path with slashes, is of PyTorch or of Python itself. Other libraries are not: which line
/// of a model's library took the memory is what people ask.
fn is_python_machinery(file: &str) -> bool {
    let is_standard = file.contains("/lib/python3") && !file.contains("-packages/");
    is_standard || PYTHON_INTERNAL_FILES.iter().any(|part| file.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{FrameId, ModuleId, StringId};
    use crate::tables::{Frame, Stack};

    /// Tables with one stack of these functions and files, innermost first.
    fn stack_of(lines: &[(&str, &str)]) -> (Tables, StackId) {
        let mut tables = Tables::default();
        let mut parent = StackId::NONE;
        for (row, (function, file)) in lines.iter().rev().enumerate() {
            tables.strings.extend([(*function).to_owned(), (*file).to_owned()]);
            let (function, file) = (StringId(2 * row as u32), StringId(2 * row as u32 + 1));
            tables.lines.push(SourceLine { function, file, line: 7 });
            tables.frames.push(Frame { module: ModuleId::NONE, address: 0, first_line: row as u32, line_count: 1 });
            tables.stacks.push(Stack { parent, frame: FrameId(row as u32) });
            parent = StackId(row as u32);
        }
        (tables, parent)
    }

    fn user(lines: &[(&str, &str)]) -> String {
        let (tables, stack) = stack_of(lines);
        tables.string(user_line(&tables, stack).unwrap().function).to_owned()
    }

    #[test]
    fn below_python_everything_is_machinery_and_so_is_pytorch_itself() {
        let lines = [
            ("torch::unwind::unwind()", "??"),
            ("_object* torch::autograd::TypeError_to_NotImplemented_<&add>", "python_variable_methods.cpp"),
            ("binary_op1", "/usr/local/src/Objects/abstract.c"),
            ("_call_impl", "C:\\env\\site-packages\\torch\\nn\\modules\\module.py"),
            ("forward", "/env/lib/python3.12/site-packages/transformers/modeling_falcon.py"),
            ("__call__", "/usr/lib/python3.12/functools.py"),
            ("main", "/home/me/train.py"),
        ];
        assert_eq!(user(&lines), "forward");
        let (tables, stack) = stack_of(&lines);
        let program: Vec<bool> = stack_lines(&tables, stack).iter().map(|line| line.is_program).collect();
        assert_eq!(program, [false, false, false, false, true, false, true]);
    }

    #[test]
    fn where_all_is_machinery_the_innermost_line_of_python_speaks() {
        let all = [("c10::alloc", "a.cpp"), ("backward", "/x/site-packages/torch/_tensor.py"), ("main", "main.c")];
        assert_eq!(user(&all), "backward");
        assert_eq!(user(&[("c10::alloc", "a.cpp"), ("at::empty", "b.cpp")]), "c10::alloc");
    }

    #[test]
    fn a_rust_program_is_told_from_its_framework() {
        let lines = [
            ("highwater_engine::ops::matmul", "/x/engine/src/ops/matmul.rs"),
            ("my_model::forward", "src/model.rs"),
            ("std::rt::lang_start", "/library/std/src/rt.rs"),
        ];
        assert_eq!(user(&lines), "my_model::forward");
    }
}
