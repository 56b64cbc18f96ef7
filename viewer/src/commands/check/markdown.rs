//! The report of `check` in Markdown, for a pull request.

use std::fmt::Write as _;

use highwater_analysis::GroupKey;
use highwater_app::figures::moment::when;
use highwater_app::files::file_name;
use highwater_app::report::code;
use highwater_snapshots::format_bytes;
use highwater_snapshots::shown::{MAX_SHOWN, shown};

use crate::commands::check::report::CheckReport;
use crate::input::on_device;
use crate::output::Report as _;

/// `picture` is the description and the path of a picture to link.
pub(crate) fn markdown(report: &CheckReport<'_>, picture: Option<(&str, &str)>) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "### Memory: {}\n", if report.has_passed() { "passed" } else { "failed" });
    // Its folders are a CI runner's and carry no information.
    let file = code(&file_name(&report.arguments.source.file));
    let against = report
        .budgets
        .baseline
        .as_ref()
        .map_or_else(String::new, |baseline| format!(" against {}", code(&file_name(baseline))));
    let _ = writeln!(out, "{} {file}{against}.\n", report.verdict());
    out.push_str(&report.table().markdown());
    for outcome in report.broken() {
        let over = format_bytes(outcome.actual_bytes - outcome.limit_bytes);
        let place = report.device_prefix(outcome);
        let _ = write!(out, "\n- **{}**: {over} over the limit, {place}{}", outcome.budget, when(&outcome.moment));
        match &outcome.culprit {
            Some(culprit) => out.extend([": ", &escaped(&culprit.text), "."]),
            None => out.push('.'),
        }
    }
    if !report.has_passed() {
        out.push('\n');
    }
    for (device, differences) in report.listed_differences() {
        let on = on_device(report.trace, *device);
        let _ = writeln!(out, "\n{on}Differences from the baseline at the peak:\n");
        let place = if report.keys[1] == GroupKey::Scope { "scope" } else { "line of code" };
        out.push_str(&report.differences_table(differences, place).markdown());
    }
    if let Some((what, picture)) = picture {
        let _ = writeln!(out, "\n![{what}](<{}>)", picture.replace(['<', '>', '\n'], "_"));
    }
    let warnings = report.warnings().into_iter().chain(report.trace.trust_sentences());
    for (position, warning) in warnings.enumerate() {
        let _ = writeln!(out, "{}> {}  ", if position == 0 { "\n" } else { "" }, escaped(&warning));
    }
    out
}

/// Escapes a sentence for Markdown, with the parts between backticks as code.
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
        assert_eq!(escaped("activations of scope `a|b` <b>grew</b>"), "activations of scope `a\\|b` &lt;b>grew&lt;/b>");
    }
}
