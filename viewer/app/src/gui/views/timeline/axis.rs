//! Positions and labels of ticks: bytes at powers of two, events and times at steps of 1, 2 or 5 times a power of ten.

use std::ops::Range;

use highwater_snapshots::format_count;

use crate::Axis;
use crate::gui::widgets::theme;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    /// In the unit of the axis.
    pub value: f64,
    pub label: String,
}

/// Maximum number of ticks of an axis, as a safeguard against too small a distance.
const MOST: usize = 1000;

/// The units of the byte axis, largest first.
const UNITS: [(&str, f64); 4] =
    [("TiB", (1_u64 << 40) as f64), ("GiB", (1_u64 << 30) as f64), ("MiB", (1_u64 << 20) as f64), ("KiB", 1024.0)];

pub(super) fn byte_ticks_in(range: &Range<f64>, height: f32) -> Vec<Tick> {
    let height = f64::from(height.max(1.0));
    let distance = (height / 10.0).clamp(theme::Y_TICK_DISTANCE, 1.6 * theme::Y_TICK_DISTANCE);
    byte_ticks(range, (range.end - range.start) / height * distance)
}

/// Returns the multiples, within `range`, of the smallest power of two that is at least `step` bytes and at least half
/// the unit of the labels.
fn byte_ticks(range: &Range<f64>, step: f64) -> Vec<Tick> {
    let step = step.max(1.0).log2().ceil().exp2();
    let has_halves = |unit: f64| step >= unit / 2.0 || range.end - range.start >= 1.5 * unit;
    let unit = UNITS.into_iter().find(|(_, unit)| range.end >= *unit && has_halves(*unit));
    let Some((name, unit)) = unit else {
        return ticks(range, step, |bytes| format!("{} B", format_count(bytes as u64)));
    };
    let step = step.max(unit / 2.0);
    ticks(range, step, |bytes| match step < unit {
        _ if bytes == 0.0 => "0".to_owned(),
        true => format!("{:.1} {name}", bytes / unit),
        false => format!("{} {name}", format_count((bytes / unit) as u64)),
    })
}

/// The offset between an event's index and the position of its tick. Moment 0 is the state before event 0, so the state
/// after event `n` is moment `n + 1`, and its middle is half a unit further.
const MIDDLE_OF_STATE_AFTER: f64 = 1.5;

/// Ticks of the horizontal axis over `range`, at least `step` apart; `before` events precede the first. The tick of an
/// event is in the middle of the state after it.
pub(super) fn across_ticks(axis: Axis, range: &Range<f64>, step: f64, before: u64) -> Vec<Tick> {
    let step = round_up(step.max(1.0));
    match axis {
        Axis::Event => {
            let moved = before as f64 - MIDDLE_OF_STATE_AFTER;
            let events = range.start + moved..range.end + moved;
            let mut ticks = ticks(&events, step, |value| format_count(value as u64));
            ticks.iter_mut().for_each(|tick| tick.value -= moved);
            ticks
        }
        Axis::Time => ticks(range, step, |value| time_label(value, step)),
    }
}

/// A time in nanoseconds, with the digits needed for a step of `step` nanoseconds.
fn time_label(nanos: f64, step: f64) -> String {
    let (unit, name) = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")]
        .into_iter()
        .find(|(unit, _)| step * 10.0 >= *unit || nanos.abs() >= *unit * 1e3)
        .unwrap_or((1.0, "ns"));
    let decimals = (unit / step).log10().ceil().max(0.0) as usize;
    format!("{:.decimals$} {name}", nanos / unit)
}

/// Rounds `step` up to 1, 2 or 5 times a power of ten.
fn round_up(step: f64) -> f64 {
    let decade = 10_f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * decade >= step * (1.0 - 1e-9)).unwrap_or(10.0);
    factor * decade
}

fn ticks(range: &Range<f64>, step: f64, label: impl Fn(f64) -> String) -> Vec<Tick> {
    let first = (range.start / step).ceil().max(0.0);
    let places = (0..MOST).map(|index| (first + index as f64) * step);
    places.take_while(|value| *value <= range.end).map(|value| Tick { value, label: label(value) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn bytes_stand_at_round_binary_sizes() {
        let gib = f64::from(1 << 30);
        assert_eq!(labels(&byte_ticks(&(0.0..3.5 * gib), 0.6 * gib)), ["0", "1 GiB", "2 GiB", "3 GiB"]);
        assert_eq!(labels(&byte_ticks(&(0.0..1.2 * gib), 0.4 * gib)), ["0", "0.5 GiB", "1.0 GiB"]);
        assert_eq!(
            labels(&byte_ticks(&(0.9 * gib..1.0 * gib), 0.02 * gib)),
            ["928 MiB", "960 MiB", "992 MiB", "1,024 MiB"]
        );
        assert_eq!(
            labels(&byte_ticks(&(0.0..2.2 * gib), 0.1 * gib)),
            ["0", "0.5 GiB", "1.0 GiB", "1.5 GiB", "2.0 GiB"],
            "never eighths"
        );
        assert_eq!(labels(&byte_ticks(&(0.0..0.3 * gib), 0.1 * gib)), ["0", "128 MiB", "256 MiB"]);
        let deep = 4.0 * gib..4.0 * gib + 1500.0;
        assert_eq!(labels(&byte_ticks(&deep, 500.0)), ["4194304.0 KiB", "4194304.5 KiB", "4194305.0 KiB"]);
        assert_eq!(labels(&byte_ticks(&(100.0..140.0), 9.0)), ["112 B", "128 B"]);
    }

    #[test]
    fn events_and_times_stand_at_ones_twos_and_fives() {
        assert_eq!(
            labels(&across_ticks(Axis::Event, &(0.0..4200.0), 900.0, 0)),
            ["0", "1,000", "2,000", "3,000", "4,000"]
        );
        assert_eq!(labels(&across_ticks(Axis::Event, &(10.2..12.9), 0.1, 0)), ["9", "10", "11"]);
        let places: Vec<f64> =
            across_ticks(Axis::Event, &(10.2..12.9), 0.1, 0).into_iter().map(|tick| tick.value).collect();
        assert_eq!(places, [10.5, 11.5, 12.5], "event 9 ends in the state of moment 10, whose middle is 10.5");
        assert_eq!(labels(&across_ticks(Axis::Time, &(0.0..1.1e9), 4e8, 0)), ["0.0 s", "0.5 s", "1.0 s"]);
        assert_eq!(labels(&across_ticks(Axis::Time, &(2e6..3.5e6), 3e5, 0)), ["2.0 ms", "2.5 ms", "3.0 ms", "3.5 ms"]);
        assert_eq!(labels(&across_ticks(Axis::Time, &(0.0..900.0), 250.0, 0)), ["0.0 µs", "0.5 µs"]);
    }
}
