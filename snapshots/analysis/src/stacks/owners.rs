//! Determines the owner of a source line (the user, a library or a framework) from its function and path.

use highwater_snapshots::tables::{SourceLine, Tables, UNKNOWN_FILE};

/// The owner of a line of code, in order of precedence. A stack is represented by the innermost line of the first owner
/// that occurs in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LineOwner {
    /// The user's own program.
    Program,
    /// A library of models or training loops: Python packages, downloaded crates, the models of Highwater's engine.
    Library,
    /// The layers of a Rust framework.
    Layer,
    /// Frameworks, allocators and runtimes, whose lines do not show the purpose of an allocation.
    Framework,
}

impl LineOwner {
    /// All owners, in order of precedence.
    pub const ALL: [Self; 4] = [Self::Program, Self::Library, Self::Layer, Self::Framework];

    pub(crate) fn of(tables: &Tables, line: &SourceLine) -> Self {
        let (function, file) = (tables.string(line.function), tables.string(line.file));
        let normalized;
        let file = if file.contains('\\') {
            normalized = file.replace('\\', "/");
            &normalized
        } else {
            file
        };
        if is_python(file) { of_python(file) } else { of_native(function, file) }
    }
}

/// Whether `file` is a Python file, or Python code without a file such as `<string>`.
pub(crate) fn is_python(file: &str) -> bool {
    file.ends_with(".py") || file.starts_with('<') || file.contains("/ipykernel_")
}

/// Python packages that count as frameworks: PyTorch and the packages between it and models.
const PYTHON_FRAMEWORKS: &[&str] =
    &["torch/", "torchgen/", "functorch/", "torch_xla/", "triton/", "numpy/", "einops/", "highwater/"];

/// Path fragments of framework code outside of a package folder.
const PYTHON_FRAMEWORK_PATHS: &[&str] = &["/pytorch/torch/", "/python/highwater/_", "/torchinductor_", "<frozen "];

/// Path fragments of libraries that are used from a checkout, such as an editable installation: the repository's folder
/// and the package's folder within it.
const CHECKOUTS: &[&str] = &[
    "/accelerate/src/accelerate/",
    "/deepspeed/deepspeed/",
    "/diffusers/src/diffusers/",
    "/fairseq/fairseq/",
    "/hydra/hydra/",
    "/lightning/src/lightning/",
    "/megatron-lm/megatron/",
    "/peft/src/peft/",
    "/pytorch-lightning/src/",
    "/sglang/python/sglang/",
    "/torchtitan/torchtitan/",
    "/transformers/src/transformers/",
    "/trl/trl/",
    "/vision/torchvision/",
    "/vllm/vllm/",
];

fn of_python(file: &str) -> LineOwner {
    let file = file.to_ascii_lowercase();
    let installed = ["/site-packages/", "/dist-packages/"].iter().find_map(|folder| file.rsplit_once(folder));
    if let Some((_, package)) = installed {
        let is_framework = PYTHON_FRAMEWORKS.iter().any(|framework| package.starts_with(framework));
        return if is_framework { LineOwner::Framework } else { LineOwner::Library };
    }
    let is_framework = PYTHON_FRAMEWORK_PATHS.iter().any(|part| file.contains(part)) || file.starts_with("torch/");
    if is_framework || is_of_interpreter(&file) {
        return LineOwner::Framework;
    }
    if CHECKOUTS.iter().any(|part| file.contains(part)) { LineOwner::Library } else { LineOwner::Program }
}

