//! Test helpers: a small recording, and the output of a command for it.

use std::path::Path;

use clap::Parser as _;
use highwater::{
    Arguments, Budgets, CheckReport, Command, DiffReport, EventsListing, ExplainReport, Failure, Form, GrowthReport,
    InfoReport, Input, OomReport, Page, PeakReport, PhasesReport, Report as _, VerifyReport,
};
use highwater_analysis::Source;
use highwater_notation::trace_from_text;
use highwater_pytorch::open::{FileFormat, FileKind};
use highwater_snapshots::trace::{DeviceFacts, Header};
use highwater_snapshots::{DeviceId, Trace};
use serde_json::Value;

/// One step and a half of a net with one layer; the peak is in the optimizer.
const STEP: &str = "
baseline w 4096/4096 parameter @layer
baseline_segment 0x0 2097152
step 0
phase forward
alloc x 1000/1024 input < load < main
alloc a 3000/3072 activation #linear @layer < forward < train < main
phase backward
alloc g 4096 gradient #linear @layer < backward < train < main
free a
phase optimizer
segment_alloc 0x200000 2097152
alloc m 8192 optimizer_state @layer < step < train < main
alloc t 4096 temporary < step < train < main
free t
free x
phase zero_grad
free g
step 1
mark half of a step
alloc x2 1000/1024 input stream=3
";

/// [`STEP`] with all that a recorder knows beside events.
pub(crate) fn trace() -> Trace {
    trace_from_text(STEP).unwrap().edited(|trace| {
        trace.header = Header {
            recorder: "highwater 0.1.0".into(),
            program: "train".into(),
            host: "box".into(),
            pid: 42,
            rank: Some(1),
            world_size: Some(8),
            started_unix_us: 1_767_225_600_000_000,
            clock: "monotonic".into(),
            level: "stacks".into(),
            ..Header::default()
        };
        trace.devices = vec![DeviceFacts {
            device: DeviceId(0),
            name: "accounting".into(),
            capacity_bytes: 8 << 20,
            driver: "meta".into(),
            settings: vec![("expandable_segments".into(), "False".into())],
        }];
    })
}

/// The recording that is compared with [`trace`]: its layer is twice as wide, and its optimizer has no temporary.
pub(crate) fn other_trace() -> Trace {
    let text = STEP
        .replace("alloc a 3000/3072", "alloc a 6000/6144")
        .replace("alloc t 4096 temporary < step < train < main\n", "")
        .replace("free t\n", "")
        .replace("< step < train", "< step < wrapped < train");
    trace_from_text(&text).unwrap().edited(|other| {
        other.header = Header { program: "train --wide".into(), ..trace().header.clone() };
        other.devices = trace().devices.clone();
    })
}

/// What the command `words` prints of `trace`; a second file is [`other_trace`].
pub(crate) fn answer(trace: Trace, words: &str) -> Result<String, Failure> {
    answer_on(trace, words, None)
}

/// The same on a terminal of 100 columns.
#[cfg(feature = "engine")]
pub(crate) fn answer_on_terminal(trace: Trace, words: &str) -> Result<String, Failure> {
    answer_on(trace, words, Some(100))
}

