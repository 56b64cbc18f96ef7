//! Intercepts the functions that end the program without running its exit functions, and flushes the recording first.
#![expect(unsafe_code, reason = "functions that C calls, which leave their callers' registers alone")]

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::abi::Function;
use crate::loader;

/// Flushes the recording, and returns the C library's function of this name.
fn flushed(name: &CStr, theirs: &AtomicPtr<std::ffi::c_void>) -> Function {
    highwater_recorder::recording::flush();
    let mut found = theirs.load(Ordering::Relaxed);
    if found.is_null() {
        found = loader::find(libc::RTLD_NEXT, name);
        theirs.store(found, Ordering::Relaxed);
    }
    found
}

// SAFETY: each function leaves the stack and the registers of arguments as its caller left them when it jumps to the C
// library's function of the same name, which is never unloaded.
/// Declares functions that flush the recording and then jump to the C library's functions, with the registers of the
/// caller unchanged. The functions therefore accept any arguments, such as the variable arguments of `execl`, except
/// floating-point numbers.
macro_rules! endings {
    ($($name:ident = $text:literal),* $(,)?) => {$(
        #[allow(non_snake_case, reason = "the C library's name")]
        mod $name {
            use super::{AtomicPtr, Function};

            extern "C" fn flushed() -> Function {
                static THEIRS: AtomicPtr<std::ffi::c_void> = AtomicPtr::new(std::ptr::null_mut());
                super::flushed($text, &THEIRS)
            }

            #[cfg(target_arch = "x86_64")]
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push rcx",
                    "push r8",
                    "push r9",
                    "push rax",
                    "call {flushed}",
                    "mov r11, rax",
                    "pop rax",
                    "pop r9",
                    "pop r8",
                    "pop rcx",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    "jmp r11",
                    flushed = sym flushed,
                )
            }

            #[cfg(target_arch = "aarch64")]
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "stp x29, x30, [sp, #-80]!",
                    "stp x0, x1, [sp, #16]",
                    "stp x2, x3, [sp, #32]",
                    "stp x4, x5, [sp, #48]",
                    "stp x6, x7, [sp, #64]",
                    "mov x29, sp",
                    "bl {flushed}",
                    "mov x16, x0",
                    "ldp x0, x1, [sp, #16]",
                    "ldp x2, x3, [sp, #32]",
                    "ldp x4, x5, [sp, #48]",
                    "ldp x6, x7, [sp, #64]",
                    "ldp x29, x30, [sp], #80",
                    "br x16",
                    flushed = sym flushed,
                )
            }
        }
    )*};
}

endings! {
    abort = c"abort",
    _exit = c"_exit",
    _Exit = c"_Exit",
    execve = c"execve",
    execv = c"execv",
    execvp = c"execvp",
    execvpe = c"execvpe",
    execl = c"execl",
    execlp = c"execlp",
    execle = c"execle",
    fexecve = c"fexecve",
}
