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

/// Whether `line` belongs to the machinery.
pub fn is_internal(tables: &Tables, line: &SourceLine) -> bool {
    let function = tables.string(line.function);
    let bare = function.trim_start_matches(['<', '&', '(']).trim_start_matches("dyn ");
    let file = tables.string(line.file);
    INTERNAL_FUNCTIONS.iter().any(|prefix| bare.starts_with(prefix))
        || INTERNAL_FILES.iter().any(|part| file.contains(part))
}

/// The innermost line of a stack that is not machinery; the innermost of all where every line is.
pub fn user_line(tables: &Tables, stack: StackId) -> Option<SourceLine> {
    let lines = || tables.stack_frames(stack).flat_map(|frame| tables.frame_lines(frame)).copied();
    lines().find(|line| !is_internal(tables, line)).or_else(|| lines().next())
}