fn answer_on(trace: Trace, words: &str, width: Option<usize>) -> Result<String, Failure> {
    let words = shell_words(words);
    let arguments = Arguments::try_parse_from(["highwater".to_owned()].into_iter().chain(words)).expect("good usage");
    let format = FileFormat { kind: FileKind::Snap, is_gzipped: false };
    let input_of = |trace| Input::of(Source::in_memory(trace), format, Path::new("step.snap"));
    let input = input_of(trace);
    let mut out = Vec::new();
    let page = &mut match width {
        Some(width) => Page::of_width(&mut out, width),
        None => Page::plain(&mut out),
    };
    match arguments.command.expect("a command") {
        Command::Info(arguments) => {
            let input = input.counting(&arguments.blocks.filter.filter);
            let report = InfoReport::of(&input, &arguments)?;
            report.write(arguments.source.form, page)?;
        }
        Command::Peak(arguments) => {
            let report = PeakReport::of(&input, &arguments)?;
            report.write(arguments.source.form, page)?;
        }
        Command::Phases(arguments) => {
            let input = input.counting(&arguments.blocks.filter.filter);
            let report = PhasesReport::of(&input, &arguments)?;
            report.write(arguments.source.form, page)?;
        }
        Command::Explain(arguments) => {
            let report = ExplainReport::of(&input, &arguments)?;
            report.write(arguments.source.form, page)?;
        }
        Command::Diff(arguments) => {
            let other = arguments.b.is_some().then(|| input_of(other_trace()));
            let report = DiffReport::of([&input, other.as_ref().unwrap_or(&input)], &arguments)?;
            report.write(arguments.form, page)?;
        }
        Command::Growth(arguments) => {
            let report = GrowthReport::of(&input, &arguments)?;
            report.write(arguments.source.form, page)?;
        }
        Command::Oom(arguments) => {
            let report = OomReport::of(&input, &arguments)?;
            report.write(arguments.source.form, page)?;
        }
        Command::WhatIf(arguments) => {
            let report = highwater::whatif::report(&input, &arguments)?;
            report.write(arguments.source.form, page)?;
        }
        Command::Check(arguments) => {
            let budgets = Budgets::of(&arguments)?;
            let other = budgets.baseline.is_some().then(|| input_of(other_trace()));
            let report = CheckReport::of(&input, other.as_ref(), &budgets, &arguments)?;
            report.write(arguments.source.form, page)?;
            if arguments.github {
                report.print_github(page)?;
            }
        }
        Command::Events(arguments) => {
            let listing = EventsListing::of(&input, &arguments)?;
            match arguments.source.form {
                Form { json: true, .. } => listing.write_json(page)?,
                Form { csv: true, .. } => listing.write_csv(page)?,
                _ => listing.print(page)?,
            }
        }
        Command::Verify(arguments) => {
            let report = VerifyReport::of(&input, &arguments)?;
            report.write(arguments.source.form(), page)?;
        }
        Command::Convert(_) => panic!("converting is tested with the binary"),
        Command::Join(_) => panic!("joining is tested with the binary"),
        Command::Symbolize(_) => panic!("looking symbols up is tested with the binary"),
        Command::Render(_) => panic!("drawing is tested with the binary"),
        Command::Record(_) => panic!("recording is tested with the engine"),
        Command::Plan(_) => panic!("plans are tested with the binary"),
        Command::Serve(_) => panic!("pages are served by the binary"),
        Command::Run(_) | Command::Attach(_) | Command::Simulate(_) => {
            panic!("programs are run by the binary")
        }
        Command::Mcp(_) => panic!("an assistant asks the binary"),
        Command::Completions(_) | Command::Skill(_) | Command::Top(_) => panic!("this is printed by the binary"),
    }
    Ok(String::from_utf8(out).unwrap())
}

/// Words between spaces, with what stands in single quotes kept together.
pub(crate) fn shell_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (position, part) in text.split('\'').enumerate() {
        match position % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// The object that the command `words` prints of `trace`.
pub(crate) fn json(trace: Trace, words: &str) -> Value {
    serde_json::from_str(&answer(trace, words).unwrap()).unwrap()
}

/// A device of 70 MiB on which a request of 20 MiB fails, though 24 MiB are free: and once more after that.
pub(super) fn crowded() -> Trace {
    let alloc = |name| format!("alloc {name} 8388608 activation #op_{name} @net.{name} < op_{name} < forward < main\n");
    let mut text = "step 0\nphase forward\nsegment_alloc 0x0 67108864\n".to_owned();
    text.extend("abcdefgh".chars().map(alloc));
    text += "free a\nfree d\nfree g\noom 20971520 free=6291456 #matmul @net.fc < matmul < forward < main\n\
             oom 20971520 free=6291456\n";
    trace_from_text(&text).unwrap().edited(|trace| {
        for row in 0..trace.blocks.len() {
            trace.blocks.address[row] = row as u64 * 8_388_608;
        }
        trace.devices = vec![DeviceFacts { capacity_bytes: 70 << 20, ..DeviceFacts::default() }];
    })
}
