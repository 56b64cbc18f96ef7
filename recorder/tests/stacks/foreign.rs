//! Tests captures below C code, in signal handlers, in an allocator's hooks, and while a thread ends.

#![expect(unsafe_code, reason = "calls C functions, and is an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::{CString, c_int, c_void};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;

use highwater_recorder::stack::{self, StackKey, depot};

use super::{Numbers, agree, deep, losses_alone};

/// Counts a thread's allocations, and captures a stack at each if the thread wishes so.
struct Watched;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static CAPTURES: Cell<bool> = const { Cell::new(false) };
    static REFUSED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: memory comes from the system's allocator and goes back to it unchanged.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        if CAPTURES.get() && !stack::capture().is_some() {
            REFUSED.set(REFUSED.get() + 1);
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static WATCHED: Watched = Watched;

#[test]
fn a_capture_that_knows_its_stack_allocates_nothing() {
    let (mut keys, mut counts) = (Vec::with_capacity(8), Vec::with_capacity(8));
    for _ in 0..black_box(8) {
        let before = ALLOCATIONS.get();
        keys.push(deep(10));
        deep(5);
        counts.push(ALLOCATIONS.get() - before);
    }
    assert!(keys.iter().all(|key| *key == keys[0]));
    assert_eq!(counts[1..], [0; 7], "after {} in the first round", counts[0]);
}

#[test]
fn an_allocator_that_captures_neither_recurses_nor_waits_for_itself() {
    let _alone = losses_alone();
    let run = || {
        CAPTURES.set(true);
        let key = deep(12);
        let frames = depot::frames(key);
        let modules = stack::modules();
        let rows = depot::nodes_since(0).len();
        CAPTURES.set(false);
        assert!(frames.len() > 12 && rows >= frames.len() && modules.locate(frames[0]).is_some());
        assert!(REFUSED.get() > 0, "the thread's own state is allocated inside a capture");
    };
    let before = stack::losses().refused;
    std::thread::Builder::new()
        .name("allocates".to_owned())
        .spawn(run)
        .expect("a thread starts")
        .join()
        .expect("no panic");
    assert!(stack::losses().refused > before);
}

struct CapturesAtTheEnd;

impl Drop for CapturesAtTheEnd {
    fn drop(&mut self) {
        black_box(stack::capture());
        black_box(stack::capture_portable());
    }
}

#[test]
fn a_thread_that_captures_while_it_ends_ends_well() {
    let _alone = losses_alone();
    thread_local! {
        static EARLY: CapturesAtTheEnd = const { CapturesAtTheEnd };
        static LATE: CapturesAtTheEnd = const { CapturesAtTheEnd };
    }
    for captures_before in [false, true] {
        let run = move || {
            EARLY.with(|_| {});
            let key = if captures_before { stack::capture() } else { StackKey::NONE };
            LATE.with(|_| {});
            key
        };
        let thread = std::thread::Builder::new().name("ends".to_owned()).spawn(run).expect("a thread starts");
        assert_eq!(thread.join().expect("no panic").is_some(), captures_before);
    }
}

extern "C" fn compare(a: *const c_void, b: *const c_void) -> c_int {
    agree();
    // SAFETY: `qsort` passes pointers to two of the numbers that it sorts.
    let (a, b) = unsafe { (*a.cast::<i32>(), *b.cast::<i32>()) };
    a.cmp(&b) as c_int
}

#[test]
fn a_callback_of_the_c_library_agrees() {
    let mut numbers = [5, 3, 9, 1, 7, 2, 8, 6];
    // SAFETY: eight numbers of four bytes, and a total order on them.
    unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 8, 4, Some(compare)) };
    assert_eq!(numbers, [1, 2, 3, 5, 6, 7, 8, 9]);
}

type Through = extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, c_int) -> c_int;

