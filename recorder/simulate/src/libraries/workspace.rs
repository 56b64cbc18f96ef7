//! Macros for functions that report workspace sizes, which are 0 in the simulation, or use a workspace.

/// Defines functions that write 0 to their size parameters, preceded by as many ignored parameters as there are `_`.
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

/// Defines functions whose workspace size on a GPU is unknown. They report their name, and succeed without a workspace.
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
