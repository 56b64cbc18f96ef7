//! Tests of comparisons: sums, kinds of change, and matching of stacks.

use super::*;
use crate::GroupKey;
use crate::tests::fixture::Fixture;
use highwater_snapshots::DeviceId;

fn moment(fixture: &Fixture, at: DiffAt, metric: Metric) -> Option<Moment> {
    at.find(&fixture.source, DeviceId(0), metric).unwrap()
}

fn diff_at(a: &str, b: &str, keys: &[GroupKey], at: [DiffAt; 2], metric: Metric, filter: &str) -> Diff {
    let (a, b) = (Fixture::of(a), Fixture::of(b));
    let filter: Filter = filter.parse().expect("the filter is one");
    let moments = [moment(&a, at[0], metric).unwrap(), moment(&b, at[1], metric).unwrap()];
    Diff::of([a.asked(), b.asked()], moments, &Query { keys, top: 100, filter: &filter, siblings: Siblings::Each })
}

fn diff(a: &str, b: &str, keys: &[GroupKey]) -> Diff {
    diff_at(a, b, keys, [DiffAt::Peak; 2], Metric::Requested, "")
}

/// Each group as a line: key, both sums, change, likeness.
fn lines(diff: &Diff) -> Vec<String> {
    let line = |group: &DiffGroup| {
        let key = group.key.join(", ").replace('\n', " < ");
        format!("{key}: {} {} {}, {}", group.bytes[0], group.bytes[1], group.change().name(), group.match_kind.name())
    };
    let total: i128 = diff.groups.iter().map(DiffGroup::delta).sum();
    assert_eq!(total, diff.delta(), "the differences add up");
    assert_eq!(diff.groups.iter().map(|group| group.bytes[0]).sum::<u64>() + diff.rest_bytes[0], diff.bytes[0]);
    diff.groups.iter().map(line).collect()
}

#[test]
fn differences_of_groups_add_up_and_the_largest_comes_first() {
    let a = "alloc w 1000 parameter\nalloc g 500 gradient\nalloc t 300 temporary\nalloc x 7 input";
    let b = "alloc w 1000 parameter\nalloc g 100 gradient\nalloc s 80 optimizer_state\nalloc x 9 input";
    let found = diff(a, b, &[GroupKey::Category]);
    assert_eq!((found.a.bytes, found.b.bytes, found.delta()), (1807, 1189, -618));
    assert_eq!(
        lines(&found),
        [
            "gradient: 500 100 shrunk, equal",
            "temporary: 300 0 only in A, equal",
            "optimizer_state: 0 80 only in B, equal",
            "input: 7 9 grown, equal",
            "parameter: 1000 1000 same, equal",
        ]
    );
}

#[test]
fn a_filter_leaves_the_same_out_on_both_sides() {
    let text = "alloc w 1000 parameter\nalloc g 500 gradient";
    let at = [DiffAt::Peak; 2];
    let found =
        diff_at(text, "alloc g 200 gradient", &[GroupKey::Category], at, Metric::Requested, "category=gradient");
    assert_eq!(lines(&found), ["gradient: 500 200 shrunk, equal"]);
    assert_eq!((found.bytes[0], found.bytes[1], found.a.bytes), (500, 200, 1500));
}

#[test]
fn what_no_block_accounts_for_is_compared_as_well() {
    let a = "segment_alloc 0x200000 2097152\nalloc w 1000/1024 parameter";
    let b = "segment_alloc 0x200000 4194304\nalloc w 1000/1024 parameter";
    let found = diff_at(a, b, &[GroupKey::Category], [DiffAt::End; 2], Metric::Reserved, "");
    assert_eq!(lines(&found), ["(free in segments): 2096128 4193280 grown, equal", "parameter: 1024 1024 same, equal"]);
}

#[test]
fn one_step_is_compared_with_the_next_of_the_same_recording() {
    let text = "
        alloc w 1000 parameter
        step 0
        alloc a 10 activation @log
        alloc t 50 temporary
        free t
        step 1
        alloc b 10 activation @log
        alloc t 50 temporary
        free t
    ";
    let at = [DiffAt::Step(0), DiffAt::Step(1)];
    let found = diff_at(text, text, &[GroupKey::Category, GroupKey::Scope], at, Metric::Requested, "");
    assert_eq!(lines(&found)[0], "activation, log: 10 20 grown, equal");
    assert_eq!(found.delta(), 10);
    let held = Fixture::of(text);
    assert_eq!(moment(&held, DiffAt::Step(7), Metric::Requested), None);
}