/// Returns whether a path in lower case, such as `/usr/lib/python3.12/threading.py`, `c:/python312/lib/threading.py` or
/// `c:/users/me/miniconda3/envs/a/lib/runpy.py`, is in the Python standard library.
fn is_of_interpreter(file: &str) -> bool {
    if file.contains("/lib/python3") || file.contains("/lib64/python3") {
        return true;
    }
    // On Windows, the installation folder contains `lib` directly.
    let installation = file.rsplit_once("/lib/").map(|(before, _)| before).filter(|before| before.contains(":/"));
    let mut folders = installation.unwrap_or_default().rsplit('/');
    let (name, parent) = (folders.next().unwrap_or_default(), folders.next().unwrap_or_default());
    let is_versioned = |version: &str| version.chars().all(|c| !c.is_alphabetic());
    name.strip_prefix("python").is_some_and(is_versioned)
        || name.starts_with("cpython-")
        || ["anaconda", "miniconda", "miniforge", "mambaforge"].iter().any(|conda| name.starts_with(conda))
        || ["envs", "versions"].contains(&parent)
}

/// Prefixes of framework functions, in addition to the crates in [`FRAMEWORK_CRATES`].
const FRAMEWORK_FUNCTIONS: &[&str] = &[
    // Code that the compiler generates for `#[global_allocator]`; its line is the program's.
    "__rustc::",
    "__rust_",
    "__libc_start",
    "_start",
    // PyTorch, CPython, and functions that start their threads.
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

/// Crates that are frameworks, allocators or runtimes; a name that ends in `_` matches all crates with that prefix.
const FRAMEWORK_CRATES: &[&str] = &[
    "alloc",
    "burn_autodiff",
    "burn_backend",
    "burn_cubecl",
    "burn_dispatch",
    "burn_flex",
    "burn_fusion",
    "burn_ndarray",
    "burn_tensor",
    "candle_core",
    "core",
    "crossbeam_",
    "cubecl_",
    "cudarc",
    "dyn_stack",
    "gemm",
    "gemm_",
    "highwater",
    "highwater_inject",
    "highwater_kernels",
    "highwater_recorder",
    "highwater_snapshots",
    "ndarray",
    "rayon",
    "rayon_core",
    "std",
];

const POOL_CRATES: &[&str] = &["crossbeam_", "rayon", "rayon_core"];

/// Crates that call closures or allocate on behalf of their caller, other than thread pools.
const RUNTIME_CRATES: &[&str] = &["alloc", "core", "dyn_stack", "highwater_allocator", "highwater_recorder", "std"];

/// Prefixes of runtime functions, for the start of a program or a thread, and for Rust's allocator.
const RUNTIME_FUNCTIONS: &[&str] = &["__rustc::", "__rust_", "__libc_", "_start", "__clone", "clone3", "start_thread"];

const LAYER_CRATES: &[&str] = &["burn_core", "burn_nn", "burn_optim", "candle_nn", "candle_optimisers"];

/// Path fragments of Rust's standard libraries, and of crates in the same repository. Needed for inlined functions,
/// whose names have no path. Matched against paths that start with `/`.
const FRAMEWORK_FILES: &[&str] = &[
    "/rustc/",
    "/rustlib/src/rust/library/",
    "/library/alloc/",
    "/library/core/",
    "/library/std/",
    "/engine/allocator/src/",
    "/recorder/inject/src/",
    "/candle-core/src/",
    // Of Highwater's own binary, whose inlined functions have names without a crate.
    "/viewer/src/lib.rs",
    "/viewer/src/main.rs",
    "/viewer/src/commands",
    // The same in recordings of earlier versions.
    "/viewer/src/record.rs",
    "/viewer/src/cli/mod.rs",
];

/// The modules of the recorder that appear in stacks around the point where the stack is captured.
const RECORDER_MODULES: &[&str] =
    &["api", "context", "heap", "hub", "oom", "recording", "scope", "sender", "stack", "start"];

/// Folders of downloaded crates.
const FETCHED: &[&str] = &["/registry/src/", "/git/checkouts/"];

const CPYTHON_FOLDERS: &[&str] = &["/Include/", "/Modules/", "/Objects/", "/Python/"];

fn of_native(function: &str, file: &str) -> LineOwner {
    if file == UNKNOWN_FILE || function == UNKNOWN_FILE {
        // A library without symbols: PyTorch names its functions after whatever symbol is next to them, or not at all,
        // and then gives the address within the library as the line number.
        return LineOwner::Framework;
    }
    let bare = bare_name(function);
    let is_framework = FRAMEWORK_FUNCTIONS.iter().any(|prefix| without_glibc_mark(bare).starts_with(prefix));
    if is_framework || is_of_pytorch(function) || is_of_cpython(function, file) {
        return LineOwner::Framework;
    }
    let rooted;
    let path = if file.starts_with('/') {
        file
    } else {
        rooted = format!("/{file}");
        &rooted
    };
    // The crate name decides if the function has one, since folders may have any name.
    if let Some((name, rest)) = crate_of(bare) {
        return match name {
            "highwater_engine" => of_engine(rest),
            "highwater_allocator" => LineOwner::Framework,
            _ => of_crate(name).unwrap_or_else(|| of_fetched(path).unwrap_or(LineOwner::Program)),
        };
    }
    let published = path.split_once("/highwater-engine-").and_then(|(_, rest)| rest.split_once("/src/"));
    // Folders of other programs may have the same names.
    let is_rust = path.ends_with(".rs");
    let in_engine = path.split_once("/engine/src/").filter(|_| is_rust).or(published).map(|(_, rest)| rest);
    match in_engine.filter(|rest| ENGINE_MODULES.iter().any(|module| is_module(rest, module))) {
        Some(rest) => of_engine(rest),
        None if FRAMEWORK_FILES.iter().any(|part| path.contains(part) && (is_rust || part.starts_with("/rust"))) => {
            LineOwner::Framework
        }
        None if is_of_recorder(function, path) => LineOwner::Framework,
        None if path.contains("/candle-nn/src/") => LineOwner::Layer,
        None => of_fetched(path).unwrap_or(LineOwner::Program),
    }
}

/// The name of a glibc function without the prefix of its internal aliases, as in `__GI___clone3`.
fn without_glibc_mark(function: &str) -> &str {
    function.strip_prefix("__GI_").unwrap_or(function)
}

/// Whether a line belongs to a thread pool, which runs closures of its caller.
pub(crate) fn is_pool(function: &str, file: &str) -> bool {
    is_of_crates(POOL_CRATES, function, file)
}

/// Returns whether a line belongs to the recorder, according to the function's name, or to the file if the name has no
/// path (inlined).
pub(crate) fn is_of_recorder(function: &str, file: &str) -> bool {
    let is_folder = |before: &str| before.is_empty() || before.ends_with('/');
    let in_recorder =
        || file.rsplit_once("recorder/src/").filter(|(before, _)| file.ends_with(".rs") && is_folder(before));
    is_of_crates(&["highwater_recorder"], function, file)
        || (crate_of(bare_name(function)).is_none()
            && in_recorder().is_some_and(|(_, rest)| RECORDER_MODULES.iter().any(|module| is_module(rest, module))))
}

/// Returns whether a line only calls closures or allocates for its caller, so that its callee or caller is more
/// informative.
pub(crate) fn is_runtime(function: &str, file: &str) -> bool {
    let name = without_glibc_mark(bare_name(function));
    let is_of_rust = crate_of(name).is_none()
        && ["/rustc/", "/rustlib/src/rust/library/"].iter().any(|folder| file.contains(folder));
    RUNTIME_FUNCTIONS.iter().any(|prefix| name.starts_with(prefix))
        || is_of_rust
        || is_of_crates(RUNTIME_CRATES, function, file)
        || is_pool(function, file)
}

/// Returns whether a line belongs to one of `crates`, judged by the path of the function, or otherwise by the file.
fn is_of_crates(crates: &[&str], function: &str, file: &str) -> bool {
    match crate_of(bare_name(function)) {
        Some((name, _)) => is_listed(crates, name),
        None => fetched_crates(file).is_some_and(|mut names| names.any(|name| is_listed(crates, &name))),
    }
}

/// Folders of system libraries, and of extension modules of Python packages.
const SYSTEM_FOLDERS: &[&str] = &["/lib/", "/lib64/", "/usr/", "/nix/store/", "/opt/cuda"];

/// Prefixes of libraries that are frameworks or runtimes, in any folder.
const FRAMEWORK_LIBRARIES: &[&str] = &[
    "ld-",
    "libc.",
    "libc-",
    "libc10",
    "libcu",
    "libgcc_s",
    "libgomp",
    "libhighwater",
    "libm.",
    "libnccl",
    "libnv",
    "libpthread",
    "libpython",
    "libstdc++",
    "libtorch",
];

/// Returns the owner of code in the binary or library at `path`, determined only by the path.
pub(crate) fn owner_of_module(path: &str) -> LineOwner {
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_library = name.ends_with(".so") || name.contains(".so.");
    let is_installed = path.contains("/site-packages/") || path.contains("/dist-packages/");
    let is_of_system = SYSTEM_FOLDERS.iter().any(|folder| path.starts_with(folder));
    let version = name.strip_prefix("python");
    let is_python = version.is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'));
    let is_known = FRAMEWORK_LIBRARIES.iter().any(|prefix| name.starts_with(prefix));
    if is_library && (is_installed || is_of_system || is_known) || is_python || !path.contains('/') {
        LineOwner::Framework
    } else if name == "highwater" {
        LineOwner::Library
    } else {
        LineOwner::Program
    }
}

/// Returns whether the binary or library at `path` belongs to the user, determined only by the path.
pub fn is_of_program(path: &str) -> bool {
    owner_of_module(path) == LineOwner::Program
}

/// The function's name without anything before its crate, such as `<&dyn` in `<&dyn app::Net as Module>::forward`.
pub(crate) fn bare_name(function: &str) -> &str {
    function.trim_start_matches(['<', '&', '(']).trim_start_matches("mut ").trim_start_matches("dyn ")
}

/// The crate of a qualified Rust name, and the path within it.
fn crate_of(function: &str) -> Option<(&str, &str)> {
    let (name, rest) = function.split_once("::")?;
    let is_snake = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    (!name.is_empty() && name.chars().all(is_snake)).then_some((name, rest))
}

/// The modules of the engine and of earlier versions. A name without a path in one of their files is the engine's.
const ENGINE_MODULES: &[&str] = &[
    "alloc", "autograd", "backend", "device", "models", "nn", "ops", "optim", "replay", "scenario", "storage", "tensor",
];

/// Returns whether `path`, the path of a function or file within a crate, is in `module`.
fn is_module(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.starts_with(['/', '.', ':']))
}

