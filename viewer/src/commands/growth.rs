//! `highwater growth`: memory that grows from step to step.

mod report;

use std::io;

use clap::Args;
use highwater_analysis::between::Sum;
use highwater_analysis::growth::{FirstStep, growth, how_to_mark_steps};
use highwater_analysis::{
    Between, GroupKey, Growth, GrowthQuery, Leak, Metric, Question, StepRange, StepWindow, short_stack,
};
use highwater_app::figures::leaks::{leak_texts, no_leak_text, reserved_growth};
use highwater_app::figures::moment::peak_facts;
use highwater_app::report::{Column, Fact, Facts, Table, Value};
use highwater_snapshots::{Trace, count_of, format_bytes, format_signed_bytes};

use self::report::{
    Holders, Projection, causes, check_filter, keys, leaks, measured_devices, refused, reserved_facts, reserved_query,
    stacks, steps, steps_table, sum,
};
use crate::args::values::{between_parser, growing_metric_parser, keys_help};
use crate::args::{BlockChoice, DeviceChoice, FilesAndOptions, GroupKeys, Source};
use crate::input::{Input, answer_from, choose_device, on_device};
use crate::output::{Failure, Page, Report, Status, answer, caveats, key_columns, problem_texts, sum_names, trust};

const TOP: usize = 12;

/// Arguments of `highwater growth`.
#[derive(Clone, Debug, Args)]
pub struct GrowthArguments {
    /// The recording, and the output format.
    #[command(flatten)]
    pub source: Source,
    /// First step of the window [default: the second, since the first allocates what later ones reuse]
    #[arg(long, value_name = "N")]
    pub from_step: Option<u32>,
    /// Last step of the window [default: the last whole step]
    #[arg(long, value_name = "M")]
    pub to_step: Option<u32>,
    /// Units to compare: steps, or bursts of work between idle moments, for servers, whose memory falls to a low level
    #[arg(long, value_name = "WHAT", default_value = "steps", value_parser = between_parser())]
    pub between: Between,
    /// The device that the answer is about.
    #[command(flatten)]
    pub device: DeviceChoice,
    /// Memory total: requested, allocated, active or reserved; for reserved memory, segments are counted
    #[arg(long, value_name = "M", default_value = "requested", value_parser = growing_metric_parser())]
    pub metric: Metric,
    /// The keys by which blocks are grouped, outermost first.
    #[arg(help = keys_help(" [default: category,scope; category,frame where the recording names no modules; frame where \
        categories are guessed; of reserved memory pool,frame]"))]
    #[arg(long, value_name = "KEYS")]
    pub by: Option<GroupKeys>,
    /// Number of groups to list, the largest growth first; the others are summed up
    #[arg(long, value_name = "K", default_value_t = TOP)]
    pub top: usize,
    /// The blocks that count; all by default.
    #[command(flatten)]
    pub blocks: BlockChoice,
}

impl GrowthArguments {
    pub(crate) fn given(&self) -> FilesAndOptions {
        let given =
            FilesAndOptions::of(&self.source.file).with("from-step", self.from_step).with("to-step", self.to_step);
        let between = Some(self.between).filter(|between| *between != Between::default());
        let given = given.with("between", between.map(Between::name));
        let given = given.with("device", self.device.device).metric(self.metric);
        given.blocks(&self.blocks)
    }
}

pub(crate) fn run(arguments: &GrowthArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    answer_from(&arguments.source.file, &arguments.blocks.categories, |input| {
        let report = GrowthReport::of(input, arguments)?;
        answer(input.facts(), arguments.source.form, page, &report)
    })
}

/// The report of `highwater growth`.
#[derive(Debug)]
pub struct GrowthReport<'a> {
    trace: &'a Trace,
    arguments: &'a GrowthArguments,
    keys: Vec<GroupKey>,
    growth: Growth,
    /// The growth on other devices, if no device was requested.
    others: Vec<Growth>,
    /// The growth of reserved memory on the same devices, if the growth of blocks was requested.
    reserved: Vec<Growth>,
    /// The device's memory; `None` if unknown.
    capacity: Option<u64>,
    holders: Holders,
}

