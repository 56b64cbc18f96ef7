//! Walk: the current stack, of which only what changed since the thread's last capture is walked.
//!
//! A frame is fully described by its program counter, stack pointer and base register, because these, the frame's
//! [`Rule`] and the stack's memory lead to the caller's. The [`Record`] keeps the frames of the last capture and every
//! word of memory that they were found through. When a walk comes to a frame that equals a recorded one, and every
//! word recorded outside it still has its value, then the outer frames are what they were, by induction: nothing is
//! guessed. Comparing the words takes a fraction of a nanosecond each; most captures of a training step walk three or
//! four frames.
//!
//! One return address found in its place would not be enough: two calls of `f` from two lines of `main` leave
//! everything inside `f` as it was. And the base register counts only where an outer frame is found through it, since
//! compilers also keep loop counters there.

#![expect(unsafe_code, reason = "reads the words of the running thread's stack")]

use super::machine::{self, Registers};
use super::rule::{Kind, Rule};
use crate::stack::MAX_FRAMES;
use crate::stack::depot::{self, Front, StackKey};

/// A frame of the walk under way.
#[derive(Clone, Copy)]
struct Fresh {
    at: Registers,
    /// Where `at.base` was loaded from; 0 where the callee had left it alone.
    base_slot: u64,
    rule: Rule,
}

/// A frame of the last capture.
#[derive(Clone, Copy)]
struct Known {
    at: Registers,
    fingerprint: u64,
    key: StackKey,
    /// How many of the recorded words belong to this frame and those outside it.
    words: u16,
    /// Whether this frame or one outside it is found through `at.base`.
    needs_base: bool,
}

/// A word of the stack that a frame was found through.
#[derive(Clone, Copy)]
struct Word {
    address: u64,
    value: u64,
}

impl Word {
    /// Zero when the word is as it was.
    ///
    /// # Safety
    ///
    /// The word must lie in the part of the running thread's stack that is in use.
    #[inline(always)]
    unsafe fn difference(self) -> u64 {
        // SAFETY: as the caller promises.
        unsafe { load(self.address) ^ self.value }
    }
}

/// Reads a word of the stack.
///
/// # Safety
///
/// The word must be aligned, and lie in the part of the running thread's stack that is in use.
#[inline(always)]
unsafe fn load(address: u64) -> u64 {
    // SAFETY: as the caller promises; volatile, because the word is another function's variable.
    unsafe { (address as *const u64).read_volatile() }
}

/// What became of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    /// The stack; none if the depot is full.
    Found(StackKey),
    /// As far as the bounded number of frames reaches.
    Cut(StackKey),
    /// A frame that no rule can describe, or words that make no sense: the platform's unwinder must do it.
    Foreign,
}

/// The frames of a thread's last capture, outermost first.
pub(super) struct Record {
    depth: usize,
    known: [Known; MAX_FRAMES],
    words: [Word; 2 * MAX_FRAMES],
    fresh: [Fresh; MAX_FRAMES],
}

impl Record {
    /// A record of no frames, on the heap: some 40 KB, of which the system provides what is used.
    pub(super) fn new() -> Box<Self> {
        // SAFETY: numbers, a bool, and numbers in transparent structures: all of them may be zero.
        unsafe { Box::<Self>::new_zeroed().assume_init() }
    }

    /// Finds the stack that begins at `from`, the registers of a caller of this function, on the running thread's own
    /// stack, whose memory in use ends at `top`.
    #[inline(always)]
    pub(super) fn walk(&mut self, from: Registers, top: u64, front: &mut Front) -> Walk {
        loop {
            let (kept, fresh, base_slot) = match self.collect(from, top) {
                Collected::Joined { kept, fresh, .. } if kept + fresh > MAX_FRAMES => {
                    // Too deep, but the innermost frames are wanted, and those are known only to a walk from scratch.
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

    /// Walks outwards into `fresh`, until a recorded frame or the outermost one.
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
            // Growing, aligned and below the top: whatever a rule says, reads stay within this thread's stack in use.
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
            // SAFETY: aligned, above the stack pointer or at it, and below `top`.
            at.counter = unsafe { load(frame - 8) };
            at.stack = frame;
            if machine::address_of(at.counter) < 4096 {
                return Collected::whole(fresh);
            }
        }
    }

    /// Compares the words of the outermost `frames` frames: `None` if all are as they were, else how many frames lie
    /// outside the innermost change.
    #[inline(always)]
    fn first_changed(&self, frames: usize) -> Option<usize> {
        let count = if frames == 0 { 0 } else { usize::from(self.known[frames - 1].words) };
        let words = &self.words[..count];
        let mut difference = [0; 4];
        let (fours, rest) = words.as_chunks::<4>();
        for four in fours {
            for (lane, word) in difference.iter_mut().zip(four) {
                // SAFETY: the words lie above a frame of the running stack and, having been recorded by this thread on
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

    /// Puts the `fresh` frames onto the `kept` ones, and gives the key of the whole. `base_slot` is where the base
    /// register of the innermost kept frame was loaded from this time.
    #[inline(always)]
    fn append(&mut self, kept: usize, fresh: usize, base_slot: u64, front: &mut Front) -> StackKey {
        self.depth = 0;
        let (mut print, mut key, mut needs_base, mut words) = (depot::ROOT, StackKey::NONE, false, 0);
        if kept > 0 {
            // Another function may have called from this frame, and have saved the base register elsewhere.
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
            *known = Known { at: fresh.at, fingerprint: print, key, words: words as u16, needs_base };
        }
        self.depth = kept + fresh;
        key
    }
}

/// Records the words that the frame `at` was found through, and gives the number of words then.
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

impl Known {
    #[inline(always)]
    fn is(&self, at: Registers) -> bool {
        self.at.stack == at.stack && self.at.counter == at.counter && (self.at.base == at.base || !self.needs_base)
    }
}

enum Collected {
    /// `fresh` new frames, onto the `kept` outermost recorded ones.
    Joined {
        kept: usize,
        fresh: usize,
        base_slot: u64,
    },
    /// As many fresh frames as are kept of any stack, and there are more.
    Cut,
    Foreign,
}

impl Collected {
    /// A walk that came to the outermost frame.
    #[inline(always)]
    fn whole(fresh: usize) -> Self {
        Self::Joined { kept: 0, fresh, base_slot: 0 }
    }
}
