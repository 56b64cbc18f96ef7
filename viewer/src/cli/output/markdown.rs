//! The report of `check` in Markdown, for a pull request.

use std::fmt::Write as _;
use std::path::Path;

use highwater_analysis::GroupKey;
use highwater_analysis::budget::Differences;
use highwater_app::figures::moment::count_of;
use highwater_snapshots::shown::{MAX_IN_TABLE, MAX_SHOWN, shown};
use highwater_snapshots::units::{format_bytes, format_signed_bytes};

use crate::cli::check::{CheckReport, at_moment, headroom, named};
use crate::cli::input::devices::on_device;

/// Returns `report` as Markdown, with a link to a picture, given by its description and its path.
pub fn markdown(report: &CheckReport<'_>, picture: Option<(&str, &str)>) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "### Memory: {}\n", if report.has_passed() { "passed" } else { "failed" });
    let file = code(&name_of(&report.arguments.source.file));
    let against = report
        .budgets
        .baseline
        .as_ref()
        .map_or_else(String::new, |baseline| format!(" against {}", code(&name_of(baseline))));
    let _ = writeln!(out, "{} {file}{against}.\n", report.verdict());
    push_rules(&mut out, report);
    for outcome in report.broken() {
        let over = format_bytes(outcome.actual_bytes - outcome.limit_bytes);
        let place = report.place(outcome);
        let _ = write!(out, "\n- **{}**: {over} over the limit, {place}{}", outcome.budget, at_moment(&outcome.moment));
        match &outcome.culprit {
            Some(culprit) => out.extend([": ", &escaped(&culprit.text), "."]),
            None => out.push('.'),
        }
    }
    if !report.has_passed() {
        out.push('\n');
    }
    push_differences(&mut out, report);
    if let Some((what, picture)) = picture {
        let _ = writeln!(out, "\n![{what}](<{}>)", picture.replace(['<', '>', '\n'], "_"));
    }
    let warnings = report.warnings().into_iter().chain(report.trace.trust_sentences());
    for (position, warning) in warnings.enumerate() {
        let _ = writeln!(out, "{}> {}  ", if position == 0 { "\n" } else { "" }, escaped(&warning));
    }
    out
}

fn push_rules(out: &mut String, report: &CheckReport<'_>) {
    let has_baseline = report.budgets.baseline.is_some();
    let (title, line) = if has_baseline { (" baseline |", "--:|") } else { ("", "") };
    let (device, device_line) = if report.has_devices() { (" device |", "--:|") } else { ("", "") };
    let _ = writeln!(out, "| |{device} rule | what | limit | actual | headroom |{title}");
    let _ = writeln!(out, "|---|{device_line}---|---|--:|--:|--:|{line}");
    for outcome in &report.outcomes {
        let mark = report.mark(outcome);
        let mark = if mark == "met" { mark.to_owned() } else { format!("**{mark}**") };
        let device = if report.has_devices() { format!(" {} |", outcome.moment.device.0) } else { String::new() };
        let (limit, actual) = (format_bytes(outcome.limit_bytes), format_bytes(outcome.actual_bytes));
        let what = outcome.budget.subject(report.budgets.metric);
        let _ = write!(
            out,
            "| {mark} |{device} `{}` | {what} | {limit} | {actual} | {} |",
            outcome.budget,
            headroom(outcome)
        );
        if has_baseline {
            let _ = write!(out, " {} |", outcome.baseline_bytes.map_or_else(|| "-".to_owned(), format_bytes));
        }
        out.push('\n');
    }
}

fn push_differences(out: &mut String, report: &CheckReport<'_>) {
    for (device, differences) in report.told_differences() {
        let on = on_device(report.trace, *device);
        let _ = writeln!(out, "\n{on}What makes the difference to the baseline at the peak:\n");
        push_difference(out, report.keys[1], differences);
    }
}

fn push_difference(out: &mut String, key: GroupKey, differences: &Differences) {
    let place = if key == GroupKey::Scope { "scope" } else { "line of code" };
    let _ = writeln!(out, "| category | {place} | baseline | now | difference |\n|---|---|--:|--:|--:|");
    let mut row = |category: &str, place: &str, [before, now]: [u64; 2]| {
        let delta = format_signed_bytes(i128::from(now) - i128::from(before));
        let (before, now) = (format_bytes(before), format_bytes(now));
        let _ = writeln!(out, "| {category} | {place} | {before} | {now} | {delta} |");
    };
    for group in &differences.rows {
        let names = named(group);
        let part = |at: usize| names.get(at).map_or_else(String::new, |name| code(name));
        row(&part(0), &part(1), [group.a_bytes, group.b_bytes]);
    }
    if differences.rest_groups > 0 {
        row(&count_of(differences.rest_groups, "more group"), "", differences.rest_bytes);
    }
    row("total", "", differences.bytes);
}

/// Returns a file's name without its folders, which are a CI runner's and carry no information.
fn name_of(file: &Path) -> String {
    file.file_name().map_or_else(|| file.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// Formats a name as code, in a table or outside. Names come from files: characters that would end the cell, the code
/// or the line are removed.
fn code(name: &str) -> String {
    format!("`{}`", shown(name, MAX_IN_TABLE).replace('`', "'").replace('|', "\\|"))
}

/// Escapes a sentence that contains names as code, so that its other characters have no meaning in Markdown.
fn escaped(text: &str) -> String {
    let part = |(position, part): (usize, &str)| match position % 2 {
        0 => shown(part, MAX_SHOWN).replace('<', "&lt;"),
        _ => code(part),
    };
    text.split('`').enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_files_cannot_end_a_cell_or_begin_markup() {
        assert_eq!(code("a|b`c\nd"), "`a\\|b'c\u{fffd}d`");
        assert_eq!(escaped("activations of scope `a|b` <b>grew</b>"), "activations of scope `a\\|b` &lt;b>grew&lt;/b>");
        assert_eq!(name_of(Path::new("/home/runner/step.snap")), "step.snap");
    }
}
