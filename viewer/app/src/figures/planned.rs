//! Sentences and figures about a plan, for the command line and the app.

use highwater_snapshots::{count_of, format_bytes, format_count, format_required_bytes};

use crate::answers::plan::{
    Class, Minimum, Plan, PlanLine, Proof, Reach, Search, Setup, TrainingStep, Trial, name, sharded,
};
use crate::report::{Column, Table, Value};

/// A sentence printed if a search for modules reached its work limit.
pub const NOT_OPTIMAL: &str = "The search for modules ended at its limit: a cheaper set may exist.";

/// The beginning of an answer if the recording does not cover everything that the run needs.
const NOT_CONFIRMED: &str = "Cannot be confirmed to fit";

/// The amount of memory into which a training step must fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// The device's memory, in bytes.
    pub bytes: u64,
    /// The part of `bytes` reserved for memory outside of the allocator.
    pub reserve: u64,
}

impl Budget {
    /// Returns the number of bytes that the allocator may reserve.
    pub fn capacity(self) -> u64 {
        self.bytes.saturating_sub(self.reserve)
    }

    /// Formats the budget, such as `24 GiB less 600 MiB`.
    pub fn text(self) -> String {
        match self.reserve {
            0 => format_bytes(self.bytes),
            reserve => format!("{} less {}", format_bytes(self.bytes), format_bytes(reserve)),
        }
    }
}

/// Returns a sentence that states that `bytes` of a budget are in use outside of the allocator; `None` if `bytes` is 0.
pub fn counted_outside(bytes: u64) -> Option<String> {
    let used = format_bytes(bytes);
    (bytes > 0).then(|| format!("Other processes use {used} of the budget, according to the recording's samples."))
}

/// Returns the result of a search for plans as a sentence.
pub fn answer(search: &Search, budget: Budget) -> String {
    match search.plans.first() {
        _ if search.fits_as_is => {
            let free = budget.capacity().saturating_sub(search.as_is.reserved);
            let figures = format!("{}, {} free", peaks(&search.as_is), format_bytes(free));
            fits_with("as it is", &figures, search, budget)
        }
        Some(plan) => fits(&plan.setup, &plan.trial, search, budget),
        None => does_not_fit(search, budget),
    }
}

/// Returns a sentence that states that the step fits with `setup`, with the certainty of `search`.
pub fn fits(setup: &Setup, trial: &Trial, search: &Search, budget: Budget) -> String {
    let figures = format!("{}, {} without the plan", peaks(trial), format_bytes(search.as_is.reserved));
    fits_with(&format!("with {}", name(setup)), &figures, search, budget)
}

fn fits_with(how: &str, figures: &str, search: &Search, budget: Budget) -> String {
    let budget = budget.text();
    match &search.reach {
        Reach::End => format!("Fits in {budget} {how}: {figures}."),
        Reach::FailedRequest => format!(
            "Gets past the request that failed in {budget} {how}; the step may need more. Up to there: {figures}."
        ),
        Reach::Recorded(why) => format!("{NOT_CONFIRMED} in {budget} {how}: {why}. As far as recorded: {figures}."),
    }
}

/// Formats the peaks of a run: first reserved memory, which decides whether it fits.
pub(crate) fn peaks(trial: &Trial) -> String {
    let [reserved, requested] = [trial.reserved, trial.requested].map(format_bytes);
    format!("{reserved} reserved at the peak ({requested} requested)")
}

fn does_not_fit(search: &Search, budget: Budget) -> String {
    let minimum = &search.minimum;
    let requested = format!(
        "{} ({} bytes) requested at the peak{}",
        format_bytes(minimum.requested),
        format_count(minimum.requested),
        up_to(&search.reach)
    );
    // Requested bytes are not informative if they are below the budget but reserved bytes are not.
    let device = minimum.device_bytes.filter(|_| minimum.requested <= budget.capacity());
    let least = match device {
        Some(bytes) => {
            let size = format_required_bytes(bytes.saturating_add(budget.reserve));
            format!("the smallest device found has {size}, including reserved memory, for {requested}")
        }
        None if minimum.is_exact => format!("the minimum is {requested}"),
        None => format!("the minimum found is {requested}"),
    };
    format!("Does not fit in {}: {least}, with {}.", budget.text(), name(&minimum.setup))
}

/// Returns a phrase for the part of the run that figures cover.
pub(crate) fn up_to(reach: &Reach) -> &'static str {
    match reach {
        Reach::End => "",
        Reach::FailedRequest => " up to the request that failed",
        Reach::Recorded(_) => " as far as recorded",
    }
}

/// Returns a sentence with a plan that needs less work, for a step that already fits; `None` if there is none.
pub fn less_work(search: &Search) -> Option<String> {
    let plan = search.best().filter(|_| search.fits_as_is)?;
    let also = match search.reach {
        Reach::End => "It would also fit",
        Reach::FailedRequest => "It would also get past that request",
        Reach::Recorded(_) => "The recorded requests would also fit",
    };
    Some(format!("{also} with less work: {}.", name(&plan.setup)))
}