/// Returns the owner of `path` within the engine. The code of a scenario represents stacks without user code.
fn of_engine(path: &str) -> LineOwner {
    match path {
        path if is_module(path, "models") || is_module(path, "scenario") => LineOwner::Library,
        path if is_module(path, "nn") => LineOwner::Layer,
        _ => LineOwner::Framework,
    }
}

fn of_crate(name: &str) -> Option<LineOwner> {
    if is_listed(FRAMEWORK_CRATES, name) {
        Some(LineOwner::Framework)
    } else {
        is_listed(LAYER_CRATES, name).then_some(LineOwner::Layer)
    }
}

/// Whether a crate is in `crates`, where a name that ends in `_` matches all crates with that prefix.
fn is_listed(crates: &[&str], name: &str) -> bool {
    crates.iter().any(|known| *known == name || (known.ends_with('_') && name.starts_with(known)))
}

/// The owner of a file in a folder of crates downloaded by cargo.
fn of_fetched(path: &str) -> Option<LineOwner> {
    let known = fetched_crates(path)?.find_map(|name| of_crate(&name));
    Some(known.unwrap_or(LineOwner::Library))
}

/// The possible crate names of a file in a folder of crates downloaded by cargo, such as
/// `…/registry/src/index/name-1.2.3/src/lib.rs`. `None` for other files.
fn fetched_crates(path: &str) -> Option<impl Iterator<Item = String>> {
    let (_, rest) = FETCHED.iter().find_map(|folder| path.split_once(folder))?;
    let name = |folder: &str| {
        let mut dashes = folder.match_indices('-').map(|(at, _)| at);
        let version = dashes.find(|at| folder[at + 1..].starts_with(|c: char| c.is_ascii_digit()));
        folder[..version.unwrap_or(folder.len())].replace('-', "_")
    };
    Some(rest.split('/').skip(1).take_while(|folder| *folder != "src").map(name))
}

