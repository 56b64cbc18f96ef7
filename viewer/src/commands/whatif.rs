//! `highwater whatif`: a recording replayed with something changed.

mod rerun;
pub mod report;

use highwater_app::answers::replays::{NoPrediction, predict};
use highwater_app::figures::predicted::as_condition;
use highwater_snapshots::DeviceId;

use crate::args::WhatIfArguments;
use crate::commands::whatif::report::WhatIfReport;
use crate::input::devices::covered;
use crate::input::recording::{choose_device, spinner};
use crate::input::source::{Input, answer_or_whole};
use crate::output::answer::answer;
use crate::output::outcome::{Failure, Status};
use crate::output::page::Page;

/// Reads the recording, replays it, and prints the result.
pub fn run(arguments: &WhatIfArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let (file, choice, form) = (&arguments.source.file, &arguments.categories, arguments.source.form);
    // Blocks and modules are followed over all of a recording.
    let needs_whole = arguments.change(DeviceId::default()).changes_blocks();
    let open = |is_whole: bool| if is_whole || needs_whole { Input::whole } else { Input::open }(file, choice);
    answer_or_whole(open, |input| {
        let turning = spinner("replaying");
        let report = report(input, arguments);
        turning.finish_and_clear();
        let report = report?;
        answer(input.facts(), form, page, &report)
    })
}

/// Computes the report for `arguments`. A capacity applies to all devices, unless one is named.
pub fn report<'a>(input: &'a Input, arguments: &'a WhatIfArguments) -> Result<WhatIfReport<'a>, Failure> {
    let (wanted, trace) = (arguments.device.device, input.facts());
    let devices = match wanted {
        None if arguments.capacity.is_some() => covered(trace, wanted)?,
        _ => vec![choose_device(trace, wanted)?],
    };
    if let Some(out) = arguments.out.as_ref().filter(|_| input.source.whole().is_none()) {
        let ending = out.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        if !matches!(ending.as_deref(), Some("snap" | "folded")) {
            let text = format!("--out {}: a recording of this length is written as .snap or .folded", out.display());
            return Err(Failure::Usage(text));
        }
    }
    let note = arguments.out.as_ref().map(|_| {
        let file = arguments.source.file.display();
        format!("not a measurement: {file} {}", as_condition(&arguments.change_in_words()))
    });
    let mut predictions = Vec::with_capacity(devices.len());
    for device in devices {
        let mut change = arguments.change(device);
        change.note.clone_from(&note);
        predictions.push(predict(&input.source, &change).map_err(|why| match why {
            NoPrediction::Refused(why) => Failure::Usage(why),
            NoPrediction::Unreadable(why) => input.unreadable(why),
        })?);
    }
    WhatIfReport::of(trace, arguments, predictions)
}