/// Returns how `plan` was verified, as a sentence.
pub fn proven(proof: Proof, reach: &Reach, plan: &Plan, budget: Budget) -> String {
    let device = format_bytes(budget.capacity());
    let retries = match plan.trial.retries {
        0 => "no cached memory had to be released".to_owned(),
        1 => "all cached memory was released once, which takes time".to_owned(),
        times => format!("all cached memory was released {}, which takes time", count_of(times, "time")),
    };
    match proof {
        Proof::Rerun(steps) => format!(
            "Proven: run again with these changes on a device of {device}, {}; {retries}.",
            count_of(u64::from(steps), "step")
        ),
        Proof::Replayed => {
            let what = match reach {
                Reach::End => "the recording succeeds",
                Reach::FailedRequest | Reach::Recorded(_) => "every recorded request succeeds",
            };
            let with = if plan.setup.size() == 0 { "with nothing changed" } else { "with these changes" };
            format!("Replayed: {with}, {what} on a device of {device}; {retries}.")
        }
    }
}

/// Returns the lowest memory use that was found, as a sentence.
pub fn least(search: &Search) -> String {
    let Minimum { requested, setup, .. } = &search.minimum;
    let up_to = up_to(&search.reach);
    format!("Lowest peak found: {} requested{up_to}, with {}.", format_bytes(*requested), name(setup))
}

/// A phrase that explains why a device may be smaller than the memory reserved on a larger one.
const INCLUDED: &str = "reserved memory included and cached memory released when it is full";

/// Returns a sentence with a device size that suffices for the lowest memory use; `None` if no size is known.
pub fn large_enough(search: &Search, budget: Budget) -> Option<String> {
    let size = format_required_bytes(search.minimum.device_bytes?.saturating_add(budget.reserve));
    let with = if search.minimum.setup.size() == 0 { "As it is," } else { "With these changes" };
    Some(match search.reach {
        Reach::End => format!("{with} it runs on a device of {size}, {INCLUDED}."),
        Reach::FailedRequest => {
            format!("{with} a device of {size}, {INCLUDED}, gets past the request that failed.")
        }
        Reach::Recorded(_) => {
            format!("{with} a device of {size}, {INCLUDED}, is enough for every recorded request.")
        }
    })
}

/// Returns a sentence with the number of ranks over which the optimizer state would have to be sharded; `None` if
/// [`sharded`] returns none. `parts` is the composition of the lowest peak.
pub fn sharding(parts: &[(String, u64)], minimum: &Minimum, budget: Budget) -> Option<String> {
    let (ranks, bytes) = sharded(parts, minimum.requested, budget.capacity())?;
    let bytes = format_bytes(bytes);
    Some(format!("With the optimizer state sharded over {ranks} ranks (ZeRO-1) it would request about {bytes}."))
}

/// Returns the additional work of `plan`, as shares of the unchanged step's FLOPs and moved bytes.
pub fn shares(search: &Search, plan: &Plan) -> [Option<f64>; 2] {
    plan.trial.work.beyond(search.base).shares(search.base)
}

/// Describes the cost of a change of `class`, with the additional shares of FLOPs and moved bytes.
pub fn costs(proof: Proof, class: Class, [flops, moved]: [Option<f64>; 2]) -> String {
    let more = |share: Option<f64>| share.filter(|share| *share >= 0.0005).map(|share| percent(proof, share));
    let work =
        more(flops).map(|text| format!("{text} FLOPs")).or(more(moved).map(|text| format!("{text} memory traffic")));
    match (class, work) {
        (Class::Slower, Some(work)) => work,
        (Class::LessPrecise | Class::OtherTraining, Some(work)) => format!("{}, {work}", class.about()),
        (_, _) => class.about().to_owned(),
    }
}

/// Returns a table of a plan's changes in order, each with its memory use; printed with estimated times if `has_times`.
pub fn changes_table(lines: &[PlanLine], proof: Proof, has_times: bool) -> Table<'_> {
    let trial = |row: usize| &lines[row].trial;
    let times = Column::number("estimated_us", "estimated", |row| lines[row].estimated_us.map(i128::from))
        .shown(|row| lines[row].estimated_us.map_or_else(String::new, time_difference));
    let peak_at = |row: usize| {
        let phase = lines[row].phase.map(|phase| phase.to_string());
        Value::Map(vec![("step", lines[row].step.into()), ("phase", phase.into())])
    };
    let columns = [
        Column::text("change", "change", |row| lines[row].change.clone()).wrapped(),
        Column::text("scopes", "", |row| lines[row].scopes.clone()).in_files(),
        Column::text("class", "costs", |row| Value::of(lines[row].class))
            .shown(move |row| costs(proof, lines[row].class, lines[row].shares)),
        Column::number("flops_share", "", |row| lines[row].shares[0]).in_files(),
        Column::number("moved_share", "", |row| lines[row].shares[1]).in_files(),
        if has_times { times } else { times.in_files() },
        Column::bytes("reserved_bytes", "reserved then", move |row| trial(row).reserved),
        Column::bytes("allocated_bytes", "", move |row| trial(row).allocated).in_files(),
        Column::bytes("peak_bytes", "requested", move |row| trial(row).requested),
        Column::nested("peak_at", peak_at),
        Column::shown_alone("peak in", false, |row| lines[row].step_and_phase()).optional(),
    ];
    Table::new(lines.len(), columns)
}