#[test]
fn a_step_that_only_frees_is_looked_at_where_it_begins() {
    let held = Fixture::of("alloc a 100\nbegin \"ProfilerStep#7\"\nfree a\nend \"ProfilerStep#7\"");
    let found = moment(&held, DiffAt::Step(7), Metric::Requested).unwrap();
    assert_eq!((found.bytes, found.event), (100, Some(highwater_snapshots::EventId(0))));
}

/// One block of each size with its stack, innermost function first.
fn stacks(stacks: &[&str]) -> String {
    stacks.iter().enumerate().map(|(row, stack)| format!("alloc b{row} {} < {stack}\n", 1000 - 100 * row)).collect()
}

#[test]
fn a_function_put_between_two_others_leaves_all_stacks_through_it_matched() {
    let a = stacks(&["linear < forward < step < main", "norm < forward < step < main", "adam < step < main"]);
    let b = stacks(&[
        "linear < forward < wrapped < step < main",
        "norm < forward < wrapped < step < main",
        "adam < step < main",
    ]);
    let told = lines(&diff(&a, &b, &[GroupKey::Stack]));
    assert_eq!(
        told,
        [
            "linear < forward < wrapped < step < main: 1000 1000 same, calls changed",
            "norm < forward < wrapped < step < main: 900 900 same, calls changed",
            "adam < step < main: 800 800 same, equal",
        ]
    );
    let back = lines(&diff(&b, &a, &[GroupKey::Stack]));
    assert!(back.iter().all(|line| line.contains("same")), "{back:?}");
}

#[test]
fn functions_put_around_everything_or_renamed_are_seen_through() {
    let a = stacks(&["linear < forward < main", "norm < forward < main"]);
    for b in [
        ["linear < forward < inner < outer < main", "norm < forward < inner < outer < main"],
        ["linear < forward < run < launch < main", "norm < forward < run < launch < main"],
        ["linear < predict < main", "norm < predict < main"],
        ["linear < forward < train < start", "norm < forward < train < start"],
    ] {
        let told = lines(&diff(&a, &stacks(&b), &[GroupKey::Stack]));
        assert!(told.len() == 2 && told.iter().all(|line| line.ends_with("same, calls changed")), "{told:?}");
    }
}

#[test]
fn another_path_to_the_same_function_is_not_the_same_stack() {
    let a = stacks(&["linear < forward < main", "linear < evaluate < main"]);
    let b = stacks(&["linear < forward < main"]);
    let told = lines(&diff(&a, &b, &[GroupKey::Stack]));
    assert_eq!(
        told,
        ["linear < evaluate < main: 900 0 only in A, equal", "linear < forward < main: 1000 1000 same, equal"]
    );
}

#[test]
fn a_line_matches_one_of_another_folder_only_if_the_programs_have_most_functions_in_common() {
    let program = |folder: &str, functions: &[&str]| -> String {
        let line = |(row, function): (usize, &&str)| {
            format!("alloc b{row} {} < {folder}/model.py:{} {function}\n", 1000 - 100 * row, 10 + 2 * row)
        };
        functions.iter().enumerate().map(line).collect()
    };
    let first = program("/home/me/gpt", &["forward", "attend", "norm"]);
    let lines = |b: &str| lines(&diff(&first, b, &[GroupKey::Frame]));
    let copied = lines(&program("/home/me/gpt2", &["norm", "forward", "attend"]));
    assert!(copied.len() == 3 && copied.iter().all(|line| line.ends_with("lines moved")), "{copied:?}");
    let edited = lines(&program("/srv/gpt", &["load", "save", "forward"]));
    assert_eq!(edited.iter().filter(|line| line.ends_with("lines moved")).count(), 1, "{edited:?}");
    let other = lines(&program("/home/me/cnn", &["load", "save", "forward"]));
    assert!(other.len() == 6 && other.iter().all(|line| line.contains("only in")), "{other:?}");
}

#[test]
fn a_recording_beside_itself_differs_in_nothing() {
    let text = stacks(&["linear < forward < main", "norm < forward < main", "linear < evaluate < main"]);
    for key in GroupKey::ALL {
        let found = diff(&text, &text, &[*key]);
        assert!(found.groups.iter().all(|group| group.change() == Change::Same), "{key:?}");
        assert!(found.groups.iter().all(|group| group.match_kind == MatchKind::Equal), "{key:?}");
    }
}

