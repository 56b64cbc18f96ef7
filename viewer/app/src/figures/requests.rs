//! Sentences about failed requests.

use highwater_analysis::frames::user_line;
use highwater_snapshots::Trace;
use highwater_snapshots::tables::SourceLine;
use highwater_snapshots::units::format_bytes;

use crate::answers::oom_analysis::OomAnalysis;

/// `512 MiB requested by matmul of net.fc`, or `512 MiB requested at train.py:12 step` where no operation is known.
pub fn requested(trace: &Trace, case: &OomAnalysis) -> String {
    let stack = trace.events.stack[case.request.event.0 as usize];
    let by = match (case.by(), user_line(&trace.tables, stack)) {
        (by, Some(line)) if by.is_empty() => format!(" at {}", place(trace, &line)),
        (by, _) => by,
    };
    format!("{} requested{by}", format_bytes(case.request.requested))
}

/// `train.py:12 step`: a line of code without the folders of its file.
fn place(trace: &Trace, line: &SourceLine) -> String {
    let [function, file] = [line.function, line.file].map(|text| trace.tables.string(text));
    let file = file.rsplit(['/', '\\']).next().unwrap_or_default();
    if file.is_empty() { function.to_owned() } else { format!("{file}:{} {function}", line.line) }
}
