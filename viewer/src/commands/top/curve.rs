//! A total over time in a limited number of columns, independent of the length of the recording.

use highwater_analysis::{Metric, Totals};

/// Maximum number of columns; if there are more, pairs are merged.
const MAX_COLUMNS: usize = 1024;

/// The largest totals in equal intervals of time, or of events if times are not recorded.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// The binary logarithm of the length of an interval.
    shift: u32,
    columns: Vec<Totals>,
    first: Option<u64>,
    last: Totals,
}

impl Curve {
    /// Sets the totals before the first moment.
    pub fn begin(&mut self, totals: &Totals) {
        self.last = *totals;
    }

    /// Adds the totals from time or event `at` on.
    pub fn add(&mut self, at: u64, totals: &Totals) {
        let since = at.saturating_sub(*self.first.get_or_insert(at));
        while since >> self.shift >= MAX_COLUMNS as u64 {
            self.columns = self.columns.chunks(2).map(|pair| pair.iter().fold(pair[0], |a, b| a.max(b))).collect();
            self.shift += 1;
        }
        let column = (since >> self.shift) as usize;
        if column >= self.columns.len() {
            self.columns.resize(column + 1, self.last);
        }
        self.columns[column] = self.columns[column].max(totals);
        self.last = *totals;
    }

    /// The largest values of `metric` in `width` equal parts of the time.
    pub fn sampled(&self, metric: Metric, width: usize) -> Vec<u64> {
        let count = self.columns.len();
        let part = |at: usize| {
            let first = (at * count / width.max(1)).min(count.saturating_sub(1));
            let end = ((at + 1) * count / width.max(1)).clamp(first + 1, count.max(first + 1));
            self.columns.get(first..end).unwrap_or_default().iter().map(|totals| totals.get(metric)).max()
        };
        let part = |at: usize| part(at).unwrap_or(self.last.get(metric));
        (0..width).map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(requested: u64) -> Totals {
        Totals { requested, ..Totals::default() }
    }

    #[test]
    fn no_maximum_is_lost_however_long_it_becomes() {
        let mut curve = Curve::default();
        for at in 0..1_000_000_u64 {
            curve.add(1_000 + at * 37, &requested(if at == 333_333 { 900 } else { at / 10_000 }));
        }
        assert!(curve.columns.len() <= MAX_COLUMNS && curve.columns.len() > MAX_COLUMNS / 4, "{}", curve.columns.len());
        let samples = curve.sampled(Metric::Requested, 60);
        assert_eq!((samples.len(), samples.iter().max()), (60, Some(&900)));
        assert_eq!(samples.iter().position(|bytes| *bytes == 900), Some(20), "a third of the way");
        assert_eq!(samples[59], 99);
    }

    #[test]
    fn a_total_stays_while_nothing_happens() {
        let mut curve = Curve::default();
        curve.add(0, &requested(5));
        curve.add(100_000, &requested(7));
        let samples = curve.sampled(Metric::Requested, 10);
        assert_eq!(samples[..9], [5; 9]);
        assert_eq!(samples[9], 7);
        assert_eq!(Curve::default().sampled(Metric::Requested, 2), [0, 0]);
        let mut late = Curve::default();
        late.begin(&requested(3));
        assert_eq!(late.sampled(Metric::Requested, 2), [3, 3], "a state without events");
        (0..10).for_each(|at| late.add(1 << 60 | at << 50, &requested(at)));
        let samples = late.sampled(Metric::Requested, 10);
        assert_eq!((samples[0], samples[9]), (3, 9), "time begins with the first event");
    }
}