/// Returns whether a C++ function belongs to PyTorch. Handles names that start with a return type, as those of
/// templates do.
fn is_of_pytorch(function: &str) -> bool {
    let head = function.split('(').next().unwrap_or_default();
    head.split(' ').skip(1).any(|word| ["at::", "c10::", "torch::"].iter().any(|prefix| word.starts_with(prefix)))
}

/// Returns whether a C function, such as `PyNumber_Add` or `_PyEval_EvalFrameDefault`, or a source file belongs to
/// CPython.
fn is_of_cpython(function: &str, file: &str) -> bool {
    let api = function.trim_start_matches('_').strip_prefix("Py");
    let is_api =
        api.is_some_and(|rest| rest.split_once('_').is_some_and(|(word, _)| word.chars().all(char::is_alphabetic)));
    let is_c = file.ends_with(".c") || file.ends_with(".h");
    is_api || (is_c && CPYTHON_FOLDERS.iter().any(|folder| file.contains(folder)))
}

#[cfg(test)]
mod tests {
    use super::LineOwner::{Framework, Layer, Library, Program};
    use super::*;
    use highwater_snapshots::ids::StringId;

    fn owner(function: &str, file: &str) -> LineOwner {
        let tables = Tables { strings: vec![function.to_owned(), file.to_owned()], ..Tables::default() };
        LineOwner::of(&tables, &SourceLine { function: StringId(0), file: StringId(1), line: 7 })
    }