impl<'a> GrowthReport<'a> {
    /// Computes the report of a recording.
    pub fn of(input: &'a Input, arguments: &'a GrowthArguments) -> Result<Self, Failure> {
        let trace = input.facts();
        let device = choose_device(trace, arguments.device.device)?;
        let keys = keys(trace, arguments);
        check_filter(arguments)?;
        let devices = measured_devices(device, trace.device_ids(), arguments);
        let GrowthArguments { metric, top, from_step: from, to_step: to, between, .. } = *arguments;
        let asked = GrowthQuery { metric, keys: &keys, top, filter: &arguments.blocks.filter.filter };
        let queries: Vec<GrowthQuery<'_>> = std::iter::once(asked).chain(reserved_query(arguments)).collect();
        let steps = StepRange { from, to, between };
        let found = input.ask(|source, watch| growth(source, &devices, steps, &queries, watch))?;
        let mut found = found.into_iter();
        let (mut devices, reserved) = (found.next().unwrap_or_default(), found.next().unwrap_or_default());
        // Not every device of a server works in bursts.
        if let Some(first) = devices.iter().position(Result::is_ok).filter(|_| arguments.between == Between::Idle) {
            devices.swap(0, first);
        }
        let mut devices = devices.into_iter();
        let growth = devices.next().expect("no device was chosen").map_err(|no| refused(&no, arguments))?;
        // A device without these steps is left out.
        let others = devices.flatten().collect();
        let facts = trace.device_facts(growth.start.device);
        let capacity = facts.map(|facts| facts.capacity_bytes).filter(|bytes| *bytes > 0);
        let reserved = reserved.into_iter().flatten().collect();
        Ok(Self { trace, arguments, keys, growth, others, reserved, capacity, holders: Holders::of(trace) })
    }

    fn projection(&self) -> Option<Projection> {
        let capacity_bytes = self.capacity?;
        let steps_until_full = self.growth.steps_until(capacity_bytes)?;
        // With a filter, nothing can be concluded about the whole device.
        let is_whole = self.arguments.blocks.filter.stated().is_none();
        // Without leaks, the growth is not expected to continue.
        (is_whole && !self.growth.leaks.is_empty()).then_some(Projection {
            capacity_bytes,
            peak_bytes: self.growth.last_peak.bytes,
            steps_until_full,
        })
    }

    /// Returns the growth on the reported device, then on the others.
    fn all(&self) -> impl Iterator<Item = &Growth> {
        std::iter::once(&self.growth).chain(&self.others)
    }

    fn has_steps(&self) -> bool {
        self.growth.step_count() > 0
    }

    fn device_facts<'t>(&'t self, growth: &'t Growth) -> Facts<'t> {
        Facts::new([
            ("device", growth.start.device.0.into()),
            ("growth_bytes", growth.net().into()),
            ("bytes_per_step", (growth.step_count() > 0).then(|| growth.bytes_per_step()).into()),
            ("leaks", leaks(self.trace, &growth.leaks).into()),
            ("reserved", Fact::or_absent(self.reserved_of(growth).map(reserved_facts))),
        ])
    }

    /// Returns the growth of reserved memory on the device of `growth`; `None` if it was not measured, because `growth`
    /// is itself of reserved memory or a filter selects blocks.
    fn reserved_of(&self, growth: &Growth) -> Option<&Growth> {
        self.reserved.iter().find(|reserved| reserved.start.device == growth.start.device)
    }

