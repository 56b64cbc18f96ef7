//! The tile sizes of attention, and the file of kernels for each head size. Launches need this part of
//! `attention_plans.cuh`.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Forward,
    /// The gradients of keys and values.
    KeyGradients,
    QueryGradients,
}

impl Step {
    pub(super) fn kernel(self) -> &'static str {
        match self {
            Self::Forward => "attention_forward",
            Self::KeyGradients => "attention_key_gradients",
            Self::QueryGradients => "attention_query_gradients",
        }
    }
}

/// Maximum head size of the kernels.
pub(super) const MAX_WIDTH: usize = 256;

/// A file of kernels for one padded width.
#[derive(Debug)]
struct File {
    name: &'static str,
    width: usize,
    /// Whether the file is for many rows only.
    is_large: bool,
    /// Numbers of rows and columns of tiles for each step, for elements of 2 and of 4 bytes.
    halves: [[usize; 2]; 3],
    singles: [[usize; 2]; 3],
}

/// Marks a step for which a file has no kernel.
const NONE: [usize; 2] = [0, 0];

const FILES: [File; 8] = [
    File::new("attention_32", 32, [[64, 64]; 3], [[64, 64], [64, 32], [64, 32]]),
    File::large("attention_64_large", 64, [[128, 64], [128, 32], [128, 32]], [[128, 32], [64, 32], [128, 32]]),
    File::new("attention_64", 64, [[64, 64], [64, 32], [64, 64]], [[64, 64], [64, 32], [64, 32]]),
    File::new("attention_96", 96, [[64, 64], [64, 32], [64, 32]], [[64, 32]; 3]),
    File::large("attention_128_large", 128, [[128, 64], NONE, [128, 32]], [NONE; 3]),
    File::new("attention_128", 128, [[64, 64]; 3], [[64, 32]; 3]),
    File::new("attention_128_lean", 128, [NONE; 3], [NONE, [64, 16], NONE]),
    File::new("attention_256", MAX_WIDTH, [[64, 32], [32, 32], [64, 32]], [[32, 32], [32, 16], [32, 16]]),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiles {
    pub(super) file: &'static str,
    /// Number of rows of a block's own tile.
    pub(super) rows: usize,
    pub(super) shared_bytes: u32,
}

impl Tiles {
    /// Returns the tiles for rows of `width` elements of `bytes` each, at most [`MAX_WIDTH`]. Each of the `heads` heads
    /// has `rows` rows. Returns `None` if no kernel fits in the shared memory of a block of `device`.
    pub(super) fn new(
        step: Step,
        [width, bytes]: [usize; 2],
        [heads, rows]: [usize; 2],
        device: Processors,
    ) -> Option<Self> {
        let of_file = |file: &File| {
            let tile = file.tile(step, bytes)?;
            let shared_bytes = shared_bytes(step, [file.width, bytes], tile) as u32;
            // Large tiles read less for each product, once there are enough of them to occupy the device.
            let suits = !file.is_large || heads * rows.div_ceil(tile[0]) >= 2 * device.count;
            let fits = file.width >= width && shared_bytes <= device.shared_bytes;
            (suits && fits).then_some(Self { file: file.name, rows: tile[0], shared_bytes })
        };
        FILES.iter().find_map(of_file)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Processors {
    pub(super) count: usize,
    /// Maximum shared memory of a block, in bytes.
    pub(super) shared_bytes: u32,
}

/// Numbers of rows and columns of tiles for doubles, which are the same for all head sizes.
const DOUBLES: [usize; 2] = [16, 16];

impl File {
    const fn new(name: &'static str, width: usize, halves: [[usize; 2]; 3], singles: [[usize; 2]; 3]) -> Self {
        Self { name, width, is_large: false, halves, singles }
    }

    const fn large(name: &'static str, width: usize, halves: [[usize; 2]; 3], singles: [[usize; 2]; 3]) -> Self {
        Self { is_large: true, ..Self::new(name, width, halves, singles) }
    }

    fn tile(&self, step: Step, bytes: usize) -> Option<[usize; 2]> {
        let (half, single) = (self.halves[step as usize], self.singles[step as usize]);
        let tile = match bytes {
            2 => half,
            4 => single,
            _ if self.is_large || half == NONE => NONE,
            _ => DOUBLES,
        };
        (tile != NONE).then_some(tile)
    }
}

fn shared_bytes(step: Step, [width, bytes]: [usize; 2], [rows, columns]: [usize; 2]) -> usize {
    // Each line ends in 16 bytes more.
    let line = width * bytes + 16;
    let of_real = bytes.max(4);
    // Where threads multiply, as for doubles, they share weights.
    let shown = if bytes == 8 { rows * (columns + 8) * of_real } else { 0 };
    match step {
        Step::Forward => (rows + 2 * columns) * line + shown,
        // Two elements for each row of queries as well.
        Step::KeyGradients => 2 * (rows + columns) * line + 2 * columns * of_real + shown,
        Step::QueryGradients => 2 * (rows + columns) * line + shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [Step; 3] = [Step::Forward, Step::KeyGradients, Step::QueryGradients];

    const H200: Processors = Processors { count: 132, shared_bytes: 227 << 10 };

    fn name(step: Step, sizes: [usize; 2], heads: usize, device: Processors) -> Option<&'static str> {
        Tiles::new(step, sizes, [heads, 1024], device).map(|tiles| tiles.file)
    }

    #[test]
    fn every_width_has_tiles_that_fit_into_a_block_of_every_gpu() {
        for shared_bytes in [99 << 10, 163 << 10, 227 << 10] {
            let device = Processors { shared_bytes, ..H200 };
            for step in STEPS {
                for (bytes, most_width) in [(2, 256), (4, 256), (8, if shared_bytes < 163 << 10 { 128 } else { 256 })] {
                    for (width, heads) in (1..=most_width).flat_map(|width| [(width, 1), (width, 1 << 20)]) {
                        let tiles = Tiles::new(step, [width, bytes], [heads, 1000], device).expect("there are some");
                        let padded = FILES.iter().find(|file| file.name == tiles.file).map_or(0, |file| file.width);
                        assert!(padded >= width && tiles.shared_bytes <= shared_bytes, "{tiles:?} for {width}");
                    }
                }
            }
        }
    }

    #[test]
    fn large_tiles_are_for_many_rows_and_lean_ones_for_little_shared_memory() {
        let files = [8, 96].map(|heads| name(Step::Forward, [64, 2], heads, H200));
        assert_eq!(files, [Some("attention_64"), Some("attention_64_large")]);
        assert_eq!(name(Step::KeyGradients, [128, 2], 1 << 20, H200), Some("attention_128"));
        let small = Processors { shared_bytes: 99 << 10, ..H200 };
        let files = |device| STEPS.map(|step| name(step, [128, 4], 8, device));
        assert_eq!(files(H200), [Some("attention_128"); 3]);
        assert_eq!(files(small), [Some("attention_128"), Some("attention_128_lean"), Some("attention_128")]);
        assert_eq!(STEPS.map(|step| name(step, [200, 4], 8, small)), [Some("attention_256"); 3]);
        assert_eq!(STEPS.map(|step| name(step, [200, 8], 8, small)), [None; 3], "doubles take twice as much");
    }
}
