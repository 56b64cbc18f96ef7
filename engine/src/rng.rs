//! Counter-based random numbers, which are the same on every device and can be skipped at no cost.

use std::cell::RefCell;
use std::collections::VecDeque;

/// Computes Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011), which
/// gives four random words that depend only on `key` and `counter`.
pub fn philox(key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    let [mut key_low, mut key_high] = key;
    let [mut a, mut b, mut c, mut d] = counter;
    for _ in 0..10 {
        let first = MULTIPLIERS[0] * u64::from(a);
        let second = MULTIPLIERS[1] * u64::from(c);
        (a, b, c, d) =
            ((second >> 32) as u32 ^ b ^ key_low, second as u32, (first >> 32) as u32 ^ d ^ key_high, first as u32);
        key_low = key_low.wrapping_add(WEYL[0]);
        key_high = key_high.wrapping_add(WEYL[1]);
    }
    [a, b, c, d]
}

/// A range of a seed's random stream, from which a kernel generates its numbers, repeatedly if needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    seed: u64,
    start: u64,
}

impl Draw {
    /// Returns the seed and the first counter of the range, for generators outside this module.
    pub(crate) fn seed_and_counter(&self) -> [u64; 2] {
        [self.seed, self.start]
    }

    /// Returns the four random 32-bit words that Philox generates for counter `group` of this range (0 is the first).
    pub fn words(&self, group: u64) -> [u32; 4] {
        let counter = self.start.wrapping_add(group);
        philox([self.seed as u32, (self.seed >> 32) as u32], [counter as u32, (counter >> 32) as u32, 0, 0])
    }

    /// Returns four uniform numbers in [0, 1), in steps of 2⁻²⁴.
    pub fn uniforms(&self, group: u64) -> [f32; 4] {
        self.words(group).map(|word| (word >> 8) as f32 / (1 << 24) as f32)
    }

    /// Returns four normal numbers with mean 0 and variance 1 (Box and Muller, 1958).
    pub fn normals(&self, group: u64) -> [f32; 4] {
        let [a, b, c, d] = self.words(group);
        let pair = |radius: u32, angle: u32| {
            // In (0, 1], so that the logarithm is finite.
            let uniform = (f64::from(radius) + 1.0) / 4_294_967_296.0;
            let radius = (-2.0 * uniform.ln()).sqrt();
            let (sin, cos) = (std::f64::consts::TAU * f64::from(angle) / 4_294_967_296.0).sin_cos();
            [(radius * cos) as f32, (radius * sin) as f32]
        };
        let ([e, f], [g, h]) = (pair(a, b), pair(c, d));
        [e, f, g, h]
    }
}

/// A seeded random number generator.
#[derive(Clone, Debug)]
pub struct Rng {
    seed: u64,
    next: u64,
}

impl Rng {
    /// Creates a generator at the start of the stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed, next: 0 }
    }

    /// Reserves the next `numbers` numbers of the stream. Later draws do not depend on whether these numbers are
    /// generated.
    pub fn draw(&mut self, numbers: usize) -> Draw {
        tape::played_or(|| {
            let draw = Draw { seed: self.seed, start: self.next };
            self.next = self.next.wrapping_add(numbers.div_ceil(4) as u64);
            draw
        })
    }
}

/// Records random draws while code runs, and replays them when the code is recomputed. A recomputation gets exactly the
/// same random numbers, and later draws are not affected.
pub(crate) mod tape {
    use super::{Draw, RefCell, VecDeque};

    /// The recording or replay of draws while code runs on this thread.
    enum Tape {
        Note(Vec<Draw>),
        Play(VecDeque<Draw>),
    }

    thread_local! {
        static TAPES: RefCell<Vec<Tape>> = const { RefCell::new(Vec::new()) };
    }

    /// Runs `part`, and returns its result and its random draws.
    pub(crate) fn note<R>(part: impl FnOnce() -> R) -> (R, Vec<Draw>) {
        let on = On::push(Tape::Note(Vec::new()));
        let result = part();
        match on.pop() {
            Some(Tape::Note(draws)) => (result, draws),
            _ => unreachable!("tapes were removed in a different order from that in which they were added"),
        }
    }

    /// Runs `part` with `draws` as its random draws.
    pub(crate) fn play<R>(draws: &[Draw], part: impl FnOnce() -> R) -> R {
        let _on = On::push(Tape::Play(draws.iter().copied().collect()));
        part()
    }

    /// Returns the next draw of the innermost replay, or a new one, and adds it to the records that started within that
    /// replay.
    pub(super) fn played_or(new: impl FnOnce() -> Draw) -> Draw {
        TAPES.with_borrow_mut(|tapes| {
            let playing = tapes.iter().rposition(|tape| matches!(tape, Tape::Play(_)));
            let (draw, noting) = match playing.map(|place| (place, &mut tapes[place])) {
                Some((place, Tape::Play(draws))) => (draws.pop_front(), place + 1),
                _ => (None, 0),
            };
            let draw = draw.unwrap_or_else(new);
            for tape in &mut tapes[noting..] {
                if let Tape::Note(draws) = tape {
                    draws.push(draw);
                }
            }
            draw
        })
    }

    /// A tape that stays active until the guard is dropped, even on panic.
    struct On(());

    impl On {
        fn push(tape: Tape) -> Self {
            TAPES.with_borrow_mut(|tapes| tapes.push(tape));
            Self(())
        }

        fn pop(self) -> Option<Tape> {
            std::mem::forget(self);
            TAPES.with_borrow_mut(Vec::pop)
        }
    }

    impl Drop for On {
        fn drop(&mut self) {
            TAPES.with_borrow_mut(Vec::pop);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_known_answers_of_its_authors() {
        assert_eq!(philox([0, 0], [0, 0, 0, 0]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 2], [u32::MAX; 4]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0xa409_3822, 0x299f_31d0], [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn skipping_a_draw_leaves_the_following_numbers_alone() {
        let (mut first, mut second) = (Rng::new(7), Rng::new(7));
        let skipped = first.draw(5);
        let drawn = second.draw(5);
        assert_eq!(skipped.words(0), drawn.words(0));
        assert_eq!(first.draw(1).words(0), second.draw(1).words(0));
        assert_ne!(Rng::new(8).draw(1).words(0), skipped.words(0));
    }

    #[test]
    fn a_part_that_runs_again_draws_what_it_drew_and_leaves_later_draws_alone() {
        let mut rng = Rng::new(3);
        let before = rng.draw(4);
        let (first, draws) = tape::note(|| [rng.draw(8), rng.draw(1)]);
        let after = rng.draw(4);
        let ((again, inner), noted) = tape::note(|| tape::play(&draws, || tape::note(|| [rng.draw(8), rng.draw(1)])));
        assert_eq!(again, first);
        assert_eq!(inner, draws);
        assert!(noted.is_empty(), "what is drawn again is not drawn from here");
        let mut other = Rng::new(3);
        other.draw(4);
        assert_eq!([other.draw(8), other.draw(1)], first);
        assert_eq!(other.draw(4), after);
        assert_ne!(before, after);
        assert_eq!(other.draw(4), rng.draw(4));
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let draw = Rng::new(1).draw(40_000);
        let numbers: Vec<f64> = (0..10_000).flat_map(|group| draw.normals(group)).map(f64::from).collect();
        let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
        let variance = numbers.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / numbers.len() as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "mean {mean}, variance {variance}");
    }
}
