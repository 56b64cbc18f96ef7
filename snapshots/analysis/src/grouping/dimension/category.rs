//! The category of a block.

use highwater_snapshots::Category;

use super::{Dimension, Values, number};

pub(super) static CATEGORY: Dimension = Dimension {
    hint: "category of the block: parameter, activation …",
    number: number!(|lookups, id| Some(lookups.trace.blocks.category[id.0 as usize] as u64)),
    word: |_, code| Category::from_code(code as u8).map_or("", Category::name).into(),
    ..Dimension::new("category", Values::Words(|| Category::ALL.iter().map(|category| category.name()).collect()))
};
