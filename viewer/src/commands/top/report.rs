//! Prints the view of `highwater top` once, as text, if standard output is not a terminal.

use highwater_app::figures::moment::total_name;
use highwater_app::figures::ranks::capitalized;
use highwater_app::report::{Column, Table};
use highwater_snapshots::{count_of, format_bytes};

use super::View;
use super::answer::{Detail, GroupRow, RecordingLine};
use super::draw::{stage_text, state_text};
use crate::output::{Failure, Page, Status};

const MAX_ROWS: usize = 20;

/// Prints all recordings: if there are several, a list, and then each one.
pub(super) fn print(view: &mut View, page: &mut Page<'_>) -> Result<Status, Failure> {
    let choice = view.choice;
    for row in 0..view.watched.len() {
        let answer = view.computed.answer(&mut view.watched, super::answer::Choice { row, ..choice });
        if row == 0 && answer.recordings.len() > 1 {
            print_list(&answer.recordings, page)?;
            page.gap()?;
        }
        if let Some(detail) = &answer.detail {
            print_detail(detail, choice, page)?;
        }
        if row + 1 < view.watched.len() {
            page.gap()?;
        }
    }
    if view.watched.is_empty() {
        page.line("No recording yet.")?;
    }
    Ok(Status::Fine)
}

fn print_list(lines: &[RecordingLine], page: &mut Page<'_>) -> Result<(), Failure> {
    let columns = [
        Column::text("recording", "recording", |row: usize| lines[row].name.clone()),
        Column::number("rank", "rank", |row| lines[row].rank),
        Column::bytes("now_bytes", "now", |row| lines[row].now),
        Column::bytes("peak_bytes", "peak", |row| lines[row].peak.bytes),
        Column::number("step", "step", |row| lines[row].stage.step),
        Column::text("state", "state", |row| state_text(&lines[row].state)),
    ];
    Ok(page.table(&Table::new(lines.len(), columns))?)
}

fn print_detail(detail: &Detail, choice: super::answer::Choice, page: &mut Page<'_>) -> Result<(), Failure> {
    let peak = detail.peaks[choice.metric as usize];
    let stage = if detail.has_stages { format!(" in {}", stage_text(&peak.stage)) } else { String::new() };
    let (total, now) = (total_name(choice.metric), format_bytes(detail.totals.get(choice.metric)));
    page.headline(&format!("{}: {now} {total} now, {} at the peak{stage}.", detail.name, format_bytes(peak.bytes)))?;
    page.line(&format!("{}, {}.", capitalized(&state_text(&detail.state)), count_of(detail.events, "event")))?;
    for note in &detail.notes {
        page.warning(note)?;
    }
    page.gap()?;
    let [categories, groups] = &detail.groups;
    let of = [(highwater_analysis::GroupKey::Category, categories), (choice.key, groups)];
    let once = if choice.key == highwater_analysis::GroupKey::Category { 1 } else { 0 };
    for (key, groups) in &of[once..] {
        let rows: Vec<GroupRow> = groups.at_most(MAX_ROWS);
        let columns = [
            Column::text("key", key.name(), |row: usize| rows[row].label.clone()).cut(),
            Column::bytes("peak_bytes", "at peak", |row| rows[row].peak),
            Column::bytes("now_bytes", "now", |row| rows[row].now),
        ];
        page.table(&Table::new(rows.len(), columns))?;
        page.gap()?;
    }
    let steps: Vec<_> = detail.steps.iter().rev().take(MAX_ROWS).collect();
    if !steps.is_empty() {
        let columns = [
            Column::number("step", "step", |row: usize| steps[row].step),
            Column::bytes("peak_bytes", "peak", |row| steps[row].peak.get(choice.metric)),
            Column::bytes("end_bytes", "end", |row| steps[row].end.get(choice.metric)),
        ];
        page.table(&Table::new(steps.len(), columns))?;
    }
    Ok(())
}
