//! Macros for functions that report the sizes of workspaces, which are 0 here, and for those that use one.

/// Defines functions that write 0 to sizes, behind as many parameters as there are `_`.
macro_rules! sizes_zero {
    ($before:tt $sizes:tt $($name:ident)*) => {
        $($crate::libraries::workspace::sizes_zero! { @$name $before $sizes })*
    };
    (@$name:ident [$($before:tt)*] [$($size:ident: $type:ty),*]) => {
        $crate::abi::functions! {
            fn $name($($before: usize,)* $($size: $crate::abi::Out<'_, $type>),*) -> $crate::abi::Status {
                $($crate::abi::give($size, 0);)*
                $crate::abi::SUCCESS
            }
        }
    };
}

/// A function whose workspace on a GPU is not known: it is reported by its name, and succeeds without one.
macro_rules! unknown_workspace {
    ($($name:ident)*) => { $($crate::abi::functions! {
        fn $name() -> $crate::abi::Status {
            $crate::notes::note($crate::notes::Kind::UnknownWorkspace, stringify!($name));
            $crate::contents::kernel_ran();
            $crate::abi::SUCCESS
        }
    })* };
}

pub(super) use {sizes_zero, unknown_workspace};
