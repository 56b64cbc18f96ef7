//! Macro for functions called from C, used by the simulated GPU and by the stand-in for CUDA in tests.

use std::mem::MaybeUninit;

/// An output parameter of a C function: a pointer to which the result is written, or null.
pub(crate) type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// Defines functions called from C, each under one or several names. The `answer` function in scope converts the result
/// of each body to a status code, unless the function declares a return type.
macro_rules! functions {
    () => {};
    (
        $(#[$about:meta])* fn $name:ident, $other:ident $(, $more:ident)* ($($arguments:tt)*) $body:block $($rest:tt)*
    ) => {
        $crate::functions::functions! {
            $(#[$about])* fn $name($($arguments)*) $body
            fn $other $(, $more)* ($($arguments)*) $body
            $($rest)*
        }
    };
    ($(#[$about:meta])* fn $name:ident($($arguments:tt)*) $body:block $($rest:tt)*) => {
        $crate::functions::functions! {
            $(#[$about])* fn $name($($arguments)*) -> std::ffi::c_int { answer(stringify!($name), || $body) } $($rest)*
        }
    };
    ($(#[$about:meta])* fn $name:ident($($arguments:tt)*) -> $result:ty $body:block $($rest:tt)*) => {
        $(#[$about])*
        #[allow(non_snake_case, reason = "NVIDIA's name")]
        // SAFETY: the name is NVIDIA's, whose function this one replaces, and no other function of the program has it.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) extern "C" fn $name($($arguments)*) -> $result $body
        $crate::functions::functions! { $($rest)* }
    };
}

pub(crate) use functions;
