//! `highwater whatif`: a recording replayed with something changed.

use highwater_app::answers::replays::{NoPrediction, predict};
use highwater_app::figures::predicted::as_condition;

use crate::args::WhatIfArguments;
use crate::cli::input::devices::covered;
use crate::cli::input::recording::{choose_device, spinner};
use crate::cli::input::source::{Input, answer_from};
use crate::cli::output::answer::answer;
use crate::cli::output::outcome::{Failure, Status};
use crate::cli::output::page::Page;
use crate::cli::whatif::WhatIfReport;

/// Reads the recording, replays it, and prints the result.
pub fn run(arguments: &WhatIfArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let json = arguments.source.json;
    answer_from(&arguments.source.file, &arguments.categories, |input| {
        let turning = spinner("replaying");
        let report = report(input, arguments);
        turning.finish_and_clear();
        let report = report?;
        answer(input.facts(), json, page, || report.figures(), |page| report.print(page))
    })
}

/// Computes the report for `arguments`. A capacity applies to all devices, unless one is named.
pub fn report<'a>(input: &'a Input, arguments: &'a WhatIfArguments) -> Result<WhatIfReport<'a>, Failure> {
    let (wanted, trace) = (arguments.device.device, input.facts());
    let devices = match wanted {
        None if arguments.capacity.is_some() => covered(trace, wanted)?,
        _ => vec![choose_device(trace, wanted)?],
    };
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
