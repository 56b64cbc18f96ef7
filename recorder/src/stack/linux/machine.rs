//! Machine: what a processor's calling convention decides: registers, and where rules come from.

/// Where execution continues in a frame.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Registers {
    /// The return address, as it lies in memory.
    pub(super) counter: u64,
    /// The stack pointer after the return.
    pub(super) stack: u64,
    /// `rbp`; on AArch64 `x29`.
    pub(super) base: u64,
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::{OUTERMOST_MISSED, Rules, address_of, ends_chain};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    //! Compilers keep no frame pointers by default: frames are found by the rules of their unwind tables.

    use crate::stack::platform::rule::Rule;
    use crate::stack::platform::rules::{self, RuleTable};

    /// How many of the outermost frames a walk may lack: none.
    pub(in crate::stack::platform) const OUTERMOST_MISSED: usize = 0;

    /// The rules of all addresses, as far as they are known.
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

    /// The address in a word that holds a return address.
    #[inline(always)]
    pub(in crate::stack::platform) fn address_of(counter: u64) -> u64 {
        counter
    }

    /// Whether what a frame is found from says that there is no caller.
    #[inline(always)]
    pub(in crate::stack::platform) fn ends_chain(_from: u64) -> bool {
        false
    }
}

#[cfg(target_arch = "aarch64")]
pub(super) use aarch64::{OUTERMOST_MISSED, Rules, address_of, ends_chain};

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    //! Every function that calls keeps a frame record, by the platform's convention and rustc's default.

    use crate::stack::platform::rule::Rule;

    /// How many of the outermost frames a walk may lack: program and thread start without a frame record.
    pub(in crate::stack::platform) const OUTERMOST_MISSED: usize = 2;

    /// One rule for all.
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

    /// The address in a word that holds a return address: its upper bits may be a pointer authentication code.
    #[inline(always)]
    pub(in crate::stack::platform) fn address_of(counter: u64) -> u64 {
        counter & ((1 << 48) - 1)
    }

    /// Whether what a frame is found from says that there is no caller.
    #[inline(always)]
    pub(in crate::stack::platform) fn ends_chain(from: u64) -> bool {
        from == 0
    }
}
