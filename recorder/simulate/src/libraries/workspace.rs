//! Macros for functions that report the size of a workspace, which is 0 here, and for those that use one.

/// Defines functions that write 0 to their parameter of a number, counted from 1.
macro_rules! size_zero {
    ($number:tt $type:ty: $($name:ident)*) => { $($crate::libraries::workspace::size_zero! { @$number $name $type })* };
    (@3 $name:ident $type:ty) => { $crate::libraries::workspace::size_zero! { $name $type, a b } };
    (@4 $name:ident $type:ty) => { $crate::libraries::workspace::size_zero! { $name $type, a b c } };
    (@5 $name:ident $type:ty) => { $crate::libraries::workspace::size_zero! { $name $type, a b c d } };
    (@6 $name:ident $type:ty) => { $crate::libraries::workspace::size_zero! { $name $type, a b c d e } };
    (@7 $name:ident $type:ty) => { $crate::libraries::workspace::size_zero! { $name $type, a b c d e f } };
    (@8 $name:ident $type:ty) => { $crate::libraries::workspace::size_zero! { $name $type, a b c d e f g } };
    (@9 $name:ident $type:ty) => { $crate::libraries::workspace::size_zero! { $name $type, a b c d e f g h } };
    (@10 $name:ident $type:ty) => { $crate::libraries::workspace::size_zero! { $name $type, a b c d e f g h i } };
    (@11 $name:ident $type:ty) => { $crate::libraries::workspace::size_zero! { $name $type, a b c d e f g h i j } };
    (@12 $name:ident $type:ty) => { $crate::libraries::workspace::size_zero! { $name $type, a b c d e f g h i j k } };
    (@13 $name:ident $type:ty) => { $crate::libraries::workspace::size_zero! { $name $type, a b c d e f g h i j k l } };
    (@17 $name:ident $type:ty) => {
        $crate::libraries::workspace::size_zero! { $name $type, a b c d e f g h i j k l m n o p }
    };
    ($name:ident $type:ty, $($before:ident)*) => {
        $crate::abi::functions! {
            fn $name($($before: usize,)* size: $crate::abi::Out<'_, $type>) {
                let _ = ($($before,)*);
                $crate::abi::give(size, 0);
                $crate::abi::SUCCESS
            }
        }
    };
}

/// Defines functions that write 0 to two neighbouring parameters: the workspaces on the device and on the host.
macro_rules! sizes_zero {
    (9: $($name:ident)*) => { $($crate::libraries::workspace::sizes_zero! { $name, a b c d e f g h })* };
    (11: $($name:ident)*) => { $($crate::libraries::workspace::sizes_zero! { $name, a b c d e f g h i j })* };
    (12: $($name:ident)*) => { $($crate::libraries::workspace::sizes_zero! { $name, a b c d e f g h i j k })* };
    (18: $($name:ident)*) => {$(
        $crate::libraries::workspace::sizes_zero! { $name, a b c d e f g h i j k l m n o p q }
    )*};
    ($name:ident, $($before:ident)*) => {
        $crate::abi::functions! {
            fn $name($($before: usize,)* device: $crate::abi::Out<'_, usize>, host: $crate::abi::Out<'_, usize>) {
                let _ = ($($before,)*);
                $crate::abi::give(device, 0);
                $crate::abi::give(host, 0);
                $crate::abi::SUCCESS
            }
        }
    };
}

/// A function whose workspace on a GPU is not known: it is reported by its name, and succeeds without one.
macro_rules! unknown_workspace {
    ($($name:ident)*) => { $($crate::abi::functions! {
        fn $name() {
            $crate::notes::note($crate::notes::Kind::UnknownWorkspace, stringify!($name));
            $crate::contents::kernel_ran();
            $crate::abi::SUCCESS
        }
    })* };
}

pub(super) use {size_zero, sizes_zero, unknown_workspace};
