//! Lines: the largest value of every total in each column of a window.

use rayon::prelude::*;

use crate::Series;
use crate::metric::Totals;
use highwater_snapshots::trace::Trace;

use super::{Window, run_of};

/// For each column the largest of each total among the column's moments: each on its own, so that they need not have
/// been reached together. Costs the columns, not the events that they span.
pub fn column_totals(trace: &Trace, series: &Series, window: &Window) -> Vec<Totals> {
    let run = run_of(window.width);
    let mut totals = vec![Totals::default(); window.width];
    totals.par_chunks_mut(run).enumerate().for_each(|(index, totals)| {
        let mut walk = series.walk(trace);
        for (offset, largest) in totals.iter_mut().enumerate() {
            *largest = walk.largest_of_each(window.moments(trace, index * run + offset));
        }
    });
    totals
}