    #[test]
    fn python_is_the_users_unless_it_is_installed_or_comes_with_the_interpreter() {
        for (file, expected) in [
            ("/home/me/train.py", Program),
            ("/home/me/torch/train.py", Program),
            ("/home/me/envs/cartpole.py", Program),
            ("/home/me/lib/model.py", Program),
            (r"D:\work\lib\model.py", Program),
            (r"D:\work\my-packages\model.py", Program),
            ("/home/me/src/transformers/block.py", Program),
            ("<ipython-input-3-abc>", Program),
            ("/tmp/ipykernel_71/2.py", Program),
            ("/opt/conda/envs/a/lib/python3.10/site-packages/lightning/pytorch/trainer.py", Library),
            ("/usr/lib/python3/dist-packages/hydra/main.py", Library),
            ("/home/me/.venv/lib/python3.12/site-packages/accelerate/accelerator.py", Library),
            (r"C:\Users\me\app\.venv\Lib\site-packages\deepspeed\runtime\engine.py", Library),
            ("/home/me/src/transformers/src/transformers/trainer.py", Library),
            ("/home/me/DeepSpeed/deepspeed/runtime/engine.py", Library),
            ("/home/me/pytorch-lightning/src/lightning/fabric/fabric.py", Library),
            ("/opt/conda/lib/python3.10/site-packages/torch/nn/functional.py", Framework),
            (r"C:\Users\me\app\.venv\Lib\site-packages\torch\nn\functional.py", Framework),
            ("/home/me/pytorch/torch/_tensor.py", Framework),
            ("torch/nn/functional.py", Framework),
            ("/opt/conda/envs/a/lib/python3.10/threading.py", Framework),
            (r"C:\Python310\Lib\runpy.py", Framework),
            (r"C:\Users\me\AppData\Local\Programs\Python\Python311\Lib\threading.py", Framework),
            (r"C:\Users\me\miniconda3\envs\a\lib\contextlib.py", Framework),
            ("<frozen runpy>", Framework),
        ] {
            assert_eq!(owner("f", file), expected, "{file}");
        }
    }

