//! `highwater record`: runs and records a built-in training step of the engine.

mod step_options;

pub use self::step_options::ScenarioArguments;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use clap::Args;
use highwater_analysis::phases::phases;
use highwater_analysis::{DeviceSummary, Metric, PhaseRow};
use highwater_app::example::Example;
use highwater_app::report::{Column, Facts, Field, Rows, Table, Value};
use highwater_engine::scenario::{self, DeviceChoice, Options, ScenarioInfo};
use highwater_snapshots::units::format_flops;
use highwater_snapshots::{count_of, format_bytes, format_count, parse_size};

use self::step_options::{ModelArguments, StepArguments};
use crate::args::{CategoryChoice, FilesAndOptions, Form};
use crate::commands::phases::rows_table;
use crate::input::{Input, answer_from, with_spinner};
use crate::output::{Failure, Page, Report, Status, caveats, peaks_table, peaks_value, problem_texts};

/// Arguments of `highwater record`.
#[derive(Clone, Debug, Args)]
pub struct RecordArguments {
    /// Training step to run; `--list` names them
    #[arg(value_name = "SCENARIO", required_unless_present = "list")]
    pub scenario: Option<String>,
    /// List the scenarios and what each shows
    #[arg(long)]
    pub list: bool,
    /// Device: meta (counts every byte, computes nothing), meta:cuda (also counts what a GPU reserves), cpu, or cuda:N
    ///
    /// cuda:N is an NVIDIA GPU of compute capability 8.0 or later. It needs the driver, and NVRTC and cuBLASLt of CUDA
    /// 12 or 13: if they are not installed, run `pip install nvidia-cuda-nvrtc nvidia-cublas` and set
    /// HIGHWATER_CUDA_PATH to the folders of their libraries.
    #[arg(long, value_name = "meta[:cuda]|cpu|cuda[:N]", default_value = "meta")]
    pub device: DeviceChoice,
    /// File to write [default: SCENARIO.snap]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The options of the training step.
    #[command(flatten)]
    pub step: StepArguments,
    /// Record each use of a block too, to find memory that is no longer used; about doubles the file
    #[arg(long)]
    pub uses: bool,
    /// Record the number of floating-point operations (FLOPs) of each operation, and the bytes that it reads and writes
    #[arg(long)]
    pub costs: bool,
    /// Memory of the device, such as 24GiB; the run ends with an out-of-memory error if it is too small
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub capacity: Option<u64>,
    /// Open the recording in the app afterwards
    #[arg(long)]
    pub open: bool,
    /// The output format.
    #[command(flatten)]
    pub form: Form,
    // Last, since its heading applies to everything after it.
    /// The model and its data.
    #[command(flatten)]
    pub model: ModelArguments,
}

impl RecordArguments {
    pub(crate) fn file(&self) -> PathBuf {
        let default = || PathBuf::from(format!("{}.snap", self.scenario.as_deref().unwrap_or("recording")));
        self.out.clone().unwrap_or_else(default)
    }

    /// Returns the path of the file to open in the app afterwards, if that is requested.
    pub(crate) fn to_open(&self) -> Option<PathBuf> {
        self.open.then(|| self.file())
    }

    pub(crate) fn options(&self) -> Options {
        let options = self.step.options(&self.model);
        Options { device: self.device, capacity: self.capacity, uses: self.uses, costs: self.costs, ..options }
    }
}

const PHASES_SHOWN: usize = 25;

/// The examples offered on the app's start screen. Their pictures are made with `highwater render`.
pub const EXAMPLES: &[Example] = &[
    Example {
        name: "gpt2",
        title: "GPT-2",
        about: "A language model with AdamW: the peak is at the end of forward, and most of it is activations.",
        picture: include_bytes!("record/examples/gpt2.png"),
    },
    Example {
        name: "vit-l-16",
        title: "ViT-L/16",
        about: "The vision transformer of a PyTorch tutorial: the peak is in the optimizer step, not in backward.",
        picture: include_bytes!("record/examples/vit-l-16.png"),
    },
    Example {
        name: "tiny-nerf",
        title: "tiny NeRF",
        about: "Small layers over many points: almost all of the peak is activations kept for backward.",
        picture: include_bytes!("record/examples/tiny-nerf.png"),
    },
];

/// Locked for writing while a built-in step is recorded, and for reading while one is only run. The recorder is global
/// to the process, and the app records and runs steps on several threads.
static TURN: RwLock<()> = RwLock::new(());

