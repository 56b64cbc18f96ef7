//! Lines: the largest value of every total in each column of a window.

use rayon::prelude::*;

use crate::analysis::Series;
use crate::analysis::metric::Totals;
use crate::analysis::replay::Replay;
use crate::trace::Trace;

use super::{MIN_COLUMNS, Window};

/// For each column the largest of each total among the column's moments: each on its own, so that they need not have
/// been reached together. One walk over the window's events.
pub fn column_totals(trace: &Trace, series: &Series, window: &Window) -> Vec<Totals> {
    let run = window.width.div_ceil(2 * rayon::current_num_threads()).max(MIN_COLUMNS);
    let mut totals = vec![Totals::default(); window.width];
    totals.par_chunks_mut(run).enumerate().for_each(|(index, totals)| {
        let mut replay: Option<Replay<'_>> = None;
        for (offset, largest) in totals.iter_mut().enumerate() {
            let moments = window.moments(trace, index * run + offset);
            // The last moment of a column may be the first of the next: then there is nothing to walk back for.
            let reached = replay.take().filter(|replay| replay.position() <= moments.start);
            let mut at = reached.unwrap_or_else(|| {
                let totals = series.before_position(trace, moments.start);
                Replay::resume(trace, series.device(), moments.start, totals)
            });
            at.run_to(moments.start);
            *largest = at.totals();
            while at.position() + 1 < moments.end && at.step().is_some() {
                *largest = largest.max(&at.totals());
            }
            replay = Some(at);
        }
    });
    totals
}
