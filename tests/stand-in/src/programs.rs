//! Compiled kernels, and their execution by the threads of a grid.
#![expect(unsafe_code, reason = "loads shared objects and runs kernels in them")]

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::failure::{Code, Result, fail};
use crate::mapping::{Fresh, Guarded, Mapping, host_page};
use crate::shared_memory::{MARK, Variable, shared_variables};
use crate::streams::Work;

/// Shared memory that a block may use without a request, in bytes.
const UNASKED_SHARED_BYTES: u32 = 48 << 10;
/// The alignment of shared memory.
const SHARED_ALIGNMENT: usize = 16;
/// Maximum number of threads of a block.
pub(crate) const MAX_THREADS: u32 = 1024;
/// Maximum size of a kernel's arguments in bytes.
const MAX_ARGUMENT_BYTES: usize = 4096;

/// The description of a kernel that its file exports: `cpu::Export` of `launch.h`.
#[repr(C)]
struct Export {
    run: extern "C" fn(arguments: *const *mut c_void, launch: *const Launch) -> c_int,
    count: u32,
    sizes: *const u32,
    alignments: *const u32,
}

/// The description of a launch for a kernel's file: `cpu::Launch` of `launch.h`.
#[repr(C)]
struct Launch {
    blocks: [u32; 3],
    threads: [u32; 3],
    seed: u64,
    /// Shared memory that the launch requests, in bytes.
    shared: *mut c_void,
    shared_bytes: u64,
    /// Shared memory that the kernels of the file declare.
    declared: *const Declared,
    declared_count: u64,
    /// Stacks for the threads of a block, each after inaccessible addresses.
    stacks: *mut c_void,
    stack_bytes: u64,
    guard_bytes: u64,
    /// The buffer for the text of an error.
    words: *mut c_char,
    words_bytes: u64,
}

/// A variable in shared memory: `cpu::Declared` of `launch.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Declared {
    place: *mut c_void,
    bytes: u64,
}

/// The results of `run` other than 0, success: `cpu::Outcome` of `launch.h`.
const ILLEGAL_ADDRESS: c_int = 2;

struct Module {
    device: usize,
    library: Arc<Loaded>,
}

/// A shared object of kernels in memory.
struct Loaded {
    library: Library,
    declared: Vec<Declared>,
}

// SAFETY: the places are read and written by kernels only, one of which runs at a time.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

/// A kernel that can be launched.
#[derive(Clone)]
pub(crate) struct Function {
    name: String,
    module: u64,
    export: &'static Export,
    // The export lies in it.
    library: Arc<Loaded>,
    most_shared_bytes: u32,
}

// SAFETY: the export is constant data and code, which stays loaded as long as this lives.
unsafe impl Send for Function {}

/// The grid, block and shared memory of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) blocks: [u32; 3],
    pub(crate) threads: [u32; 3],
    pub(crate) shared_bytes: u32,
}

/// All loaded programs.
#[derive(Default)]
pub(crate) struct Programs {
    next: u64,
    modules: HashMap<u64, Module>,
    functions: HashMap<u64, Function>,
}

const FIRST: u64 = 0x6d00_0000_0000;

impl Programs {
    fn handle(&mut self) -> u64 {
        self.next += 16;
        FIRST + self.next
    }

