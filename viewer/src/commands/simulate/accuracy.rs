//! The accuracy of a simulation's figures, derived from the run.

use highwater_analysis::{Metric, Source};
use highwater_app::answers::prediction::Figures;
use highwater_snapshots::{DeviceId, Trace};
use serde::Serialize;

use super::found::{BOUNDED, Called, Interval, Orders, Recorded, Simulated};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Class {
    /// Memory was not influenced by any unknown value or time.
    Exact,
    /// The true figure lies between two bounds.
    Bounded,
    /// The figures are exact unless memory depends on a value or time that was read.
    Conditional,
    /// The figures are lower bounds, since the sizes of some workspaces are unknown.
    LowerBound,
    /// The accuracy is unknown for another reason.
    Unknown,
}

/// The effect of reading unknown values computed on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Values {
    /// The program has read no unknown values.
    NotRead,
    /// Values were read as zeros; no other values were tried.
    Untried,
    /// The allocations with ones were the same as with zeros.
    SameWithOnes,
    /// The allocations with ones differed. Contains the line of the last read before the first difference, if known.
    OtherWithOnes(Option<Box<Called>>),
    /// With ones, the program ended with another exit status, which this contains, or lacks the process's recording.
    OtherEnd(u8),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Accuracy {
    pub(super) class: Class,
    pub(super) values: Values,
    /// The totals with other orders of addresses, or the reason they are unknown.
    pub(super) orders: Option<Result<Orders, String>>,
    pub(super) bounds: [Interval; BOUNDED.len()],
}

impl Accuracy {
    /// Computes the accuracy for the recording that decides whether the program fits.
    pub(super) fn of(simulated: &Simulated) -> Self {
        let main = simulated.main();
        let device = main.summary.device;
        let number = simulated.recorded.iter().position(|one| std::ptr::eq(one, main));
        let other =
            simulated.with_ones.as_ref().map(|other| (other.status, number.and_then(|row| other.traces.get(row))));
        let values = match (main.noted.reads.is_empty(), other) {
            (true, _) => Values::NotRead,
            (false, None) => Values::Untried,
            (false, Some((status, Some(trace)))) if status == simulated.status => values_of(main, trace),
            (false, Some((status, _))) => Values::OtherEnd(status),
        };
        let with_ones = other.and_then(|(_, trace)| Figures::of(&Source::in_memory(trace?), device).ok());
        let orders = main.orders.as_ref().and_then(|orders| orders.as_ref().ok());
        let bounds = BOUNDED.map(|metric| {
            let under_orders = orders.map(|orders| orders.peaks[metric as usize]);
            let others = under_orders.into_iter().flat_map(|peak| [peak.low, peak.high]);
            let others = others.chain(with_ones.as_ref().map(|figures| figures.peak_bytes(metric)));
            others.fold(Interval::of(main.peak(metric)), Interval::with)
        });
        // A program that failed has not come to its end, and its peak may lie there.
        let is_at_end = simulated.status == 0 && main.noted.missing.is_empty() && main.noted.endless.is_none();
        let is_known = is_at_end && !matches!(main.orders, Some(Err(_)));
        let class = if !is_known || matches!(values, Values::OtherEnd(_)) {
            Class::Unknown
        } else if !main.noted.unknown_workspaces.is_empty() {
            Class::LowerBound
        } else if values == Values::Untried || !main.noted.autotuned.is_empty() {
            Class::Conditional
        } else if matches!(values, Values::OtherWithOnes(_)) || !bounds.into_iter().all(Interval::is_exact) {
            Class::Bounded
        } else {
            Class::Exact
        };
        Self { class, values, orders: main.orders.clone(), bounds }
    }

    pub(super) fn bounds(&self, metric: Metric) -> Interval {
        self.bounds[metric as usize]
    }
}

fn values_of(recorded: &Recorded, with_ones: &Trace) -> Values {
    let device = recorded.summary.device;
    let [zeros, ones] = [&recorded.trace, with_ones].map(|trace| requests(trace, device));
    let Some(first) = first_difference(&zeros, &ones) else { return Values::SameWithOnes };
    let noted = &recorded.noted;
    let before = noted.read_order.iter().take_while(|(allocations, _)| *allocations <= first as u64).last();
    let line = before.and_then(|(_, row)| noted.reads.get(*row));
    Values::OtherWithOnes(line.cloned().map(Box::new))
}

/// Returns the requested bytes of the blocks that are allocated on `device`, in order of allocation.
fn requests(trace: &Trace, device: DeviceId) -> Vec<u64> {
    let blocks = &trace.blocks;
    let rows = (0..blocks.len()).filter(|row| blocks.device[*row] == device && blocks.alloc[*row].is_some());
    let mut requests: Vec<_> = rows.map(|row| (blocks.alloc[row], blocks.requested[row])).collect();
    requests.sort_unstable();
    requests.into_iter().map(|(_, bytes)| bytes).collect()
}

/// Returns the index of the first request that differs or that one side lacks; `None` if all are equal.
fn first_difference(one: &[u64], other: &[u64]) -> Option<usize> {
    let common = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    (common < one.len().max(other.len())).then_some(common)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_request_that_differs_is_found_and_a_missing_one_differs() {
        assert_eq!(first_difference(&[1, 2, 3], &[1, 2, 3]), None);
        assert_eq!(first_difference(&[1, 2, 3], &[1, 5, 3]), Some(1));
        assert_eq!(first_difference(&[1, 2], &[1, 2, 3]), Some(2));
        assert_eq!(first_difference(&[], &[]), None);
    }
}
