//! Declares the C functions of libraries that are loaded at run time.

/// Declares a table of a library's C functions, which are looked up when the library is loaded.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident { $(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty;)* }) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[expect(non_snake_case, reason = "the library's names")]
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($kind),*) -> $result,)*
        }

        impl $table {
            /// Looks up all functions. Returns `None` if one is missing.
            pub(crate) fn of(library: &libloading::os::unix::Library) -> Option<Self> {
                // SAFETY: the functions are declared as in CUDA's headers.
                unsafe { Some(Self { $($name: *library.get(concat!(stringify!($name), "\0").as_bytes()).ok()?,)* }) }
            }
        }
    };
}
pub(crate) use functions;
