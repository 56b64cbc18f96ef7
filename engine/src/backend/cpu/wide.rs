//! Compiles functions a second time for processors with wider vectors.
//!
//! The version is selected at each call. Both versions run the same operations in the same order, without fused
//! multiply-add, so their results are identical to the bit.

/// Defines a function whose loops use the widest vectors of the processor. Generic parameters are given in square
/// brackets.
macro_rules! wide {
    ($($(#[$meta:meta])* $visibility:vis fn $name:ident[$($generics:tt)*](
        $($argument:ident: $type:ty),* $(,)?
    ) $(-> $result:ty)? $body:block)+) => {
        $($(#[$meta])*
        $visibility fn $name<$($generics)*>($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            fn plain<$($generics)*>($($argument: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn with_avx2<$($generics)*>($($argument: $type),*) $(-> $result)? {
                    plain($($argument),*)
                }
                if std::arch::is_x86_feature_detected!("avx2") {
                    #[expect(unsafe_code, reason = "the instructions exist only on some processors")]
                    // SAFETY: the processor supports AVX2.
                    return unsafe { with_avx2($($argument),*) };
                }
            }
            plain($($argument),*)
        })+
    };
}
pub(super) use wide;