/// Formats microseconds.
pub fn duration(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..100_000 => format!("{:.1} ms", micros as f64 / 1e3),
        100_000..10_000_000 => format!("{:.0} ms", micros as f64 / 1e3),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}

fn time_difference(micros: i64) -> String {
    let sign = if micros < 0 { '−' } else { '+' };
    format!("about {sign}{}", duration(micros.unsigned_abs()))
}

fn percent(proof: Proof, share: f64) -> String {
    let about = if proof == Proof::Replayed { "about " } else { "" };
    format!("{about}+{:.1} %", share * 100.0)
}

/// Returns the assumptions of the plan `setup` for `step`, one clause each; without a plan, only those of the step.
pub fn assumptions(step: &dyn TrainingStep, setup: Option<&Setup>) -> Vec<String> {
    let changes = setup.iter().flat_map(|setup| &setup.changes);
    let mut all: Vec<String> = changes.filter_map(|change| change.assumption()).map(str::to_owned).collect();
    all.extend(step.assumptions(setup.unwrap_or(&Setup::default())));
    if let Some(evidence) = step.evidence() {
        all.push(evidence.assumption().to_owned());
    }
    all
}

#[cfg(test)]
mod tests {
    use highwater_snapshots::units::parse_bytes;

    use super::*;
    use crate::answers::plan::{Change, Work};

    const MIB: u64 = 1 << 20;

    fn of_minimum(minimum: Minimum, reach: Reach) -> Search {
        Search {
            as_is: Trial::default(),
            base: Work::default(),
            fits_as_is: false,
            plans: Vec::new(),
            minimum,
            combinations: 1,
            trials: 1,
            is_optimal: true,
            reach,
        }
    }

    #[test]
    fn a_budget_that_is_too_small_is_compared_with_what_is_reserved() {
        let least = |changes: Vec<Change>| Minimum {
            setup: Setup { changes, ..Setup::default() },
            requested: 340 * MIB,
            device_bytes: Some(360 * MIB),
            is_exact: true,
        };
        let search = of_minimum(least(Vec::new()), Reach::End);
        let budget = |mebibytes: u64| Budget { bytes: mebibytes * MIB, reserve: 0 };
        let requested = "340 MiB (356,515,840 bytes) requested at the peak, with nothing changed.";
        assert_eq!(
            answer(&search, budget(346)),
            format!(
                "Does not fit in 346 MiB: the smallest device found has 360 MiB, including reserved memory, for {requested}"
            )
        );
        assert_eq!(answer(&search, budget(300)), format!("Does not fit in 300 MiB: the minimum is {requested}"));
        let runs = |search: &Search| large_enough(search, budget(346)).unwrap();
        assert_eq!(runs(&search), format!("As it is, it runs on a device of 360 MiB, {INCLUDED}."));
        let fused = of_minimum(least(vec![Change::Fused]), Reach::FailedRequest);
        assert!(runs(&fused).starts_with("With these changes a device of 360 MiB,"), "{}", runs(&fused));
    }

    #[test]
    fn whether_a_step_fits_is_stated_by_its_reserved_memory() {
        let minimum = Minimum { setup: Setup::default(), requested: 0, device_bytes: None, is_exact: true };
        let as_is = Trial { fits: true, requested: 300 * MIB, reserved: 340 * MIB, ..Trial::default() };
        let search = Search { as_is, fits_as_is: true, ..of_minimum(minimum, Reach::End) };
        assert_eq!(
            answer(&search, Budget { bytes: 346 * MIB, reserve: 0 }),
            "Fits in 346 MiB as it is: 340 MiB reserved at the peak (300 MiB requested), 6 MiB free."
        );
        let fused = Setup { changes: vec![Change::Fused], ..Setup::default() };
        let trial = Trial { fits: true, requested: 200 * MIB, reserved: 210 * MIB, ..Trial::default() };
        assert_eq!(
            fits(&fused, &trial, &search, Budget { bytes: 346 * MIB, reserve: 0 }),
            "Fits in 346 MiB with fused optimizer: 210 MiB reserved at the peak (200 MiB requested), 340 MiB without \
             the plan."
        );
    }

    #[test]
    fn a_budget_is_printed_as_other_sizes_are() {
        let text = |size: &str| Budget { bytes: parse_bytes(size).unwrap(), reserve: 0 }.text();
        assert_eq!(["6500MB", "23GB", "24GiB"].map(text), ["6.05 GiB", "21.42 GiB", "24 GiB"]);
    }
}
