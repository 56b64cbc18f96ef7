//! `highwater whatif`: replays a recording with changes to the allocator, the device or blocks.

mod rerun;
pub mod report;

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use highwater_analysis::Filter;
use highwater_app::answers::prediction::{Change, SizePart, in_words};
use highwater_app::answers::replays::{NoPrediction, predict};
use highwater_app::figures::predicted::as_condition;
use highwater_app::files::destination::Destination;
use highwater_snapshots::{DeviceId, ScopePattern, format_exact_bytes, parse_size};

use self::report::WhatIfReport;
use crate::args::{CategoryChoice, DeviceChoice, FilesAndOptions, Source, Where};
use crate::input::{Input, answer_or_whole, choose_device, covered, with_spinner};
use crate::output::{Failure, Page, Status, answer};

/// A factor and the scaled blocks, such as `1/2:category=activation`.
#[derive(Clone, Debug)]
pub struct Scaled {
    /// The text as entered, for the report.
    pub text: String,
    /// The factor by which each block's size is multiplied.
    pub part: SizePart,
    /// The blocks that are scaled.
    pub filter: Filter,
}

impl FromStr for Scaled {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = text.split_once(':').filter(|(_, filter)| !filter.trim().is_empty());
        let (part, filter) = named.ok_or_else(|| format!("'{text}' names no blocks: write 1/2:category=activation"))?;
        Ok(Self { text: text.to_owned(), part: part.parse()?, filter: filter.parse()? })
    }
}

/// Arguments of `highwater whatif`.
#[derive(Clone, Debug, Args)]
pub struct WhatIfArguments {
    /// The recording, and the output format.
    #[command(flatten)]
    pub source: Source,
    /// The device to replay.
    #[command(flatten)]
    pub device: DeviceChoice,
    /// Allocator settings as in PYTORCH_CUDA_ALLOC_CONF, which override the recorded settings; start with 'default,' to
    /// override the defaults instead: default,expandable_segments:True
    #[arg(long, value_name = "CONF")]
    pub alloc_conf: Option<String>,
    /// Device memory, such as 24GiB: whether the run fits, on all devices unless --device names one
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub capacity: Option<u64>,
    /// Leave out the blocks that match FILTER, in the language of --where; repeatable
    #[arg(long, value_name = "FILTER", value_parser = Where::with_condition)]
    pub without: Vec<Where>,
    /// Free the blocks that match FILTER right after their last use; needs a recording with uses (record --uses)
    #[arg(long, value_name = "FILTER", value_parser = Where::with_condition)]
    pub until_last_use: Vec<Where>,
    /// Scale the size of the blocks that match FILTER: 1/2:category=activation for bf16 in place of f32; repeatable
    #[arg(long, value_name = "PART:FILTER")]
    pub scale: Vec<Scaled>,
    /// Recompute the modules whose paths match PATTERN in backward (activation checkpointing): layers.3, layers.*.mlp
    /// or layers.{0-9}; repeatable
    #[arg(long, value_name = "PATTERN")]
    pub checkpoint: Vec<ScopePattern>,
    /// Shard the optimizer state, and the temporaries of the optimizer step, over --ranks (ZeRO stage 1);
    /// without padding and communication buffers
    #[arg(long, value_name = "STAGE", value_parser = clap::value_parser!(u8).range(1..=1), requires = "ranks")]
    pub zero: Option<u8>,
    /// Number of ranks for --zero
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "zero")]
    pub ranks: Option<u32>,
    /// Write the changed recording to FILE (.snap, .pickle or .json)
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The source of categories that were not recorded.
    #[command(flatten)]
    pub categories: CategoryChoice,
}

/// The conditions for the memory that ZeRO stage 1 shards across ranks.
const SHARDED: [&str; 2] = ["category=optimizer_state", "phase=optimizer category=temporary"];

impl WhatIfArguments {
    /// The share of the optimizer's memory that remains on each rank.
    fn sharded(&self) -> Option<SizePart> {
        self.zero.and(self.ranks).map(|denominator| SizePart { numerator: 1, denominator })
    }

    pub(crate) fn change(&self, device: DeviceId) -> Change {
        let filters = |all: &[Where]| all.iter().map(|one| one.filter.clone()).collect();
        let sharded = self.sharded().into_iter().flat_map(|part| {
            let parsed = SHARDED.iter().filter_map(|text| text.parse().ok());
            parsed.map(move |filter| (part, filter))
        });
        let scaled = self.scale.iter().map(|one| (one.part, one.filter.clone()));
        Change {
            device,
            alloc_conf: self.alloc_conf.clone(),
            capacity: self.capacity,
            without: filters(&self.without),
            until_last_use: filters(&self.until_last_use),
            scale: scaled.chain(sharded).collect(),
            checkpoint: self.checkpoint.clone(),
            note: None,
        }
    }

    pub(crate) fn change_in_words(&self) -> String {
        let without: Vec<&str> = self.without.iter().map(|one| one.text.as_str()).collect();
        let until_last_use: Vec<&str> = self.until_last_use.iter().map(|one| one.text.as_str()).collect();
        let scale = self.scale.iter().map(|one| (one.part, one.text.split_once(':').map_or("", |(_, rest)| rest)));
        let sharded = self.sharded().map(|part| (part, "the optimizer's memory"));
        let scale: Vec<(SizePart, &str)> = scale.chain(sharded).collect();
        in_words(self.alloc_conf.as_deref(), self.capacity, &self.checkpoint, [&without, &until_last_use], &scale)
    }

    pub(crate) fn given(&self) -> FilesAndOptions {
        let given = FilesAndOptions::of(&self.source.file)
            .with("device", self.device.device)
            .with("alloc-conf", self.alloc_conf.as_ref());
        let given = given.with("capacity", self.capacity.map(format_exact_bytes)).filters("without", &self.without);
        let given = given.filters("until-last-use", &self.until_last_use);
        let given = self.scale.iter().fold(given, |given, scaled| given.with("scale", Some(&scaled.text)));
        given.categories(&self.categories)
    }
}

/// Reads the recording, replays it, and prints the result.
pub fn run(arguments: &WhatIfArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let (file, choice, form) = (&arguments.source.file, &arguments.categories, arguments.source.form);
    let needs_whole = arguments.change(DeviceId::default()).follows_blocks();
    let open = |is_whole: bool| if is_whole || needs_whole { Input::whole } else { Input::open }(file, choice);
    answer_or_whole(open, |input| {
        let report = with_spinner("replaying", || report(input, arguments))?;
        answer(input.facts(), form, page, &report)
    })
}

/// Computes the report for `arguments`. A capacity applies to all GPUs, or to host memory if there are none, unless a
/// device is requested.
pub fn report<'a>(input: &'a Input, arguments: &'a WhatIfArguments) -> Result<WhatIfReport<'a>, Failure> {
    let (wanted, trace) = (arguments.device.device, input.facts());
    let devices = match wanted {
        None if arguments.capacity.is_some() => covered(trace, wanted)?,
        _ => vec![choose_device(trace, wanted)?],
    };
    if let Some(out) = &arguments.out {
        let kind = Destination::new(out, &arguments.source.file)?.kind;
        if !kind.is_streamed() && input.source.passes().len() > 1 {
            let (out, name) = (out.display(), kind.name());
            let text = format!("--out {out}: a recording of this length cannot be written as {name}: choose .snap");
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
