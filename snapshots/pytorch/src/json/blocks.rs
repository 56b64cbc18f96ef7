//! Reads the blocks of a segment, in the current layout and in the layout of old files.

use serde::de::{MapAccess, SeqAccess};

use super::super::intake::BlockDraft;
use super::super::raw::BlockState;
use super::super::sequences::Sequences;
use super::reading::{Reading, SHOWN, shown};
use super::shape::{TakesElements, TakesKeys};

/// A block being read, with its newest tenant as recorded in files before PyTorch 2.1.
#[derive(Debug, Default)]
struct Block {
    draft: BlockDraft,
    history: History,
}

impl TakesKeys for Block {
    const OF: &'static str = "blocks";
    const KEYS: &'static [&'static str] =
        &["address", "size", "requested_size", "state", "frames", "forward_frames", "history"];

    fn take<'de, A: MapAccess<'de>>(
        &mut self,
        reading: &mut Reading<'_>,
        key: &str,
        dict: &mut A,
    ) -> Result<(), A::Error> {
        let draft = &mut self.draft;
        match key {
            "address" => draft.address = dict.next_value_seed(reading.maybe_number("a block's address"))?,
            "size" => draft.size = dict.next_value_seed(reading.number("a block's size"))?,
            "requested_size" => {
                draft.requested_size = dict.next_value_seed(reading.maybe_number("a block's requested_size"))?;
            }
            "state" => draft.state = read_state(reading, dict)?,
            "frames" => draft.stack = reading.read_stack(dict)?,
            "forward_frames" => draft.forward = reading.read_texts(dict)?,
            _ => {
                self.history = History::default();
                dict.next_value_seed(reading.list(&mut self.history))?;
            }
        }
        Ok(())
    }
}

fn read_state<'de, A: MapAccess<'de>>(reading: &mut Reading<'_>, dict: &mut A) -> Result<BlockState, A::Error> {
    let state = dict.next_value_seed(reading.copied("a block's state"))?;
    Ok(BlockState::from_name(&state).unwrap_or_else(|| {
        if !state.is_empty() {
            reading.intake.strange(format!("the block state '{}', taken as inactive", shown(&state, SHOWN)));
        }
        BlockState::Inactive
    }))
}

/// The tenants of a block, newest first; only the newest is kept.
#[derive(Debug, Default)]
struct History {
    newest: Option<Tenant>,
}

impl TakesElements for History {
    const OF: &'static str = "a block's tenants";

    fn take<'de, A: SeqAccess<'de>>(&mut self, reading: &mut Reading<'_>, list: &mut A) -> Result<bool, A::Error> {
        let mut tenant = Tenant { size: None, stack: Sequences::NONE };
        if list.next_element_seed(reading.dict(&mut tenant))?.is_none() {
            return Ok(false);
        }
        self.newest.get_or_insert(tenant);
        Ok(true)
    }
}

/// A tenant of a block.
#[derive(Debug)]
struct Tenant {
    size: Option<u64>,
    stack: u32,
}

impl TakesKeys for Tenant {
    const OF: &'static str = "the history of blocks";
    const KEYS: &'static [&'static str] = &["addr", "frames", "real_size"];

    fn take<'de, A: MapAccess<'de>>(
        &mut self,
        reading: &mut Reading<'_>,
        key: &str,
        dict: &mut A,
    ) -> Result<(), A::Error> {
        match key {
            "real_size" => self.size = dict.next_value_seed(reading.maybe_number("a tenant's real_size"))?,
            "frames" => self.stack = reading.read_stack(dict)?,
            // Same as the block's own address.
            _ => drop(dict.next_value_seed(reading.number("a tenant's addr"))?),
        }
        Ok(())
    }
}

/// The blocks of all segments, concatenated.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub(super) rows: Vec<BlockDraft>,
}

impl TakesElements for Blocks {
    const OF: &'static str = "blocks";

    fn take<'de, A: SeqAccess<'de>>(&mut self, reading: &mut Reading<'_>, list: &mut A) -> Result<bool, A::Error> {
        let mut block = Block::default();
        if list.next_element_seed(reading.dict(&mut block))?.is_none() {
            return Ok(false);
        }
        let Block { mut draft, history } = block;
        if let Some(tenant) = history.newest {
            draft.requested_size = draft.requested_size.or(tenant.size);
            if draft.stack == Sequences::NONE {
                draft.stack = tenant.stack;
            }
        }
        self.rows.push(draft);
        Ok(true)
    }
}