#[test]
fn of_one_recording_the_last_whole_steps_are_compared() {
    let steps = |count: u32| -> String { (0..count).map(|step| format!("step {step}\nalloc a{step} 10\n")).collect() };
    let last = |count| DiffAt::last_steps(&Fixture::of(&steps(count)).source, DeviceId(0)).unwrap();
    assert_eq!(last(1), None);
    assert_eq!(last(2), Some([DiffAt::StepEnd(0), DiffAt::StepEnd(1)]));
    assert_eq!(last(4), Some([DiffAt::StepEnd(2), DiffAt::StepEnd(3)]));
    let cut_off = Fixture::of(&format!("{}oom 10 free=0\n", steps(4)));
    let of_whole = DiffAt::last_steps(&cut_off.source, DeviceId(0)).unwrap();
    assert_eq!(of_whole, Some([DiffAt::StepEnd(1), DiffAt::StepEnd(2)]));
    let held = Fixture::of(&steps(4));
    let bytes = |step| moment(&held, DiffAt::StepEnd(step), Metric::Requested).map(|moment| moment.bytes);
    assert_eq!((bytes(1), bytes(2), bytes(9)), (Some(20), Some(30), None));
}

#[test]
fn single_blocks_are_those_without_their_like_on_the_other_side() {
    let a = "alloc w 100 parameter\nalloc x 10 activation @net < f\nalloc y 10 activation @net < f\nalloc z 7 input\n";
    let b =
        "alloc w 100 parameter\nalloc x 10 activation @net < f\nalloc u 30 activation @net < f\nalloc t 7 gradient\n";
    let (a, b) = (Fixture::of(a), Fixture::of(b));
    let (filter, metric) = (Filter::default(), Metric::Requested);
    let moments = [&a, &b].map(|held| held.peak(metric));
    let query = Query { keys: &[GroupKey::Category], top: 10, filter: &filter, siblings: Siblings::Each };
    let lone = UnmatchedBlocks::of([a.asked(), b.asked()], &moments, &query, 3);
    let told: Vec<_> =
        lone.blocks.iter().map(|one| (one.side, one.listed.bytes, one.listed.category.as_str())).collect();
    assert_eq!(told, [(1, 30, "activation"), (0, 10, "activation"), (0, 7, "input")]);
    assert_eq!((lone.counts, lone.bytes), ([2, 2], [17, 37]));
    let first = &lone.blocks[0].listed;
    assert_eq!((first.scope.as_str(), first.made), ("net", Some(2)));
    let diff = Diff::of([a.asked(), b.asked()], moments, &query);
    assert_eq!(diff.delta(), i128::from(lone.bytes[1]) - i128::from(lone.bytes[0]));
}

#[test]
fn stacks_and_lines_that_read_the_same_are_one_row_of_both_sides() {
    let a = "alloc x 10 < net.rs:7 net::run::{closure#1} < main\nalloc y 20 < net.rs:7 net::run::{closure#2} < main";
    let b = "alloc y 25 < net.rs:7 net::run::{closure#2} < main\nalloc z 1 < net.rs:7 net::run < main";
    for key in [GroupKey::Stack, GroupKey::Frame] {
        for (a, b) in [(a, b), (b, a), (a, a)] {
            let diff = diff(a, b, &[key]);
            assert_eq!(diff.groups.len(), 1, "{:?}", diff.groups);
            assert_eq!((diff.groups[0].match_kind, &diff.groups[0].former_key), (MatchKind::Equal, &None));
        }
    }
}

#[test]
fn equal_modules_are_one_row_whose_members_are_named() {
    let net = |bytes: [u64; 3]| -> String {
        let block = |(at, bytes): (usize, u64)| format!("alloc a{at} {bytes} activation @h.{at}.mlp\n");
        bytes.into_iter().enumerate().map(block).collect()
    };
    let (a, b) = (Fixture::of(&net([10, 10, 10])), Fixture::of(&net([12, 12, 13])));
    let moments = [&a, &b].map(|held| held.peak(Metric::Requested));
    let filter = Filter::default();
    let rows = |siblings| {
        let query = Query { keys: &[GroupKey::Scope], top: 9, filter: &filter, siblings };
        let diff = Diff::of([a.asked(), b.asked()], moments, &query);
        let row = |group: &DiffGroup| (group.key[0].clone(), group.bytes[0], group.bytes[1], group.members.len());
        diff.groups.iter().map(row).collect::<Vec<_>>()
    };
    let row = |name: &str, a, b, members| (name.to_owned(), a, b, members);
    assert_eq!(rows(Siblings::Merged), [row("h.{0-1}.mlp", 20, 24, 2), row("h.2.mlp", 10, 13, 0)]);
    assert_eq!(rows(Siblings::Each).len(), 3);
}
