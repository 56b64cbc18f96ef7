//! Tests that captured stacks agree with the platform's unwinder for every frame, wherever the capture happens.

#[path = "stacks/foreign.rs"]
mod foreign;
#[path = "stacks/symbols.rs"]
mod symbols;

use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use highwater_recorder::stack::{self, StackKey, depot};

/// Held by tests that read [`stack::losses`], and by those that cause them.
static LOSSES: Mutex<()> = Mutex::new(());

fn losses_alone() -> MutexGuard<'static, ()> {
    LOSSES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Captures in both ways, and compares. The two calls are two places in this function, so the first frames differ.
#[inline(never)]
fn agree() -> StackKey {
    let walked = stack::capture();
    let unwound = stack::capture_portable();
    let (walked_frames, mut unwound_frames) = (depot::frames(walked), depot::frames(unwound));
    if cfg!(target_arch = "aarch64") {
        // The program's and the thread's entry keep no frame record.
        let missing = unwound_frames.len().saturating_sub(walked_frames.len());
        unwound_frames.truncate(unwound_frames.len() - missing.min(2));
    }
    assert!(walked_frames[0].abs_diff(unwound_frames[0]) < 256, "both begin in this function");
    assert_eq!(hex(&walked_frames[1..]), hex(&unwound_frames[1..]));
    walked
}

fn hex(frames: &[u64]) -> Vec<String> {
    frames.iter().map(|frame| format!("{frame:#x}")).collect()
}

/// A small generator of reproducible numbers (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 31)) % end
    }
}

#[inline(never)]
fn tree<const WORDS: usize>(depth: u32, keys: &mut Vec<StackKey>) {
    let mut frame = [u64::from(depth); WORDS];
    black_box(&mut frame);
    if depth == 0 {
        keys.push(agree());
        return;
    }
    tree::<3>(depth - 1, keys);
    black_box(&mut frame);
    tree::<40>(depth - 1, keys);
    keys.push(agree());
    black_box(&frame);
}

#[test]
fn every_node_of_a_recursion_agrees_and_is_its_own_stack() {
    let mut keys = Vec::new();
    tree::<1>(6, &mut keys);
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 127);
}

#[repr(align(128))]
struct Aligned([u8; 200]);

/// Over-aligned frames are found through the base register, plain ones through the stack pointer.
#[inline(never)]
fn wander(numbers: &mut Numbers, depth: u32) -> u64 {
    let next = |numbers: &mut Numbers| match depth {
        0 => 0,
        _ => wander(numbers, depth - 1),
    };
    let found = match numbers.below(4) {
        0 => aligned(numbers, depth),
        1 => u64::from(agree().is_some()) + next(numbers),
        2 => next(numbers) + next(numbers) / 2 + u64::from(agree().is_some()),
        _ => next(numbers),
    };
    black_box(found) + 1
}

#[inline(never)]
fn aligned(numbers: &mut Numbers, depth: u32) -> u64 {
    let mut block = Aligned([0; 200]);
    block.0[numbers.below(200) as usize] = 7;
    assert!(black_box(&block).0.as_ptr().addr().is_multiple_of(128));
    let found = if depth == 0 { 0 } else { wander(numbers, depth - 1) };
    agree();
    found + u64::from(black_box(&block).0[0])
}

#[test]
fn random_recursion_through_aligned_frames_agrees() {
    for seed in 0..60 {
        black_box(wander(&mut Numbers(seed), 9));
    }
}

#[inline(never)]
fn large(depth: u32) -> u8 {
    let mut frame = [1u8; 70_000];
    black_box(&mut frame);
    agree();
    let found = if depth == 0 { 0 } else { large(depth - 1) };
    found.wrapping_add(black_box(&frame)[depth as usize])
}

#[test]
fn frames_of_seventy_thousand_bytes_agree() {
    black_box(large(6));
}