    /// Loads a shared object for a device.
    pub(crate) fn load(&mut self, device: usize, object: &[u8]) -> Result<u64> {
        let failed = |why: &dyn std::fmt::Display| fail(Code::InvalidImage, format!("loading kernels: {why}"));
        let mut file = match tempfile::Builder::new().suffix(".so").tempfile() {
            Ok(file) => file,
            Err(why) => return failed(&why),
        };
        if let Err(why) = file.write_all(object) {
            return failed(&why);
        }
        // SAFETY: this crate's compiler made it; it has no constructors but those of the kernels' own constants.
        match unsafe { Library::open(Some(file.path()), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => {
                let declared = declared_in(&library, object)?;
                let handle = self.handle();
                self.modules.insert(handle, Module { device, library: Arc::new(Loaded { library, declared }) });
                Ok(handle)
            }
            Err(why) => failed(&why),
        }
    }

    /// The device of a module.
    pub(crate) fn device_of(&self, module: u64) -> Result<usize> {
        match self.modules.get(&module) {
            Some(module) => Ok(module.device),
            None => fail(Code::InvalidHandle, format!("there is no module {module:#x}")),
        }
    }

    /// Unloads a module and its functions.
    pub(crate) fn unload(&mut self, module: u64) {
        self.modules.remove(&module);
        self.functions.retain(|_, function| function.module != module);
    }

    /// Unloads all modules of a device.
    pub(crate) fn reset(&mut self, device: usize) {
        let gone: Vec<u64> =
            self.modules.iter().filter(|(_, module)| module.device == device).map(|(&handle, _)| handle).collect();
        gone.into_iter().for_each(|module| self.unload(module));
    }

    /// Returns the kernel of this name.
    pub(crate) fn find(&mut self, module: u64, name: &CStr) -> Result<u64> {
        self.device_of(module)?;
        let known =
            self.functions.iter().find(|(_, known)| known.module == module && known.name.as_bytes() == name.to_bytes());
        if let Some((&handle, _)) = known {
            return Ok(handle);
        }
        let Some(library) = self.modules.get(&module).map(|module| Arc::clone(&module.library)) else {
            return fail(Code::InvalidHandle, format!("there is no module {module:#x}"));
        };
        let name = name.to_string_lossy().into_owned();
        // SAFETY: symbols of this name are exports; only `launch.h` makes them.
        let export = unsafe { library.library.get::<*const Export>(format!("highwater_export_{name}\0").as_bytes()) };
        let Ok(export) = export else {
            return fail(Code::NotFound, format!("no kernel {name} is exported by EXPORT or EXPORT_PLAIN"));
        };
        // SAFETY: constant data of the library, which every function keeps loaded.
        let export: &'static Export = unsafe { &**export };
        let handle = self.handle();
        self.functions
            .insert(handle, Function { name, module, export, library, most_shared_bytes: UNASKED_SHARED_BYTES });
        Ok(handle)
    }

    /// A function by its handle.
    pub(crate) fn function(&mut self, handle: u64) -> Result<&mut Function> {
        match self.functions.get_mut(&handle) {
            Some(function) => Ok(function),
            None => fail(Code::InvalidHandle, format!("there is no function {handle:#x}")),
        }
    }

    /// The device that a function was loaded for.
    pub(crate) fn device_of_function(&self, handle: u64) -> Result<usize> {
        match self.functions.get(&handle) {
            Some(function) => self.device_of(function.module),
            None => fail(Code::InvalidHandle, format!("there is no function {handle:#x}")),
        }
    }
}

/// Finds a loaded library's variables in shared memory.
fn declared_in(library: &Library, object: &[u8]) -> Result<Vec<Declared>> {
    // SAFETY: only the address is taken.
    let mark = unsafe { library.get::<*mut c_void>(MARK.as_bytes()) };
    let Ok(mark) = mark else { return fail(Code::InvalidImage, format!("the kernels have no symbol {MARK}")) };
    let mark = mark.as_raw_ptr();
    let place = |variable: Variable| Declared {
        place: mark.wrapping_byte_offset(variable.distance as isize),
        bytes: variable.bytes,
    };
    Ok(shared_variables(object)?.into_iter().map(place).collect())
}

impl Function {
    /// Allows launches to request up to `bytes` bytes of shared memory.
    pub(crate) fn allow_shared(&mut self, bytes: u32) {
        self.most_shared_bytes = bytes;
    }

    /// The shared memory that launches may request.
    pub(crate) fn most_shared_bytes(&self) -> u32 {
        self.most_shared_bytes
    }

