//! The functions of `libnvrtc.so`, which compile kernels to a shared object with the host's C++ compiler.
//!
//! The header `shim/cuda.h` is inserted before the source of a kernel, and defines CUDA's keywords on the host.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::collections::HashMap;
use std::ffi::{CStr, OsString, c_char, c_int};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::failure::{Code, Result, answer, fail, put};
use crate::functions::{Out, functions};
use crate::image::image_of;

/// The headers inserted before a kernel's source, by name.
const SHIM: &[(&str, &str)] = &[
    ("cuda.h", include_str!("shim/cuda.h")),
    ("launch.h", include_str!("shim/launch.h")),
    ("fibres.h", include_str!("shim/fibres.h")),
    ("warps.h", include_str!("shim/warps.h")),
    ("atomics.h", include_str!("shim/atomics.h")),
    ("numbers.h", include_str!("shim/numbers.h")),
    ("maths.h", include_str!("shim/maths.h")),
];

/// Options for compiling kernels. Most kernels run for less time than compiling with `-O2` would take. Kernels
/// reinterpret memory, as nvcc allows, so strict aliasing is off. They switch stacks, which fortified libraries would
/// report as an attack.
const OPTIONS: [&str; 9] = [
    "-O1",
    "-shared",
    "-fPIC",
    "-std=c++17",
    "-w",
    "-fno-strict-aliasing",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-U_FORTIFY_SOURCE",
];

/// `NVRTC_ERROR_…`.
const INVALID_INPUT: i32 = 3;
const INVALID_PROGRAM: i32 = 4;
const INVALID_OPTION: i32 = 5;
const COMPILATION: i32 = 6;
const INTERNAL: i32 = 11;

#[derive(Clone, Default)]
struct Program {
    name: String,
    text: Vec<u8>,
    headers: Vec<(String, Vec<u8>)>,
    log: String,
    image: Vec<u8>,
}

#[derive(Default)]
struct Programs {
    next: u64,
    known: HashMap<u64, Program>,
}

fn programs() -> MutexGuard<'static, Programs> {
    static PROGRAMS: OnceLock<Mutex<Programs>> = OnceLock::new();
    PROGRAMS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// The host's compiler: the one in `CXX`, or `c++`.
pub(crate) fn host_compiler() -> OsString {
    std::env::var_os("CXX").filter(|name| !name.is_empty()).unwrap_or_else(|| "c++".into())
}

/// Runs a call, and returns `code` instead of a driver error if it fails.
fn answer_with(code: i32, call: impl FnOnce() -> Result<()>) -> i32 {
    if answer("the compiler", call) == 0 { 0 } else { code }
}

