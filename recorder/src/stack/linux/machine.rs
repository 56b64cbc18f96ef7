//! Registers and unwind rules of each supported processor architecture.

/// The register values with which execution continues in a frame.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Registers {
    /// Return address, as stored in memory.
    pub(super) counter: u64,
    /// Stack pointer after the return.
    pub(super) stack: u64,
    /// Frame pointer, which is `rbp`, or `x29` on AArch64.
    pub(super) base: u64,
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::{OUTERMOST_MISSED, Rules, address_of, ends_chain};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    //! Compilers keep no frame pointers by default, so frames are found with the rules in the unwind tables.

    use crate::stack::platform::rule::Rule;
    use crate::stack::platform::rules::{self, RuleTable};

    /// Maximum number of outermost frames that a walk may miss.
    pub(in crate::stack::platform) const OUTERMOST_MISSED: usize = 0;

    #[derive(Clone, Copy)]
    pub(in crate::stack::platform) struct Rules(&'static RuleTable);

    impl Rules {
        #[inline(always)]
        pub(in crate::stack::platform) fn now() -> Self {
            Self(rules::table())
        }

        #[inline(always)]
        pub(in crate::stack::platform) fn of(&mut self, counter: u64) -> Rule {
            if let Some(rule) = self.0.find(counter) {
                return rule;
            }
            let rule = rules::learn(counter);
            *self = Self::now();
            rule
        }
    }

    /// Returns the address in a word that contains a return address.
    #[inline(always)]
    pub(in crate::stack::platform) fn address_of(counter: u64) -> u64 {
        counter
    }

    /// Returns whether the register from which a frame is found marks the end of the chain.
    #[inline(always)]
    pub(in crate::stack::platform) fn ends_chain(_from: u64) -> bool {
        false
    }
}

#[cfg(target_arch = "aarch64")]
pub(super) use aarch64::{OUTERMOST_MISSED, Rules, address_of, ends_chain};

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    //! Every function with calls keeps a frame record, by the platform's convention and rustc's default.

    use crate::stack::platform::rule::Rule;

    /// Maximum number of outermost frames that a walk may miss, since program and thread start have no frame record.
    pub(in crate::stack::platform) const OUTERMOST_MISSED: usize = 2;

    /// A table with a single rule, which applies to all addresses.
    #[derive(Clone, Copy)]
    pub(in crate::stack::platform) struct Rules;

    impl Rules {
        #[inline(always)]
        pub(in crate::stack::platform) fn now() -> Self {
            Self
        }

        #[inline(always)]
        pub(in crate::stack::platform) fn of(&mut self, _counter: u64) -> Rule {
            Rule::FRAME_RECORD
        }
    }

    /// Returns the address in a word that contains a return address, without its pointer authentication code.
    #[inline(always)]
    pub(in crate::stack::platform) fn address_of(counter: u64) -> u64 {
        counter & ((1 << 48) - 1)
    }

    /// Returns whether the register from which a frame is found marks the end of the chain.
    #[inline(always)]
    pub(in crate::stack::platform) fn ends_chain(from: u64) -> bool {
        from == 0
    }
}