    fn unit(&self) -> &'static str {
        self.arguments.between.unit()
    }

    fn when(&self) -> String {
        if self.has_steps() { format!("in these {}s", self.unit()) } else { "in the recording".to_owned() }
    }

    fn measures_segments(&self) -> bool {
        self.arguments.metric == Metric::Reserved
    }

    fn print_end(&self, page: &mut Page<'_>) -> io::Result<()> {
        caveats::print(self.trace, page)?;
        page.gap()?.hint(&self.hint())
    }

    /// Returns the verdict on the growth of a device's memory, one sentence per line, starting with its leaks.
    fn verdict(&self, growth: &Growth) -> Vec<String> {
        let device = match self.trace.device_ids().len() {
            0 | 1 => String::new(),
            _ => format!("Device {}: ", growth.start.device.0),
        };
        let leaks = if self.measures_segments() { Vec::new() } else { leak_texts(&growth.leaks, &growth.window) };
        let mut lines: Vec<String> = leaks.into_iter().map(|text| format!("{device}{text}")).collect();
        // The ends of bursts are inferred, so live memory can differ between two idle moments without a leak.
        let has_bursts = self.arguments.between == Between::Idle && growth.step_count() > 1;
        if lines.is_empty() && has_bursts && !self.measures_segments() {
            lines.push(format!("{device}{}", no_leak_text(self.arguments.between)));
        }
        lines.push(format!("{device}{}", self.headline(growth)));
        if self.measures_segments() {
            let of_line = |leak: &Leak| {
                let (line, each) = (&leak.line, format_bytes(leak.bytes_per_step));
                let unit = self.unit();
                format!("{device}{line} reserves segments that are kept in every {unit}, {each} a {unit} on average.")
            };
            lines.extend(growth.leaks.iter().map(of_line));
        }
        // Memory that a verdict on live memory does not cover.
        if let Some(grows) = self.reserved_of(growth).and_then(|reserved| reserved_growth(growth, reserved)) {
            let more = "`growth --metric reserved` shows more";
            lines.push(format!("{device}But reserved memory {grows}. {more}."));
        }
        lines
    }

    fn headline(&self, growth: &Growth) -> String {
        let net = growth.net();
        let which = match self.arguments.blocks.filter.stated() {
            Some(filter) => format!("Live memory in blocks with {filter}"),
            None if self.measures_segments() => "Reserved memory".to_owned(),
            None => "Live memory".to_owned(),
        };
        if self.trace.is_state() {
            return "The recording has no events, so growth is unknown.".to_owned();
        }
        if self.trace.event_count() == 0 {
            return "The recording has no events and no blocks: there is nothing to compare.".to_owned();
        }
        // An incomplete step says nothing about growth.
        if !growth.window.is_whole() {
            return growth.window.reasons().join(" ");
        }
        let size = format_signed_bytes(net);
        let size = size.trim_start_matches(['+', '−']);
        match net {
            1.. if growth.step_count() == 1 && growth.window.first == FirstStep::Only => {
                format!("One whole {} only: a leak cannot be distinguished from first allocations.", self.unit())
            }
            1.. if growth.step_count() > 1 => {
                let unit = self.unit();
                let steps = count_of(growth.step_count() as u64, unit);
                let each = format_bytes(growth.bytes_per_step());
                format!("{which} grows {}: {size} in {steps}, {each} a {unit} on average.", span(&growth.window))
            }
            1.. => format!("{which} grows {}, by {size}.", span(&growth.window)),
            0 => format!("{which} does not grow {}.", span(&growth.window)),
            _ => format!("{which} shrinks {}, by {size}.", span(&growth.window)),
        }
    }

    /// Returns the growth as a sentence whose terms add up exactly.
    fn identity(&self) -> String {
        let balance = &self.growth.balance;
        let [start, end] = [Question::AliveAtA, Question::AliveAtB].map(|of| balance.get(of).bytes);
        let when = self.when();
        let (noun, born, freed, total) = match self.measures_segments() {
            true => {
                ("segment", format!("reserved {when} was not released"), "was released", "Reserved memory".to_owned())
            }
            false => {
                let total = format!("Live memory ({})", self.growth.start.metric);
                ("block", format!("allocated {when} is still live"), "was freed", total)
            }
        };
        let part = |sum: Sum, what: &str| {
            let text = || format!("{} {what} ({})", format_bytes(sum.bytes), count_of(sum.blocks, noun));
            (sum.bytes > 0).then(text)
        };
        let born = part(balance.born, &born);
        let freed = part(balance.freed, &format!("from before {freed}"));
        let parts: Vec<String> = born.into_iter().chain(freed).collect();
        let parts = if parts.is_empty() { String::new() } else { format!("{}. ", parts.join("; ")) };
        format!(
            "{parts}{total}: {} before, {} after, {}.",
            format_bytes(start),
            format_bytes(end),
            format_signed_bytes(self.growth.net()),
        )
    }

    fn print_stacks(&self, page: &mut Page<'_>) -> io::Result<()> {
        if self.keys.contains(&GroupKey::Stack) {
            return Ok(());
        }
        for group in &self.growth.stacks {
            page.gap()?;
            let what = match self.measures_segments() {
                true => format!("{} reserved at", count_of(group.blocks, "segment")),
                false => format!("{} allocated at", count_of(group.blocks, "block")),
            };
            page.line(&format!("{} in {what}", format_bytes(group.bytes)))?;
            for line in short_stack(&self.trace.tables, group.stack) {
                page.source_line(2, &line)?;
            }
        }
        Ok(())
    }

    fn hint(&self) -> String {
        let given = self.arguments.given();
        let balance = &self.growth.balance;
        if self.trace.is_state() {
            return given.next("peak", &[], "to see what is using memory");
        }
        if balance.born.blocks == 0 && balance.freed.blocks == 0 {
            return given.next("phases", &[], "for the memory of each step and phase");
        }
        if self.measures_segments() {
            let options = ["--metric", "reserved", "--at", "end", "--by", "pool,stream,size"];
            let given = given.without("metric");
            return given.next("peak", &options, "for all reserved memory by pool and stream");
        }
        if !self.keys.contains(&GroupKey::Stack) {
            let options = ["--by", "stack"];
            return given.next("growth", &options, "for the call stacks of the blocks that are still live");
        }
        let (from, to) = (self.growth.window.from(), self.growth.window.to());
        // Growth is measured from the end of the step before the window.
        let before = from.checked_sub(1).filter(|_| from != to && self.arguments.between == Between::Steps);
        let Some(before) = before else {
            let options = ["--at", "end", "--by", "frame"];
            return given.next("peak", &options, "for everything that is live at the end");
        };
        let [a, b] = [before, to].map(|step| format!("step-end:{step}"));
        let options = ["--at", &a, "--at-b", &b];
        given.next("diff", &options, "for the ends of two steps side by side")
    }
}

