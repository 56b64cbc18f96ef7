//! The maximum of every total in each column of a drawing.

use rayon::prelude::*;

use crate::Series;
use crate::metric::Totals;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::yielding::tick;

use super::{BandWindow, run_of};

/// Returns the maximum of each total in each column; the totals of a column may peak at different events. The running
/// time depends on the number of columns, not on the number of events.
pub fn column_totals(trace: &Trace, series: &Series, window: &BandWindow) -> Vec<Totals> {
    let run = run_of(window.width);
    let mut totals = vec![Totals::default(); window.width];
    totals.par_chunks_mut(run).enumerate().for_each(|(index, totals)| {
        let mut walk = series.walk(trace);
        for (offset, largest) in totals.iter_mut().enumerate() {
            tick();
            *largest = walk.largest_of_each(window.moments(trace, index * run + offset));
        }
    });
    totals
}