/// Waits until no other built-in step is being recorded or run.
pub(crate) fn recording_turn() -> RwLockWriteGuard<'static, ()> {
    TURN.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no built-in step is being recorded.
pub(crate) fn running_turn() -> RwLockReadGuard<'static, ()> {
    TURN.read().unwrap_or_else(PoisonError::into_inner)
}

/// Records two steps of the scenario `name`, with default options otherwise, on the accounting device into `file`.
///
/// # Errors
/// Returns the error as a sentence for the user.
pub fn example(name: &str, file: &Path) -> Result<(), String> {
    let options = Options { steps: 2, ..Options::default() };
    let _turn = recording_turn();
    scenario::record(name, &options, file).map(drop).map_err(|why| format!("cannot record {name}: {why}"))
}

/// Runs the scenario, reads its recording, and prints its memory.
pub fn run(arguments: &RecordArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    if arguments.list {
        ScenarioList(scenario::all()).write(arguments.form, page)?;
        return Ok(Status::Fine);
    }
    let name = arguments.scenario.as_deref().unwrap_or_default();
    let file = arguments.file();
    let report = with_spinner(&format!("recording {name}"), || {
        let _turn = recording_turn();
        scenario::record(name, &arguments.options(), &file)
    });
    let report = report.map_err(|error| Failure::Record(error.to_string()))?;
    let choice = CategoryChoice::default();
    answer_from(&file, &choice, |input| RecordReport::of(name, &file, &report, input))?.write(arguments.form, page)?;
    Ok(if report.oom.is_some() { Status::Unsound } else { Status::Fine })
}

struct ScenarioList(&'static [ScenarioInfo]);

impl ScenarioList {
    fn by_name<V: Into<Field>>(&self, value: impl Fn(&'static ScenarioInfo) -> V) -> Value {
        let values: BTreeMap<_, _> = self.0.iter().map(|info| (info.name, value(info).into())).collect();
        Value::Map(values.into_iter().collect())
    }
}

impl Report for ScenarioList {
    fn facts(&self) -> Facts<'_> {
        let variants = |info: &ScenarioInfo| -> BTreeMap<_, _> {
            info.variants.iter().map(|variant| (variant.name, variant.about)).collect()
        };
        Facts::new([
            ("scenarios", self.by_name(|info| info.about).into()),
            ("options", self.by_name(|info| info.options.to_vec()).into()),
            ("variants", self.by_name(|info| Value::of(variants(info))).into()),
        ])
    }

    fn table(&self) -> Table<'_> {
        let mut rows: Vec<(String, String)> = Vec::new();
        for info in self.0 {
            rows.push((info.name.to_owned(), info.about.to_owned()));
            let variants = info.variants.iter();
            rows.extend(variants.map(|variant| (format!("  --variant {}", variant.name), variant.about.to_owned())));
            rows.push(("  also".to_owned(), info.options.join(" ")));
        }
        let rows: Rows<_> = rows.into_iter().collect();
        let columns = [
            Column::text("name", "name", rows.of(|row| row.0.clone())),
            Column::text("about", "model, and what it shows", rows.of(|row| row.1.clone())).wrapped(),
        ];
        Table::new(rows.count(), columns)
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        page.headline(&format!("{}:", count_of(self.0.len() as u64, "scenario")))?;
        page.gap()?.table(&self.table())?;
        page.gap()?.hint("Next: highwater record NAME   on the accounting device, which needs no GPU and no memory")
    }
}

struct RecordReport<'a> {
    name: &'a str,
    file: &'a Path,
    report: &'a scenario::Report,
    input: Input,
    summary: DeviceSummary,
    phases: Vec<PhaseRow>,
}

impl<'a> RecordReport<'a> {
    fn of(name: &'a str, file: &'a Path, report: &'a scenario::Report, input: &Input) -> Result<Self, Failure> {
        let device = input.facts().main_device();
        let (summary, phases) = input.ask(|source, watch| {
            let summary = DeviceSummary::of(source, device, &mut *watch)?;
            let rows = source.stages(device, Metric::Requested, watch)?;
            Ok((summary, phases(source.facts(), device, Metric::Requested, rows)))
        })?;
        Ok(Self { name, file, report, input: input.clone(), summary, phases })
    }

    /// Returns a table of the first `shown` phases; `None` if the recording has no peak of requested bytes.
    fn phases_table(&self, shown: usize) -> Option<Table<'_>> {
        let peak = self.summary.peak(Metric::Requested)?;
        Some(rows_table(&self.phases, shown, peak, true))
    }
}