#[test]
fn closures_inside_the_standard_library_agree() {
    let mut numbers = Numbers(3);
    let mut values: Vec<u64> = (0..60).map(|_| numbers.below(1000)).collect();
    values.sort_by(|a, b| {
        agree();
        a.cmp(b)
    });
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        agree();
    });
    let boxed: Vec<Box<dyn Fn(u32) -> StackKey>> =
        vec![Box::new(|_| agree()), Box::new(|n| if n > 3 { agree() } else { StackKey::NONE })];
    assert!((0..5).all(|n| n < 4 || boxed.iter().all(|call| call(n).is_some())));
}

struct CapturesWhenDropped;

impl Drop for CapturesWhenDropped {
    fn drop(&mut self) {
        agree();
    }
}

#[inline(never)]
fn panics(depth: u32) {
    let _captures = CapturesWhenDropped;
    assert!(depth > 0, "on purpose");
    panics(black_box(depth) - 1);
}

#[test]
fn a_panic_hook_and_drops_during_unwinding_agree() {
    let former = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        agree();
        if !info.payload().is::<&str>() {
            former(info);
        }
    }));
    assert!(std::panic::catch_unwind(|| panics(5)).is_err());
    agree();
}

#[test]
fn many_threads_agree_and_share_their_keys() {
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let run = || {
                let mut keys = Vec::new();
                tree::<5>(4, &mut keys);
                keys
            };
            std::thread::Builder::new().name("captures".to_owned()).spawn(run).expect("a thread starts")
        })
        .collect();
    let keys: Vec<Vec<StackKey>> =
        threads.into_iter().map(|thread| thread.join().expect("no capture panics")).collect();
    assert!(keys.iter().all(|found| *found == keys[0]));
}

#[inline(never)]
fn deep(depth: u32) -> StackKey {
    let key = if depth == 0 { stack::capture() } else { deep(depth - 1) };
    black_box(key)
}

#[test]
fn the_same_place_gives_the_same_key_and_another_line_another() {
    let mut keys = Vec::new();
    for round in 0..black_box(4) {
        keys.push(deep(20));
        keys.push(deep(20));
        if round % 2 == 0 {
            deep(3);
        }
    }
    assert!(keys.iter().step_by(2).all(|&key| key == keys[0]));
    assert!(keys.iter().skip(1).step_by(2).all(|&key| key == keys[1]));
    assert_ne!(keys[0], keys[1]);
    let (one, other) = (depot::frames(keys[0]), depot::frames(keys[1]));
    let different: Vec<usize> = (0..one.len()).filter(|&at| one[at] != other[at]).collect();
    assert_eq!(different, [21], "only the return into this function differs");
}

#[test]
fn ordinary_code_needs_no_help_and_loses_nothing() {
    let _alone = losses_alone();
    let before = stack::losses();
    let mut keys = Vec::new();
    tree::<2>(5, &mut keys);
    wander(&mut Numbers(99), 9);
    large(2);
    assert_eq!(stack::losses(), before);
}

#[test]
fn a_stack_that_is_too_deep_keeps_its_innermost_frames() {
    let _alone = losses_alone();
    let before = stack::losses();
    let limit = stack::MAX_FRAMES;
    for depth in [limit as u32 - 100, limit as u32 + 50, limit as u32 + 51, 20, limit as u32 + 50] {
        let (once, again) = (depot::frames(deep(depth)), depot::frames(deep(depth)));
        let kept = if depth as usize > limit { limit } else { once.len() };
        assert_eq!((once.len(), again.len()), (kept, kept));
        assert_eq!(once[1..kept.min(depth as usize)], again[1..kept.min(depth as usize)]);
    }
    assert_eq!(stack::losses().cut, before.cut + 6);
}

#[test]
fn the_tree_lists_parents_before_children_and_each_node_once() {
    let known = depot::len();
    let key = deep(30);
    let rows = depot::nodes_since(0);
    assert!(rows.len() >= known.max(31));
    let mut node = depot::node(key);
    let mut at = key;
    for address in depot::frames(key) {
        let found = node.expect("a frame for every node");
        assert_eq!((found.address, Some(found)), (address, at.index().map(|index| rows[index])));
        assert!(found.parent < at);
        at = found.parent;
        node = depot::node(at);
    }
    assert_eq!((at, node), (StackKey::NONE, None));
}