/// Builds the library with frames of that many words, with debug information and a build id.
pub(super) fn compile(folder: &Path, frame: usize) -> PathBuf {
    let library = folder.join(format!("frame{frame}.so"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/stack/frames.c");
    let status = Command::new("cc")
        .args(["-O2", "-g", "-fno-optimize-sibling-calls", "-shared", "-fPIC", "-Wl,--build-id", source, "-o"])
        .arg(&library)
        .arg(format!("-DFRAME={frame}"))
        .status();
    assert!(status.expect("cc runs: Rust links with it").success());
    library
}

/// Loads a library, which must be one of ours: they have no initialisers.
fn load(library: &Path) -> *mut c_void {
    let name = CString::new(library.as_os_str().as_encoded_bytes()).expect("a path without zero bytes");
    // SAFETY: a C string; the library has no initialisers.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null(), "{name:?} can be loaded");
    handle
}

extern "C" fn captures_into(key: *mut c_void) {
    // SAFETY: `stack_through` passes a pointer to its own key.
    unsafe { *key.cast::<StackKey>() = stack::capture() };
}

/// A stack that leads through the library's function `through`.
pub(super) fn stack_through(library: &Path) -> StackKey {
    let mut key = StackKey::NONE;
    call_through(library, captures_into, (&raw mut key).cast());
    key
}

/// Loads the library, and lets its function `through` call `callback`.
pub(super) fn call_through(library: &Path, callback: extern "C" fn(*mut c_void), argument: *mut c_void) {
    // SAFETY: `through` has this type, and the library stays loaded.
    unsafe {
        let through = std::mem::transmute::<*mut c_void, Through>(libc::dlsym(load(library), c"through".as_ptr()));
        through(callback, argument, 0);
    }
}

extern "C" fn captures(count: *mut c_void) {
    agree();
    // SAFETY: the test passes a pointer to its own counter through the library.
    unsafe { *count.cast::<u32>() += 1 };
}

#[test]
fn frames_that_replace_one_another_in_the_same_place_agree() {
    type GoOn = extern "C" fn(*const u8, extern "C" fn(*mut c_void), *mut c_void) -> c_int;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let library = load(&compile(folder.path(), 8));
    // SAFETY: `go_on` has this type, and the library stays loaded.
    let go_on = unsafe { std::mem::transmute::<*mut c_void, GoOn>(libc::dlsym(library, c"go_on".as_ptr())) };
    let mut numbers = Numbers(17);
    let mut path = [1, 1, 1, 1, 1, 0];
    let mut count = 0u32;
    for _ in 0..3000 {
        path[numbers.below(5) as usize] = 1 + numbers.below(10) as u8;
        go_on(path.as_ptr(), captures, (&raw mut count).cast());
    }
    assert_eq!(count, 3000);
}

#[test]
fn libraries_that_come_and_go_in_turn_agree() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let libraries = [20, 120, 44].map(|frame| compile(folder.path(), frame));
    let mut count = 0u32;
    for round in 0..12 {
        let handle = load(&libraries[round % 3]);
        // SAFETY: `through` has this type, and is called before the handle is closed.
        unsafe {
            let through = std::mem::transmute::<*mut c_void, Through>(libc::dlsym(handle, c"through".as_ptr()));
            through(captures, (&raw mut count).cast(), 5);
            libc::dlclose(handle);
        }
    }
    assert_eq!(count, 12);
    let listed = stack::modules();
    let ours = listed.list().iter().filter(|module| module.path.starts_with(folder.path())).count();
    // Where a rule is kept, its library is too; frame records need no rules.
    assert_eq!(ours, if cfg!(target_arch = "x86_64") { 3 } else { 0 });
}

thread_local! {
    static HANDLED: Cell<Option<(StackKey, StackKey)>> = const { Cell::new(None) };
}

extern "C" fn handle(_signal: c_int) {
    HANDLED.set(Some((stack::capture(), stack::capture_portable())));
}

#[inline(never)]
fn raises() -> StackKey {
    // SAFETY: `handle` has the type of a handler.
    unsafe { libc::raise(libc::SIGUSR1) };
    stack::capture()
}

#[test]
fn a_signal_handler_sees_the_interrupted_stack() {
    let _alone = losses_alone();
    let before = stack::losses().portable;
    // SAFETY: installs a handler for a signal that nothing else here uses.
    unsafe { libc::signal(libc::SIGUSR1, handle as extern "C" fn(c_int) as libc::sighandler_t) };
    let interrupted = depot::frames(raises());
    let (walked, unwound) = HANDLED.get().expect("the handler ran on this thread");
    let (walked, unwound) = (depot::frames(walked), depot::frames(unwound));
    if cfg!(target_arch = "x86_64") {
        assert_eq!(walked[1..], unwound[1..]);
        assert!(stack::losses().portable > before, "signal frames are the unwinder's");
    }
    assert!(walked.ends_with(&interrupted[1..]), "{walked:x?} {interrupted:x?}");
}