impl Report for RecordReport<'_> {
    fn facts(&self) -> Facts<'_> {
        let trace = self.input.facts();
        let oom = self.report.oom.as_ref().map(|oom| {
            Facts::new([("requested_bytes", oom.requested.into()), ("description", oom.description.as_str().into())])
        });
        Facts::new([
            ("file", self.file.into()),
            ("scenario", self.name.into()),
            ("device", self.report.device.to_string().into()),
            ("steps", self.report.steps_done.into()),
            ("step_flops", self.report.step_cost.flops.into()),
            ("step_moved_bytes", self.report.step_cost.bytes.into()),
            ("events", trace.event_count().into()),
            ("losses", self.report.losses.clone().into()),
            ("peaks", peaks_value(&trace.header, &self.summary).into()),
            ("phases", self.phases_table(self.phases.len()).into()),
            ("oom", oom.into()),
            ("problems", problem_texts(trace).into()),
        ])
    }

    fn table(&self) -> Table<'_> {
        self.phases_table(self.phases.len()).unwrap_or_else(|| Table::new(0, []))
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        let Self { name, file, report, input, .. } = self;
        let trace = input.facts();
        if let Some(oom) = &report.oom {
            let during =
                format!("after {} of {name} on {}", count_of(u64::from(report.steps_done), "step"), report.device);
            page.headline(&format!("Out of memory {during}: {} requested.", format_bytes(oom.requested)))?;
            for line in oom.description.lines() {
                page.warning(&format!("  {line}"))?;
            }
            page.gap()?;
        }
        let bytes = std::fs::metadata(file).map_or(0, |facts| facts.len());
        let steps = count_of(u64::from(report.steps_done), "step");
        let events = count_of(trace.event_count(), "event");
        let file_name = file.display();
        let sentence = format!("Recorded {steps} of {name} on {}: {events} in {file_name}", report.device);
        page.headline(&format!("{sentence} ({}).", format_bytes(bytes)))?;
        if let Some([first, .., last]) = report.losses.as_deref() {
            page.line(&format!("The loss went from {first:.4} to {last:.4}."))?;
        }
        if report.steps_done > 0 {
            let [flops, moved] = [format_flops(report.step_cost.flops), format_bytes(report.step_cost.bytes)];
            page.line(&format!("Work per step: {flops}, {moved} read and written."))?;
        }
        page.gap()?.table(&peaks_table(&self.summary, false))?;
        page.gap()?;
        let shown = self.phases.len().min(PHASES_SHOWN);
        if let Some(table) = self.phases_table(shown) {
            page.table(&table)?;
        }
        if shown < self.phases.len() {
            let more = format_count((self.phases.len() - shown) as u64);
            page.line(&format!("  … and {more} more; `highwater phases {file_name}` lists them"))?;
        }
        caveats::print(trace, page)?;
        page.gap()?.hint(&match &report.oom {
            Some(_) => FilesAndOptions::of(file).next("oom", &[], "for the cause of the failure, and possible fixes"),
            None => FilesAndOptions::of(file).next("peak", &[], "to see what is using memory at the peak"),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::commands::{Arguments, Command};

    fn options_of(words: &[String]) -> Options {
        let words = ["highwater", "record", "gpt2"].into_iter().map(str::to_owned).chain(words.iter().cloned());
        let Some(Command::Record(arguments)) = Arguments::try_parse_from(words).unwrap().command else { panic!() };
        arguments.options()
    }

    #[test]
    fn the_words_of_options_give_the_same_options() {
        let all = "--device meta:cuda --batch 4 --layers 3 --dtype bf16 --autocast f16 --lora 8 --adapters f32 --variant x \
                   --checkpoint h.{0-1} --checkpoint h.2.mlp --accumulate 2 --optimizer adamw8bit --learning-rate 0.5 \
                   --weight-decay 0.25 --momentum 0.125 --alloc-conf expandable_segments:True --capacity 7GiB --seed 3 \
                   --fused --optimizer-in-backward --no-recompute";
        let words: Vec<String> = all.split_whitespace().map(str::to_owned).collect();
        let options = options_of(&words);
        assert_eq!(options_of(&options.words()), options);
        let blocks = options_of(&["--checkpoint".to_owned(), "--no-foreach".to_owned()]);
        assert_eq!(options_of(&blocks.words()), blocks);
        assert!(Options::default().words().is_empty());
    }
}
