//! The report of `highwater info FOLDER`: the ranks of a run, the highest peak, outliers and missing ranks.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use highwater_analysis::Metric;
use highwater_app::answers::outliers::RULE;
use highwater_app::figures::ranks::{COMPARED, Caveat, headlines, limits, median, outliers, passed_by, ranks_table};
use highwater_app::files::fleet::{Fleet, Rank};
use highwater_app::report::{Fact, Facts, Table, Value};

use crate::commands::info::InfoArguments;
use crate::input::{opener, read_fleet};
use crate::output::{Failure, Page, Report, Status};

const MAX_MISSING: usize = 4096;

pub(crate) fn info(arguments: &InfoArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let folder = &arguments.source.file;
    if let Some(device) = arguments.device {
        let text = format!(
            "--device {device}: a folder shows only the default device of each rank; use --device with one recording"
        );
        return Err(Failure::Usage(text));
    }
    let open = opener(&arguments.blocks.categories)?;
    let filter = &arguments.blocks.filter.filter;
    // Summaries count all blocks.
    let needs_whole = !filter.is_empty();
    let fleet = read_fleet(folder, |file, is_whole| Ok(open(file, is_whole || needs_whole)?.counting(filter)))?;
    let report = RanksReport { fleet: &fleet, arguments };
    report.write(arguments.source.form, page)?;
    Ok(Status::Fine)
}

#[derive(Debug)]
struct RanksReport<'a> {
    fleet: &'a Fleet,
    arguments: &'a InfoArguments,
}

impl Report for RanksReport<'_> {
    fn facts(&self) -> Facts<'_> {
        let fleet = self.fleet;
        let gaps = fleet.missing();
        let missing: Vec<u32> = gaps.iter().cloned().flatten().take(MAX_MISSING).collect();
        let missing_count: u64 = gaps.iter().map(|gap| u64::from(gap.end() - gap.start()) + 1).sum();
        let highest = fleet.highest(Metric::Allocated).map(|row| &fleet.ranks[row]);
        let medians = Metric::ALL.map(|metric| (metric.name(), Value::of(median(fleet, metric)).into()));
        let outliers = COMPARED.into_iter().flat_map(|metric| outliers(fleet, metric));
        Facts::new([
            ("folder", fleet.name.as_str().into()),
            ("world_size", fleet.world_size().into()),
            ("filter", Fact::or_absent(self.arguments.blocks.filter.stated())),
            // The rank with the highest peak of allocated bytes.
            ("highest", highest.and_then(Rank::number).into()),
            ("highest_file", highest.map(|rank| rank.path.as_path()).into()),
            ("rule", RULE.into()),
            ("outliers", outliers.map(Value::of).collect::<Vec<_>>().into()),
            ("median", Value::Map(BTreeMap::from(medians).into_iter().collect()).into()),
            ("missing", missing.into()),
            ("missing_count", missing_count.into()),
            ("ranks", self.table().into()),
            ("unread", unread_facts(&fleet.unread).into()),
            ("skipped", fleet.skipped.into()),
            ("problems", fleet.problems().into()),
        ])
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        let fleet = self.fleet;
        for sentence in headlines(fleet) {
            page.headline(&sentence)?;
        }
        if let Some(filter) = self.arguments.blocks.filter.stated() {
            let but = "reserved memory and event counts are those of the whole recordings";
            page.line(&format!("Counting only blocks with {filter}; {but}."))?;
        }
        if fleet.ranks.len() > 1 {
            page.hint(&format!("{RULE}."))?;
        }
        let (warnings, notes): (Vec<Caveat>, Vec<Caveat>) = limits(fleet).into_iter().partition(|one| one.is_warning);
        warnings.iter().try_for_each(|one| page.warning(&one.text))?;
        page.gap()?.table(&self.table())?;
        if !notes.is_empty() || fleet.skipped > 0 {
            page.gap()?;
        }
        notes.iter().try_for_each(|one| page.hint(&one.text))?;
        if fleet.skipped > 0 {
            page.line(&passed_by(fleet.skipped))?;
        }
        page.gap()?;
        let given = self.arguments.given();
        let failed = fleet.ranks.iter().find(|rank| rank.failure.is_some());
        page.hint(&match (failed, fleet.ranks.as_slice()) {
            (Some(rank), _) => given.about(&[&rank.path]).next("oom", &[], "for the cause of the failure"),
            (None, [one]) => given.about(&[&one.path]).next("peak", &[], "to see what is using memory at the peak"),
            (None, _) => given.next("diff", &[], "for the differences between ranks"),
        })
    }

    fn table(&self) -> Table<'_> {
        ranks_table(self.fleet, |row| row)
    }
}

pub(crate) fn unread_facts(unread: &[(PathBuf, String)]) -> Vec<Facts<'static>> {
    let file =
        |(file, why): &(PathBuf, String)| Facts::new([("file", file.as_path().into()), ("why", why.as_str().into())]);
    unread.iter().map(file).collect()
}