/// Converts a C string.
///
/// # Safety
/// `text` is null, or ends in a zero and can be read.
unsafe fn text(text: *const c_char) -> Result<String> {
    if text.is_null() {
        return fail(Code::InvalidValue, "no text");
    }
    // SAFETY: as promised by the caller.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Returns a digest of everything that compiled kernels depend on apart from their source, so that versions do not
/// share a cache.
fn own_version() -> c_int {
    static VERSION: OnceLock<c_int> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let compiler = Command::new(host_compiler()).arg("--version").output().map(|words| words.stdout);
        let mut digest = 0xcbf2_9ce4_8422_2325_u64;
        let texts = SHIM.iter().map(|(_, text)| text.as_bytes()).chain(OPTIONS.map(str::as_bytes));
        for byte in texts.chain([&*compiler.unwrap_or_default()]).flatten() {
            digest = (digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        ((digest >> 33) as c_int).max(1)
    })
}

enum Setting {
    Macro(String, String),
    /// GPU options without a meaning on the host.
    OfGpus,
}

impl Setting {
    fn of(option: &str) -> Option<Self> {
        if let Some(definition) = option.strip_prefix("--define-macro=").or_else(|| option.strip_prefix("-D")) {
            let (name, value) = definition.split_once('=').unwrap_or((definition, "1"));
            return Some(Self::Macro(name.to_owned(), value.to_owned()));
        }
        let of_gpus = [
            "--gpu-architecture=",
            "--std=",
            "-default-device",
            "--default-device",
            "--device-as-default-execution-space",
            "--generate-line-info",
            "-lineinfo",
            "--fmad=",
            "--use_fast_math",
        ];
        of_gpus.iter().any(|known| option.starts_with(known)).then_some(Self::OfGpus)
    }
}

/// Compiles a program to a shared object; the error is the compiler's output.
fn compile(program: &Program, macros: &[(String, String)]) -> Result<Vec<u8>, String> {
    let folder = tempfile::tempdir().map_err(|why| format!("no temporary folder: {why}"))?;
    let write = |path: &Path, text: &[u8]| {
        let parent = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        parent.and_then(|()| std::fs::write(path, text)).map_err(|why| format!("{}: {why}", path.display()))
    };
    let shim = folder.path().join("shim");
    for (name, text) in SHIM {
        write(&shim.join(name), text.as_bytes())?;
    }
    // Macros such as T come behind the host's own headers, which know nothing of them.
    let defined: String = macros.iter().map(|(name, value)| format!("#define {name} {value}\n")).collect();
    write(&shim.join("prelude.h"), format!("#include \"cuda.h\"\n{defined}").as_bytes())?;
    for (name, text) in &program.headers {
        write(&folder.path().join(name), text)?;
    }
    write(&folder.path().join(&program.name), &program.text)?;
    let run = Command::new(host_compiler())
        .args(OPTIONS)
        .args(["-I", ".", "-include", "shim/prelude.h", "-x", "c++", &program.name, "-o", "kernels.so"])
        .current_dir(folder.path())
        .output()
        .map_err(|why| format!("{}: {why}", host_compiler().display()))?;
    if !run.status.success() {
        return Err(format!("{}\n{}", String::from_utf8_lossy(&run.stderr).trim(), run.status));
    }
    std::fs::read(folder.path().join("kernels.so")).map_err(|why| format!("kernels.so: {why}"))
}

/// Compiles a text to a shared object.
#[cfg(test)]
pub(crate) fn compile_text(name: &str, text: &str) -> Result<Vec<u8>, String> {
    compile(&Program { name: name.to_owned(), text: text.as_bytes().to_vec(), ..Program::default() }, &[])
}

/// Passes the program with this handle to `tell`, which copies a part of it to the caller.
fn tell(program: u64, tell: impl FnOnce(&Program) -> Result<()>) -> i32 {
    answer_with(INVALID_PROGRAM, || match programs().known.get(&program) {
        Some(program) => tell(program),
        None => fail(Code::InvalidHandle, "there is no such program"),
    })
}

functions! {
    fn nvrtcVersion(major: Out<'_, c_int>, minor: Out<'_, c_int>) -> i32 {
        answer_with(INVALID_INPUT, || {
            put(major, 13)?;
            put(minor, own_version())
        })
    }

    fn nvrtcCreateProgram(
        program: Out<'_, u64>,
        source: *const c_char,
        name: *const c_char,
        count: c_int,
        headers: *const *const c_char,
        names: *const *const c_char,
    ) -> i32 {
        answer_with(INVALID_INPUT, || {
            let mut made = Program::default();
            // SAFETY: texts and tables are the caller's, as the compiler's manual says.
            unsafe {
                made.name = if name.is_null() { "default_program".to_owned() } else { text(name)? };
                made.text = text(source)?.into_bytes();
                for index in 0..usize::try_from(count).unwrap_or(0) {
                    made.headers.push((text(*names.add(index))?, text(*headers.add(index))?.into_bytes()));
                }
            }
            let mut programs = programs();
            programs.next += 1;
            let handle = programs.next;
            put(program, handle)?;
            programs.known.insert(handle, made);
            Ok(())
        })
    }

    fn nvrtcDestroyProgram(program: Option<&mut u64>) -> i32 {
        answer_with(INVALID_PROGRAM, || match program {
            Some(handle) if programs().known.remove(handle).is_some() => {
                *handle = 0;
                Ok(())
            }
            _ => fail(Code::InvalidHandle, "there is no such program"),
        })
    }

    fn nvrtcCompileProgram(program: u64, count: c_int, options: *const *const c_char) -> i32 {
        let mut status = INTERNAL;
        let code = answer("nvrtcCompileProgram", || {
            let Some(found) = programs().known.get(&program).cloned() else {
                status = INVALID_PROGRAM;
                return fail(Code::InvalidHandle, "there is no such program");
            };
            let mut macros = Vec::new();
            for index in 0..usize::try_from(count).unwrap_or(0) {
                // SAFETY: the caller's table of as many texts.
                let option = unsafe { text(*options.add(index)) }?;
                match Setting::of(&option) {
                    Some(Setting::Macro(name, value)) => macros.push((name, value)),
                    Some(Setting::OfGpus) => {}
                    None => {
                        status = INVALID_OPTION;
                        let words = format!("the stand-in does not know the option {option}");
                        if let Some(program) = programs().known.get_mut(&program) {
                            program.log.clone_from(&words);
                        }
                        return fail(Code::InvalidValue, words);
                    }
                }
            }
            let (log, image) = match compile(&found, &macros) {
                Ok(object) => (String::new(), image_of(&object)),
                Err(log) => {
                    status = COMPILATION;
                    (log, Vec::new())
                }
            };
            let is_compiled = !image.is_empty();
            if let Some(program) = programs().known.get_mut(&program) {
                (program.log, program.image) = (log, image);
            }
            if is_compiled { Ok(()) } else { fail(Code::Unknown, "the kernels do not compile") }
        });
        if code == 0 { 0 } else { status }
    }

    fn nvrtcGetProgramLogSize(program: u64, bytes: Out<'_, usize>) -> i32 {
        tell(program, |program| put(bytes, program.log.len() + 1))
    }

    fn nvrtcGetProgramLog(program: u64, place: *mut c_char) -> i32 {
        tell(program, |program| {
            // SAFETY: the caller's place, of as many bytes as `nvrtcGetProgramLogSize` told.
            unsafe {
                std::ptr::copy_nonoverlapping(program.log.as_ptr().cast(), place, program.log.len());
                place.add(program.log.len()).write(0);
            }
            Ok(())
        })
    }

    fn nvrtcGetCUBINSize(program: u64, bytes: Out<'_, usize>) -> i32 {
        tell(program, |program| put(bytes, program.image.len()))
    }

    fn nvrtcGetCUBIN(program: u64, place: *mut c_char) -> i32 {
        tell(program, |program| {
            // SAFETY: the caller's place, of as many bytes as `nvrtcGetCUBINSize` told.
            unsafe { std::ptr::copy_nonoverlapping(program.image.as_ptr().cast(), place, program.image.len()) };
            Ok(())
        })
    }
}