    /// Prepares a launch, and copies its arguments.
    ///
    /// Like the real driver, this function cannot determine the number of arguments. Unlike the real driver, it checks
    /// that the arguments are laid out as in a C structure, and that a null pointer follows if there are fewer than 32,
    /// as callers in this project do.
    ///
    /// # Safety
    /// `arguments` leads to 32 pointers, or to as many as the kernel has parameters and a null pointer after them. Each
    /// leads to an argument of its parameter's type.
    pub(crate) unsafe fn launch(&self, shape: Shape, arguments: *const *const u8, seed: u64) -> Result<Work> {
        let Self { name, export, .. } = self;
        let refused = |words: String| fail(Code::InvalidValue, format!("a launch of {name}: {words}"));
        let threads = shape.threads.iter().try_fold(1_u32, |all, &side| all.checked_mul(side)).unwrap_or(u32::MAX);
        if threads == 0 || threads > MAX_THREADS || shape.threads[2] > 64 {
            return refused(format!("{:?} threads in a block", shape.threads));
        }
        if shape.blocks.contains(&0)
            || shape.blocks[0] > i32::MAX as u32
            || shape.blocks[1..].iter().any(|&side| side > 65535)
        {
            return refused(format!("{:?} blocks", shape.blocks));
        }
        if shape.shared_bytes > self.most_shared_bytes {
            let most = self.most_shared_bytes;
            return refused(format!("{} bytes of shared memory; it may have {most}", shape.shared_bytes));
        }
        let count = export.count as usize;
        // SAFETY: the export's own tables, of as many numbers.
        let (sizes, alignments) = unsafe {
            (std::slice::from_raw_parts(export.sizes, count), std::slice::from_raw_parts(export.alignments, count))
        };
        if arguments.is_null() && count > 0 {
            return refused(format!("it takes {count} arguments and is given none"));
        }
        let mut words = vec![0_u64; MAX_ARGUMENT_BYTES / 8];
        let mut places = Vec::with_capacity(count);
        let (mut end, mut first) = (0, 0);
        for (index, (&size, &alignment)) in sizes.iter().zip(alignments).enumerate() {
            // SAFETY: as promised by the caller; the loop ends at a null pointer.
            let argument = unsafe { *arguments.add(index) };
            if argument.is_null() {
                return refused(format!("it takes {count} arguments and is given {index}"));
            }
            let start = usize::next_multiple_of(end, alignment as usize);
            end = start + size as usize;
            if end > MAX_ARGUMENT_BYTES {
                return refused(format!("its arguments take more than {MAX_ARGUMENT_BYTES} bytes"));
            }
            first = if index == 0 { argument.addr() } else { first };
            let lies_at = argument.addr().wrapping_sub(first);
            if lies_at != start {
                return refused(format!(
                    "argument {index} lies at byte {lies_at}; its parameters' types put it at {start}"
                ));
            }
            // SAFETY: the argument is of this size by the caller's promise, and the place was checked.
            unsafe {
                std::ptr::copy_nonoverlapping(argument, words.as_mut_ptr().cast::<u8>().add(start), size as usize);
            }
            places.push(start);
        }
        // SAFETY: as promised by the caller, there is one more.
        if (1..32).contains(&count) && !unsafe { *arguments.add(count) }.is_null() {
            return refused(format!("it takes {count} arguments and is given more"));
        }
        let function = self.clone();
        Ok(Box::new(move || function.run(shape, &mut words, &places, seed)))
    }

    fn run(&self, shape: Shape, words: &mut [u64], places: &[usize], seed: u64) -> Result<()> {
        let start = words.as_mut_ptr().cast::<u8>();
        let arguments: Vec<*mut c_void> = places.iter().map(|&place| start.wrapping_add(place).cast()).collect();
        let shared = Guarded::new((shape.shared_bytes as usize).max(1), SHARED_ALIGNMENT, Fresh::NoNumber)?;
        let mut stacks = STACKS.lock().unwrap_or_else(PoisonError::into_inner);
        let stacks = match &mut *stacks {
            Some(stacks) => stacks,
            none => none.insert(Stacks::new()?),
        };
        let mut words = [0 as c_char; 512];
        let launch = Launch {
            blocks: shape.blocks,
            threads: shape.threads,
            seed,
            shared: std::ptr::with_exposed_provenance_mut(shared.address),
            shared_bytes: u64::from(shape.shared_bytes),
            declared: self.library.declared.as_ptr(),
            declared_count: self.library.declared.len() as u64,
            stacks: std::ptr::with_exposed_provenance_mut(stacks.0.start()),
            stack_bytes: STACK_BYTES as u64,
            guard_bytes: guard_bytes() as u64,
            words: words.as_mut_ptr(),
            words_bytes: words.len() as u64,
        };
        let outcome = (self.export.run)(arguments.as_ptr(), &raw const launch);
        if outcome == 0 {
            return Ok(());
        }
        // SAFETY: the kernel's file ends its words with a zero, within their bytes.
        let words = unsafe { CStr::from_ptr(words.as_ptr()) }.to_string_lossy();
        let mut text = format!("{} ", self.name);
        let _ = write!(text, "{words}");
        fail(if outcome == ILLEGAL_ADDRESS { Code::IllegalAddress } else { Code::LaunchFailed }, text)
    }
}

/// Stacks for the threads of one block. Blocks run one after another, on any thread of the host.
struct Stacks(Mapping);

static STACKS: Mutex<Option<Stacks>> = Mutex::new(None);

/// Size of a thread's stack in bytes, with its guard pages.
const STACK_BYTES: usize = 128 << 10;

/// Size of the stack's guard pages, which are at its lowest addresses, in bytes.
fn guard_bytes() -> usize {
    host_page().max(16 << 10)
}

impl Stacks {
    fn new() -> Result<Self> {
        let mapping = Mapping::reserve(STACK_BYTES * MAX_THREADS as usize)?;
        let guard = guard_bytes();
        for thread in 0..MAX_THREADS as usize {
            mapping.open(thread * STACK_BYTES + guard, STACK_BYTES - guard)?;
        }
        Ok(Self(mapping))
    }
}