    #[test]
    fn rust_is_the_users_unless_it_is_fetched_a_framework_or_the_engine() {
        let registry = "/home/me/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/";
        let checkout = "/home/me/.cargo/git/checkouts/highwater-3a1b2c/9f8e7d6/";
        for (function, file, expected) in [
            ("app::train::step", "src/train.rs", Program),
            ("step", "src/train.rs", Program),
            ("app::engine::models::Net::forward", "/home/me/app/engine/src/models/net.rs", Program),
            ("<app::Net as highwater_engine::nn::Module>::forward", "src/net.rs", Program),
            ("<&dyn app::Net as Module>::forward", "src/net.rs", Program),
            ("<alloc::vec::Vec<T> as Clone>::clone", "/rustc/59807616e1fa/library/alloc/src/vec/mod.rs", Framework),
            ("map<usize>", "/rustc/59807616e1fa/library/core/src/iter/mod.rs", Framework),
            ("from_elem", "/home/me/.rustup/toolchains/x/lib/rustlib/src/rust/library/alloc/src/vec/mod.rs", Framework),
            ("rayon_core::join", "", Framework),
            ("join", &format!("{registry}rayon-core-1.12.1/src/join/mod.rs"), Framework),
            ("read", &format!("{registry}safetensors-0.4.0-rc.1/src/alloc/mod.rs"), Library),
            ("image::open", &format!("{registry}image-0.25.0/src/lib.rs"), Library),
            ("candle_nn::linear::Linear::forward", "", Layer),
            ("highwater_engine::optim::adam::Adam::step", "/home/me/highwater/engine/src/optim/adam.rs", Framework),
            ("highwater_engine::models::vit::Vit::new", "/home/me/highwater/engine/src/models/vit.rs", Library),
            ("forward", "engine/src/models/vit.rs", Library),
            ("{{closure}}", "engine/src/optim/moments.rs", Framework),
            ("{{closure}}", &format!("{checkout}engine/src/optim/moments.rs"), Framework),
            ("forward", &format!("{checkout}engine/src/nn/linear.rs"), Layer),
            ("forward", &format!("{registry}highwater-engine-0.1.0/src/scenario/mod.rs"), Library),
            ("record", "recorder/src/hub.rs", Framework),
            ("alloc", &format!("{registry}highwater-recorder-0.1.0/src/api.rs"), Framework),
            ("alloc", &format!("{checkout}recorder/src/api.rs"), Framework),
            ("app::step", "/home/me/recorder/src/api.rs", Program),
            ("step", "/home/me/recorder/src/main.rs", Program),
            ("take_snapshot", "/home/me/recorder/src/api.cpp", Program),
            ("step", "/home/me/highwater-recorder-test/src/main.rs", Program),
            ("step", "/home/me/tape-recorder/src/api.rs", Program),
            ("step", "/home/me/engine/src/device/gpu.cpp", Program),
            ("step", "/home/me/library/core/step.cpp", Program),
            ("main", "/home/me/app/recorder/examples/nerf.rs", Program),
        ] {
            assert_eq!(owner(function, file), expected, "{function} in {file}");
        }
    }

    #[test]
    fn names_in_c_say_whether_they_are_pytorchs_or_cpythons() {
        for (function, file, expected) in [
            ("mine::norm(at::Tensor)", "norm.cu", Program),
            ("cublasLtCreate", "libcublasLt.so", Program),
            ("at::native::add(at::Tensor const&)", "Add.cpp", Framework),
            ("void at::native::gpu_kernel<int>(int)", "Loops.cuh", Framework),
            ("_PyEval_EvalFrameDefault", "", Framework),
            ("type_call", "/build/python-3.12.7/Objects/typeobject.c", Framework),
            ("anything", "??", Framework),
            ("??", "/env/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so", Framework),
        ] {
            assert_eq!(owner(function, file), expected, "{function} in {file}");
        }
    }
}
