//! Walks the part of the current stack that changed since the thread's last capture.
//!
//! A frame is fully described by its program counter, stack pointer and base register, because these, the frame's
//! [`Rule`] and the stack's memory determine the caller's. The [`Record`] keeps the frames of the last capture and
//! every word of memory that led to them. When a walk reaches a frame that equals a recorded one, and every word
//! recorded outside it still has its value, then by induction the outer frames are unchanged: nothing is guessed.
//! Comparing the words takes a fraction of a nanosecond each; most captures of a training step walk three or four
//! frames.
//!
//! An unchanged return address alone would not suffice, since two calls of `f` from two lines of `main` leave
//! everything inside `f` unchanged. The base register is compared only if an outer frame is found through it, since
//! compilers also use it for other values such as loop counters.

#![expect(unsafe_code, reason = "reads the words of the running thread's stack")]

use super::machine::{self, Registers};
use super::rule::{Kind, Rule};
use crate::stack::MAX_FRAMES;
use crate::stack::depot::{self, Front, StackKey};

/// A frame that is not in the last capture, so that its caller had to be looked up.
#[derive(Clone, Copy)]
struct Fresh {
    at: Registers,
    /// Address from which `at.base` was loaded; 0 if the callee had not changed it.
    base_slot: u64,
    rule: Rule,
}

#[derive(Clone, Copy)]
struct CachedFrame {
    at: Registers,
    fingerprint: u64,
    key: StackKey,
    /// Number of recorded words that belong to this frame and those outside it.
    words: u16,
    /// Whether this frame or one outside it is found through `at.base`.
    needs_base: bool,
}

/// A word of the stack through which a frame was found.
#[derive(Clone, Copy)]
struct Word {
    address: u64,
    value: u64,
}

impl Word {
    /// Returns zero if the word is unchanged.
    ///
    /// # Safety
    /// The word must be in the used part of the current thread's stack.
    #[inline(always)]
    unsafe fn difference(self) -> u64 {
        // SAFETY: as the caller promises.
        unsafe { load(self.address) ^ self.value }
    }
}

/// Reads a word of the stack.
///
/// # Safety
/// The word must be aligned and in the used part of the current thread's stack.
#[inline(always)]
unsafe fn load(address: u64) -> u64 {
    // SAFETY: as the caller promises; volatile, because the word is another function's variable.
    unsafe { (address as *const u64).read_volatile() }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    /// The stack, or [`StackKey::NONE`] if the depot is full.
    Found(StackKey),
    /// The innermost frames of a stack that has more than [`MAX_FRAMES`].
    Cut(StackKey),
    /// A frame has no usable rule, or words are inconsistent, so the platform's unwinder must capture the stack.
    Foreign,
}

/// The frames of a thread's last capture, outermost first.
pub(super) struct Record {
    depth: usize,
    known: [CachedFrame; MAX_FRAMES],
    words: [Word; 2 * MAX_FRAMES],
    fresh: [Fresh; MAX_FRAMES],
}

impl Record {
    /// Creates an empty record on the heap, of some 40 KB of address space, of which only used pages take memory.
    pub(super) fn new() -> Box<Self> {
        // SAFETY: numbers, a bool, and numbers in transparent structures, for all of which zero is valid.
        unsafe { Box::<Self>::new_zeroed().assume_init() }
    }

    /// Walks the stack that begins at `from`, the registers of a caller of this function on the current thread's own
    /// stack. `top` is the end of that stack.
    #[inline(always)]
    pub(super) fn walk(&mut self, from: Registers, top: u64, front: &mut Front) -> Walk {
        loop {
            let (kept, fresh, base_slot) = match self.collect(from, top) {
                Collected::Joined { kept, fresh, .. } if kept + fresh > MAX_FRAMES => {
                    // Too deep: the innermost frames are needed, and only a walk from scratch finds them.
                    self.depth = 0;
                    continue;
                }
                Collected::Joined { kept, fresh, base_slot } => (kept, fresh, base_slot),
                Collected::Cut => {
                    let key = self.append(0, MAX_FRAMES, 0, front);
                    self.depth = 0;
                    return Walk::Cut(key);
                }
                Collected::Foreign => {
                    self.depth = 0;
                    return Walk::Foreign;
                }
            };
            return Walk::Found(self.append(kept, fresh, base_slot, front));
        }
    }

