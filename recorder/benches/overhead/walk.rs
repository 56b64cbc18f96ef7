//! Functions that call each other as in a training step, so that every frame of a stack is real.

use std::hint::black_box;

/// What is done at the innermost frame.
pub(crate) type Leaf = fn();

/// A frame on the way to the leaves. `BYTES` makes each a separate function with its own frame size.
pub(crate) type Node = fn(&Walk, depth: u32, path: u32) -> u32;

pub(crate) struct Walk {
    pub(crate) leaf: Leaf,
    /// The innermost levels, which branch; above them there is one chain.
    pub(crate) branching: u32,
}

const fn four<const A: usize, const B: usize, const C: usize, const D: usize>() -> [Node; 4] {
    [node::<A>, node::<B>, node::<C>, node::<D>]
}

/// As many functions as a training step has on its stacks, more or less.
const NODES: [[Node; 4]; 6] = [
    four::<8, 16, 24, 32>(),
    four::<40, 56, 72, 88>(),
    four::<104, 120, 136, 152>(),
    four::<168, 184, 200, 216>(),
    four::<232, 248, 264, 280>(),
    four::<312, 344, 376, 408>(),
];

pub(crate) fn node_of(path: u32) -> Node {
    NODES[path as usize % 6][(path >> 16) as usize % 4]
}

fn next(path: u32) -> u32 {
    path.wrapping_mul(0x9e37_79b1).rotate_left(13) ^ 0x5bd1
}

#[inline(never)]
fn node<const BYTES: usize>(walk: &Walk, depth: u32, path: u32) -> u32 {
    let mut block = [0u8; BYTES];
    black_box(&mut block);
    let call = |path: u32| node_of(path)(walk, depth - 1, path);
    let found = if depth == 0 {
        (walk.leaf)();
        black_box(&mut block);
        if walk.branching > 0 {
            (walk.leaf)();
        }
        1
    } else if depth > walk.branching {
        call(next(path))
    } else {
        let first = call(next(2 * path));
        black_box(&mut block);
        first + call(next(2 * path + 1))
    };
    found + u32::from(black_box(&block)[BYTES - 1])
}
