//! Groups, phases, totals and settings of both sides as tables.

use eframe::egui::Color32;
use highwater_analysis::diff::Change;
use highwater_analysis::{Comparison, Diff, DiffGroup, GroupKey, MatchKind, PhasePair};
use highwater_snapshots::{Category, count_of, format_bytes};

use crate::figures::moment::total_name;
use crate::gui::views::sheet::{Heading, Sheet};
use crate::gui::widgets::theme;
use crate::report::{Unit, Value};

const fn text(name: &'static str, width: f32) -> Heading {
    Heading::new(Unit::Text, name, "", width)
}

const fn number(name: &'static str, tooltip: &'static str) -> Heading {
    Heading::new(Unit::Bytes, name, tooltip, 96.0)
}

const fn difference(tooltip: &'static str) -> Heading {
    Heading { has_bars: true, ..Heading::new(Unit::Difference, "B − A", tooltip, theme::DIFFERENCE_WIDTH) }
}

const STATE: Heading = Heading { swatch: Some(colour_of_change), ..text("state", 104.0) };
const A: Heading = number("A", "The bytes in A.");
const B: Heading = number("B", "The bytes in B.");
const DELTA: Heading = difference("B minus A; the rows add up to the total difference.");

const PEAK_A: Heading = number("A's peak", "The peak in A.");
const PEAK_B: Heading = number("B's peak", "The peak in B.");
const APART: Heading = difference("The peak in B minus the peak in A.");

fn colour_of_change(name: &str) -> Option<Color32> {
    Change::ALL.iter().find(|change| change.name() == name).map(|change| theme::change(*change))
}

fn colour_of_category(name: &str) -> Option<Color32> {
    Category::from_name(name).map(theme::category)
}

/// The groups by `keys`, then one row for the groups not listed. `stacks` has each group's stack on one line, if stacks
/// are a key; `leak` is the name for blocks of unknown category, if they are leaked.
pub(super) fn of_groups(diff: &Diff, keys: &[GroupKey], stacks: &[String], leak: Option<&str>) -> Sheet {
    let has_loose = diff.groups.iter().any(|group| group.match_kind != MatchKind::Equal);
    let swatch = |key: &GroupKey| (*key == GroupKey::Category).then_some(colour_of_category as fn(&str) -> _);
    let of_key = |key: &GroupKey| Heading { swatch: swatch(key), ..text(key.name(), 0.0) };
    let mut columns: Vec<Heading> = keys.iter().map(of_key).collect();
    columns.extend([STATE, A, B, DELTA]);
    columns.extend(has_loose.then_some(text("matched", 108.0)));
    let row = |(row, group): (usize, &DiffGroup)| {
        // A stack has many lines, a row only one.
        let name = |(key, value): (&GroupKey, &String)| match stacks.get(row) {
            Some(stack) if *key == GroupKey::Stack && !stack.is_empty() => Value::Text(stack.clone()),
            _ if *key == GroupKey::Category && value == Category::Unknown.name() => {
                Value::Text(leak.unwrap_or(value).to_owned())
            }
            _ => Value::Text(value.clone()),
        };
        let mut cells: Vec<Value> = keys.iter().zip(&group.key).map(name).collect();
        cells.push(group.change().name().into());
        cells.extend([group.bytes[0].into(), group.bytes[1].into(), group.delta().into()]);
        let matched = if group.match_kind == MatchKind::Equal { "" } else { group.match_kind.name() };
        cells.extend(has_loose.then(|| Value::Text(matched.to_owned())));
        cells
    };
    let mut rows: Vec<Vec<Value>> = diff.groups.iter().enumerate().map(row).collect();
    let rest = (diff.rest_groups > 0).then(|| (count_of(diff.rest_groups, "more group"), diff.rest_bytes));
    if let Some((name, [a, b])) = &rest {
        let mut cells = vec![Value::Text(String::new()); keys.len() + 1];
        cells[0] = Value::Text(name.clone());
        cells.extend([(*a).into(), (*b).into(), (i128::from(*b) - i128::from(*a)).into()]);
        cells.extend(has_loose.then(|| Value::Text(String::new())));
        rows.push(cells);
    }
    let names: Vec<&str> = keys.iter().map(|key| key.name()).collect();
    let [a, b] = diff.bytes.map(format_bytes);
    let lead = vec![format!("By {}: rows sum to {a} at A, {b} at B", names.join(" and "))];
    Sheet { sums: usize::from(rest.is_some()), lead, ..Sheet::of_rows("Groups", columns, rows) }
}

pub(super) fn of_phases(comparison: &Comparison) -> Sheet {
    let row = |pair: &PhasePair| {
        let peaks = [pair.a, pair.b].map(|side| side.map(|side| side.peak_bytes));
        let change = Change::of(peaks.map(|peak| peak.unwrap_or(0)), peaks.map(|peak| u64::from(peak.is_some())));
        vec![
            Value::Text(pair.steps().unwrap_or_else(|| "-".to_owned())),
            Value::Text(pair.phase().map_or_else(String::new, |phase| phase.to_string())),
            change.name().into(),
            peaks[0].into(),
            peaks[1].into(),
            pair.delta().into(),
        ]
    };
    let columns = vec![text("step", 90.0), text("phase", 0.0), STATE, PEAK_A, PEAK_B, APART];
    Sheet::of_rows("Phases", columns, comparison.phases.iter().map(row))
}

pub(super) fn of_totals(comparison: &Comparison) -> Sheet {
    let totals = comparison.totals.iter().map(|(metric, [a, b])| {
        vec![
            Value::Text(total_name(*metric)),
            Change::of([*a, *b], [1, 1]).name().into(),
            (*a).into(),
            (*b).into(),
            (i128::from(*b) - i128::from(*a)).into(),
        ]
    });
    let columns = vec![text("total", 0.0), STATE, PEAK_A, PEAK_B, APART];
    Sheet::of_rows("Totals", columns, totals)
}

/// Those that differ come first.
pub(super) fn of_settings(comparison: &Comparison) -> Sheet {
    let settings = &comparison.settings;
    let (differing, same): (Vec<_>, Vec<_>) = settings.iter().partition(|setting| setting.differs());
    let rows = differing.into_iter().chain(same).map(|setting| {
        let state = if setting.differs() { "differs" } else { "same" };
        vec![
            Value::Text(setting.name.clone()),
            Value::Text(state.to_owned()),
            setting.a.clone().into(),
            setting.b.clone().into(),
        ]
    });
    let columns = vec![text("setting", 200.0), text("state", 104.0), text("in A", 0.0), text("in B", 0.0)];
    Sheet::of_rows("Settings", columns, rows)
}
