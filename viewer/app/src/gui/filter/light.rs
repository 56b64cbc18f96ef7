//! The blocks of a chosen group, which the timelines highlight.

use std::sync::Arc;

use highwater_analysis::{Filter, Matches};
use rayon::prelude::*;

use crate::gui::identity::Identity;
use crate::gui::widgets::query::Query;
use crate::session::Recording;

/// The condition for what is highlighted in each recording.
pub type Key = Vec<(Identity<Recording>, Filter)>;

/// The highlighted blocks of each recording.
pub type Light = Query<Key, Vec<Arc<Matches>>>;

/// Finds the blocks on a background thread.
pub fn light() -> Light {
    Query::new("highwater-light", |key: &Key, _| {
        let of = |(recording, filter): &(Identity<Recording>, Filter)| {
            Some(Arc::new(Matches::of(&recording.get()?.trace, filter)))
        };
        key.par_iter().map(of).collect()
    })
}
