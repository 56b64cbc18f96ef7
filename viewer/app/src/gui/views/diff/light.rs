//! The blocks of the chosen group, highlighted in both timelines.

use std::sync::Arc;

use highwater_analysis::{Filter, Matches};

use super::job::Answer;
use crate::gui::identity::Identity;
use crate::gui::widgets::query::Query;
use crate::session::Recording;

/// The highlighted blocks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    pub(super) recordings: [Identity<Recording>; 2],
    /// The answer that has the group.
    pub(super) answer: Identity<Answer>,
    /// The group's row in the answer.
    pub(super) group: usize,
    /// The conditions of both sides.
    pub(super) filters: [Filter; 2],
}

/// The blocks to highlight on both sides.
pub(super) type Light = Query<Key, [Arc<Matches>; 2]>;

/// Finds the blocks on a background thread.
pub(super) fn light() -> Light {
    Query::new("highwater-diff-light", |key: &Key, _| {
        let of = |side: usize| {
            let recording = key.recordings[side].get()?;
            Some(Arc::new(Matches::of(&recording.trace, &key.filters[side])))
        };
        let (a, b) = rayon::join(|| of(0), || of(1));
        Some([a?, b?])
    })
}
