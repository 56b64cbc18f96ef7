//! Describes the facts that PyTorch's format could not represent.

use super::entries::LeftOut;
use super::final_state::FinalState;
use highwater_snapshots::units::{count_of, format_bytes};

/// Numbers of items that were omitted, shortened or invented because a snapshot cannot express them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lost {
    pub(super) left_out: LeftOut,
    pub(super) made_up: u64,
    pub(super) made_up_bytes: u64,
    pub(super) overlapped: u64,
    pub(super) cut: u64,
    pub(super) differing_settings: bool,
    /// Size in bytes of a recording that was too large to be embedded; `None` if it was embedded.
    pub(super) embedded_bytes: Option<usize>,
}

impl Lost {
    pub(super) fn of<'a>(states: impl Iterator<Item = &'a FinalState>) -> Self {
        states.fold(Self::default(), |sum, holdings| Self {
            made_up: sum.made_up + holdings.made_up,
            made_up_bytes: sum.made_up_bytes.saturating_add(holdings.made_up_bytes),
            overlapped: sum.overlapped + holdings.overlapped,
            cut: sum.cut + holdings.cut,
            ..sum
        })
    }

    pub(super) fn sentences(&self) -> Vec<String> {
        let bytes = format_bytes(self.made_up_bytes);
        let counted = [
            (
                self.made_up,
                format!(
                    "invented ({bytes}), for blocks whose addresses were not recorded: PyTorch's viewer needs a \
                     segment for every block"
                ),
                "segment",
            ),
            (
                self.left_out.unmatched_frees,
                "left out, of blocks that are not in the recording: the format requires their addresses".to_owned(),
                "free",
            ),
            (
                self.left_out.frees_added,
                "freed right before the next allocation at its address: its own free is missing".to_owned(),
                "block",
            ),
            (self.overlapped, "missing in the final state: a later one has the same address".to_owned(), "block"),
            (self.cut, "cut at the end of its segment in the final state".to_owned(), "block"),
        ];
        let sentence = |(count, what, noun): &(u64, String, &str)| format!("{} {what}", count_of(*count, noun));
        let mut sentences: Vec<String> = counted.iter().filter(|(count, ..)| *count > 0).map(sentence).collect();
        if self.differing_settings {
            sentences.push("all settings except those of the first device: the format stores only one set".to_owned());
        }
        if let Some(bytes) = self.embedded_bytes {
            let size = format_bytes(bytes as u64);
            sentences.push(format!(
                "modules, operations, rounded sizes of freed blocks, tags, uses, samples of the device's memory and \
                 facts of the program: the recording itself, {size}, is too large to be embedded in the snapshot"
            ));
        }
        sentences
    }
}
