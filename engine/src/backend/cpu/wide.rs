//! Compiles functions a second time for processors with wider vectors.
//!
//! Which of the two runs is found out when it is called. Both do the same operations in the same order, none fused, so
//! they give the same numbers to the bit.

/// Writes a function whose loops use the widest vectors that the processor has. Its generic parameters stand in square
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
                    // SAFETY: this processor has them.
                    return unsafe { with_avx2($($argument),*) };
                }
            }
            plain($($argument),*)
        })+
    };
}
pub(super) use wide;