impl Report for GrowthReport<'_> {
    /// Survivors minus freed bytes equals `growth_bytes`, and so does the sum of groups and rest.
    fn facts(&self) -> Facts<'_> {
        let Growth { start, end, balance, .. } = &self.growth;
        let moment = |moment| Value::Map(peak_facts(&self.trace.header, moment)).into();
        let devices: Vec<Facts<'_>> = self.all().map(|growth| self.device_facts(growth)).collect();
        Facts::new([
            ("device", start.device.0.into()),
            ("metric", Value::of(start.metric).into()),
            ("between", self.arguments.between.name().into()),
            ("from_step", self.has_steps().then(|| self.growth.window.from()).into()),
            ("to_step", self.has_steps().then(|| self.growth.window.to()).into()),
            ("steps", self.growth.step_count().into()),
            // Why these steps were chosen, if they were not given.
            ("chosen_because", self.growth.window.reasons().into()),
            ("filter", Fact::or_absent(self.arguments.blocks.filter.stated())),
            ("start", moment(start)),
            ("end", moment(end)),
            ("survivors", sum(balance.born).into()),
            ("freed", sum(balance.freed).into()),
            ("growth_bytes", self.growth.net().into()),
            ("bytes_per_step", self.has_steps().then(|| self.growth.bytes_per_step()).into()),
            ("recurring_bytes", self.growth.recurring.bytes.into()),
            ("leaks", leaks(self.trace, &self.growth.leaks).into()),
            // The change of reserved memory by the reason for which it is kept; the sum is the growth.
            ("causes", Fact::or_absent((!self.growth.causes.is_empty()).then(|| causes(&self.growth.causes)))),
            // The growth of reserved memory, beside that of blocks.
            ("reserved", Fact::or_absent(self.reserved_of(&self.growth).map(reserved_facts))),
            ("devices", devices.into()),
            ("extrapolation", self.projection().as_ref().map(Projection::value).into()),
            ("rows", steps(&self.growth).into()),
            ("groups", self.table().into()),
            ("rest_survivor_bytes", self.growth.rest_survivors.bytes.into()),
            ("rest_freed_bytes", self.growth.rest_freed.bytes.into()),
            ("rest_groups", self.growth.rest_groups.into()),
            ("stacks", stacks(self.trace, &self.growth.stacks).into()),
            // The tensors that the program refers to at the end, by variable.
            ("holders", self.holders.table().into()),
            ("trust", trust(self.trace).into()),
            ("problems", problem_texts(self.trace).into()),
        ])
    }

    fn table(&self) -> Table<'_> {
        let Growth { groups, rest_groups, balance, rest_survivors, rest_freed, .. } = &self.growth;
        let sums = sum_names(*rest_groups);
        let rows = groups.len() + sums.len();
        let of = move |row: usize| match groups.get(row) {
            Some(group) => (group.survivors, group.freed),
            None if row + 1 < rows => (*rest_survivors, *rest_freed),
            None => (balance.born, balance.freed),
        };
        let net = move |row| i128::from(of(row).0.bytes) - i128::from(of(row).1.bytes);
        let [still, each, gone] = match self.measures_segments() {
            true => ["still reserved", "segments", "released from before"],
            false => ["still live", "blocks", "freed from before"],
        };
        let (has_steps, count) = (self.has_steps(), self.growth.step_count());
        let steps =
            move |row: usize| groups.get(row).map_or_else(String::new, |group| format!("{} of {count}", group.steps));
        let least = move |row: usize| {
            let group = groups.get(row).filter(|group| group.is_recurring);
            group.map_or_else(String::new, |group| format_bytes(group.least_bytes))
        };
        let names = groups.iter().map(|group| (&group.key, (&self.trace.tables, group.stack)));
        let mut columns = key_columns(&self.keys, names, &sums);
        columns.extend([
            Column::bytes("survivor_bytes", still, move |row| of(row).0.bytes).in_tables(),
            Column::count("survivor_blocks", each, move |row| of(row).0.blocks).optional().in_tables(),
            Column::bytes("freed_bytes", gone, move |row| of(row).1.bytes).optional().in_tables(),
            Column::nested("survivors", move |row| sum(of(row).0)),
            Column::nested("freed", move |row| sum(of(row).1)),
            Column::difference("growth_bytes", "growth", net),
        ]);
        let [number, fewest] = match self.arguments.between {
            Between::Idle => ["in bursts", "minimum per burst"],
            Between::Steps => ["in steps", "minimum per step"],
        };
        let number = Column::count("steps", number, |row| groups.get(row).map(|group| group.steps));
        let fewest = Column::bytes("least_bytes", fewest, |row| groups.get(row).map(|group| group.least_bytes));
        columns.push(if has_steps { number.shown(steps) } else { number.in_files() });
        columns.push(if has_steps { fewest.shown(least).optional() } else { fewest.in_files() });
        columns
            .push(Column::text("is_recurring", "", |row| groups.get(row).map(|group| group.is_recurring)).in_files());
        Table::new(rows, columns).with_sums(sums.len())
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        let mut devices: Vec<&Growth> = self.all().collect();
        devices.sort_by_key(|growth| growth.leaks.is_empty());
        let verdict: Vec<String> = devices.into_iter().flat_map(|growth| self.verdict(growth)).collect();
        for (at, line) in verdict.iter().enumerate() {
            if at == 0 { page.headline(line)? } else { page.line(line)? }
        }
        if !self.has_steps() && self.trace.event_count() > 0 {
            let how = how_to_mark_steps(self.trace);
            page.line(&format!("The recording has no steps, so growth per step is unknown. Mark them {how}."))?;
        }
        let is_idle = self.arguments.between == Between::Idle;
        let has_few_steps = !self.has_steps() || self.growth.window.first == FirstStep::Only;
        if !is_idle && has_few_steps && self.trace.event_count() > 0 {
            page.line("`--between idle` compares the moments at which the memory of a server falls to a low level.")?;
        }
        if self.growth.balance.born.blocks == 0 && self.growth.balance.freed.blocks == 0 {
            return self.print_end(page);
        }
        page.line(&format!("{}{}", on_device(self.trace, self.growth.start.device), self.identity()))?;
        for cause in &self.growth.causes {
            page.line(&format!("Of this, {}.", cause.text()))?;
        }
        if self.growth.leaks.is_empty() && self.growth.net() > 0 && self.growth.step_count() > 1 {
            match self.measures_segments() {
                true => {
                    let text = format!("No source line reserves a segment that is kept in every {}.", self.unit());
                    page.line(&text)?;
                }
                // Already the first line.
                false if is_idle => {}
                false => page.line(no_leak_text(self.arguments.between))?,
            }
        }
        if let Some(projection) = self.projection() {
            page.line(&projection.text(self.unit()))?;
        }
        for reason in self.growth.window.reasons().iter().filter(|_| self.growth.window.is_whole()) {
            page.line(reason)?;
        }
        if self.has_steps() {
            page.gap()?.table(&steps_table(&self.growth, self.measures_segments()))?;
        }
        page.gap()?;
        let allocated = self.when();
        page.line(&match self.measures_segments() {
            true => format!("Segments reserved {allocated} and not released, by group:"),
            false => format!("Allocated {allocated} and still live, by group:"),
        })?;
        page.table(&self.table())?;
        self.print_stacks(page)?;
        if !self.growth.leaks.is_empty() && !self.holders.is_empty() {
            page.gap()?;
            let kept = "a tensor with a graph also keeps the tensors saved for its backward";
            page.line(&format!(
                "Tensors that the program refers to at the end, apart from its models and optimizers; {kept}:"
            ))?;
            page.table(&self.holders.table())?;
        }
        self.print_end(page)
    }
}

fn span(window: &StepWindow) -> String {
    if window.steps.is_empty() {
        return "from the start of the recording to its end".to_owned();
    }
    let unit = window.between.unit();
    format!("from the start of {unit} {} to the end of {unit} {}", window.from(), window.to())
}