    /// Walks outwards into `fresh`, up to a recorded frame or the outermost frame.
    #[inline(always)]
    fn collect(&mut self, from: Registers, top: u64) -> Collected {
        let mut rules = machine::Rules::now();
        let mut at = from;
        let mut base_slot = 0;
        let mut candidates = self.depth;
        let mut fresh = 0;
        loop {
            while candidates > 0 && self.known[candidates - 1].at.stack < at.stack {
                candidates -= 1;
            }
            if candidates > 0 && self.known[candidates - 1].is(at) {
                match self.first_changed(candidates - 1) {
                    None => {
                        return Collected::Joined { kept: candidates, fresh, base_slot };
                    }
                    Some(changed) => candidates = changed,
                }
            }
            if fresh == MAX_FRAMES {
                return Collected::Cut;
            }
            let rule = rules.of(at.counter);
            self.fresh[fresh] = Fresh { at, base_slot, rule };
            fresh += 1;
            let from = match rule.kind() {
                Kind::FromStack => at.stack,
                Kind::FromBase => at.base,
                Kind::Outermost => return Collected::whole(fresh),
                Kind::Foreign => return Collected::Foreign,
            };
            if machine::ends_chain(from) {
                return Collected::whole(fresh);
            }
            let frame = from.wrapping_add(rule.frame_offset());
            // Growing, aligned and below the top: whatever a rule says, reads stay within the used part of the stack.
            if frame <= at.stack || frame > top || !frame.is_multiple_of(8) {
                return Collected::Foreign;
            }
            base_slot = match rule.saved_base_offset() {
                0 => 0,
                offset => frame.wrapping_add(offset),
            };
            if base_slot != 0 {
                if base_slot < at.stack {
                    return Collected::Foreign;
                }
                // SAFETY: aligned like `frame`, not below the stack pointer, and below `frame`, hence below `top`.
                at.base = unsafe { load(base_slot) };
            }
            // SAFETY: aligned, at or above the stack pointer, and below `top`.
            at.counter = unsafe { load(frame - 8) };
            at.stack = frame;
            if machine::address_of(at.counter) < 4096 {
                return Collected::whole(fresh);
            }
        }
    }

    /// Compares the words of the outermost `frames` frames. Returns `None` if all are unchanged, otherwise the number
    /// of frames outside the innermost change.
    #[inline(always)]
    fn first_changed(&self, frames: usize) -> Option<usize> {
        let count = if frames == 0 { 0 } else { usize::from(self.known[frames - 1].words) };
        let words = &self.words[..count];
        let mut difference = [0; 4];
        let (fours, rest) = words.as_chunks::<4>();
        for four in fours {
            for (lane, word) in difference.iter_mut().zip(four) {
                // SAFETY: the words are above a frame of the current stack and, having been recorded by this thread on
                // its own stack, below its top: that memory is in use.
                *lane |= unsafe { word.difference() };
            }
        }
        for word in rest {
            // SAFETY: as above.
            difference[0] |= unsafe { word.difference() };
        }
        if difference[0] | difference[1] | difference[2] | difference[3] == 0 {
            return None;
        }
        // SAFETY: as above.
        let innermost = words.iter().rposition(|word| unsafe { word.difference() } != 0);
        Some(self.known[..frames].partition_point(|known| usize::from(known.words) <= innermost.unwrap_or(0)))
    }

    /// Appends the `fresh` frames to the `kept` frames, and returns the key of the whole stack. `base_slot` is the
    /// address from which the base register of the innermost kept frame was loaded this time.
    #[inline(always)]
    fn append(&mut self, kept: usize, fresh: usize, base_slot: u64, front: &mut Front) -> StackKey {
        self.depth = 0;
        let (mut print, mut key, mut needs_base, mut words) = (depot::ROOT, StackKey::NONE, false, 0);
        if kept > 0 {
            // This frame may have called another function, which saved the base register elsewhere.
            let start = if kept > 1 { usize::from(self.known[kept - 2].words) } else { 0 };
            let known = &mut self.known[kept - 1];
            words = note(&mut self.words, start, known.at, if known.needs_base { base_slot } else { 0 });
            known.words = words as u16;
            (print, key, needs_base) = (known.fingerprint, known.key, known.needs_base);
        }
        for (known, fresh) in self.known[kept..].iter_mut().zip(self.fresh[..fresh].iter().rev()) {
            let address = machine::address_of(fresh.at.counter);
            print = depot::fingerprint(print, address);
            key = front.key(key, address, print);
            if !key.is_some() {
                return key;
            }
            needs_base = match fresh.rule.kind() {
                Kind::FromBase => true,
                _ => needs_base && fresh.rule.saved_base_offset() == 0,
            };
            words = note(&mut self.words, words, fresh.at, if needs_base { fresh.base_slot } else { 0 });
            *known = CachedFrame { at: fresh.at, fingerprint: print, key, words: words as u16, needs_base };
        }
        self.depth = kept + fresh;
        key
    }
}

/// Records the words through which the frame `at` was found, and returns the new number of words.
#[inline(always)]
fn note(words: &mut [Word; 2 * MAX_FRAMES], mut count: usize, at: Registers, base_slot: u64) -> usize {
    words[count] = Word { address: at.stack - 8, value: at.counter };
    count += 1;
    if base_slot != 0 {
        words[count] = Word { address: base_slot, value: at.base };
        count += 1;
    }
    count
}

impl CachedFrame {
    #[inline(always)]
    fn is(&self, at: Registers) -> bool {
        self.at.stack == at.stack && self.at.counter == at.counter && (self.at.base == at.base || !self.needs_base)
    }
}

enum Collected {
    /// `fresh` new frames inside the `kept` outermost recorded ones.
    Joined {
        kept: usize,
        fresh: usize,
        base_slot: u64,
    },
    /// [`MAX_FRAMES`] fresh frames, and there are more.
    Cut,
    Foreign,
}

impl Collected {
    /// Returns the result of a walk that reached the outermost frame.
    #[inline(always)]
    fn whole(fresh: usize) -> Self {
        Self::Joined { kept: 0, fresh, base_slot: 0 }
    }
}
