//! The unwind rule of a frame, which leads to its caller's frame, in 8 bytes.

#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "frame records need one rule"))]

/// A packed unwind rule. Bits 0 and 1: the kind. Bits 16 to 31: where the caller's `rbp` was saved, relative to the
/// canonical frame address (CFA), or 0 if the frame leaves `rbp` alone. Bits 32 to 63: the CFA relative to `rsp` or
/// `rbp`. The return address is always just below the CFA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Rule(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Outermost = 0,
    /// The CFA is an offset from `rsp`.
    FromStack = 1,
    /// The CFA is an offset from `rbp`.
    FromBase = 2,
    /// A rule cannot describe the frame, so the platform's unwinder must capture this stack.
    Foreign = 3,
}

impl Rule {
    pub(super) const OUTERMOST: Self = Self(Kind::Outermost as u64);
    pub(super) const FOREIGN: Self = Self(Kind::Foreign as u64);

    /// Rule of frames linked by frame records, as on AArch64: the saved base and the return address are adjacent.
    #[cfg(target_arch = "aarch64")]
    pub(super) const FRAME_RECORD: Self = Self(Kind::FromBase as u64 | ((-16i16) as u16 as u64) << 16 | 16 << 32);

    /// Creates a rule for a frame in the middle of a stack; [`Rule::FOREIGN`] if the offsets do not fit.
    pub(super) fn step(kind: Kind, frame: i64, saved_base: Option<i64>) -> Self {
        let (Ok(frame), Ok(saved)) = (i32::try_from(frame), i16::try_from(saved_base.unwrap_or(0))) else {
            return Self::FOREIGN;
        };
        // The saved register is below the return address, or not saved.
        if saved % 8 != 0 || saved > -16 && saved_base.is_some() {
            return Self::FOREIGN;
        }
        Self(kind as u64 | u64::from(saved as u16) << 16 | u64::from(frame as u32) << 32)
    }

    #[inline(always)]
    pub(super) fn to_bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline(always)]
    pub(super) fn kind(self) -> Kind {
        match self.0 & 3 {
            0 => Kind::Outermost,
            1 => Kind::FromStack,
            2 => Kind::FromBase,
            _ => Kind::Foreign,
        }
    }

    /// Returns the offset of the CFA, for wrapping addition.
    #[inline(always)]
    pub(super) fn frame_offset(self) -> u64 {
        ((self.0 as i64) >> 32) as u64
    }

    /// Returns where the caller's `rbp` was saved, relative to the CFA; 0 if the frame leaves it alone.
    #[inline(always)]
    pub(super) fn saved_base_offset(self) -> u64 {
        i64::from((self.0 >> 16) as u16 as i16) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_survive_packing_and_strange_ones_are_foreign() {
        let rule = Rule::step(Kind::FromBase, 70_016, Some(-16));
        assert_eq!((rule.kind(), rule.frame_offset(), rule.saved_base_offset() as i64), (Kind::FromBase, 70_016, -16));
        let rule = Rule::step(Kind::FromStack, 8, None);
        assert_eq!((rule.kind(), rule.frame_offset(), rule.saved_base_offset()), (Kind::FromStack, 8, 0));
        for (frame, saved) in [(1 << 40, None), (16, Some(-8)), (16, Some(0)), (16, Some(-20)), (16, Some(-40_000))] {
            assert_eq!(Rule::step(Kind::FromStack, frame, saved), Rule::FOREIGN, "{frame} {saved:?}");
        }
    }
}
