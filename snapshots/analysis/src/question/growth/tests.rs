//! Tests of growth on small recordings: balance, recurring and one-time growth.

use super::*;
use crate::Question;
use crate::tests::fixture::{Fixture, growth_of_device};
use highwater_snapshots::DeviceId;

fn window_of(fixture: &Fixture, device: DeviceId, range: StepRange) -> Result<StepWindow, NoWindow> {
    StepWindow::of(&fixture.source, device, range).unwrap()
}

fn growth_of(text: &str, metric: Metric, filter: &str, keys: &[GroupKey]) -> Growth {
    let fixture = Fixture::of(text);
    let filter: Filter = filter.parse().unwrap();
    growth_of_device(&fixture.source, DeviceId(0), GrowthQuery { metric, keys, top: 2, filter: &filter })
}

/// Five steps: each leaves 100 bytes in a cache, replaces the input of the previous step, and allocates and frees an
/// activation; the third allocates a table once.
fn leaky() -> String {
    let mut text = "baseline w 1000/1024 parameter @net\n".to_owned();
    for step in 0..5 {
        text += &format!("step {step}\nphase forward\nalloc x{step} 50/512 input < load < main\n");
        if step > 0 {
            text += &format!("free x{}\n", step - 1);
        }
        text += &format!("alloc c{step} {}/512 activation @cache < remember < main\n", 100 + step);
        if step == 2 {
            text += "alloc t 700/1024 buffer @table < build < main\n";
        }
        text += "alloc a 300/512 activation @net < forward < main\nphase backward\nfree a\n";
        text += &format!("alloc y{step} 7 activation device=1\n");
    }
    text
}

/// What is allocated between the optimizer and the next forward belongs to the step before: the last step has none.
#[test]
fn batches_that_are_kept_between_steps_are_a_leak_though_the_last_step_has_none() {
    let kept = |steps: u32, last: u32| {
        let mut text = String::new();
        for step in 0..steps {
            text += &format!("step {step}\nphase forward\nalloc a 300/512 activation @net < forward < main\nfree a\n");
            if step < last {
                text += &format!("phase other\nalloc b{step} 100/512 < load < main\n");
            }
        }
        let fixture = Fixture::of(&text);
        let window = window_of(&fixture, DeviceId(0), StepRange::default()).unwrap();
        let of_device = (DeviceId(0), Metric::Requested);
        let leaks = Leaks::of(&fixture.source, of_device, &window, &Filter::default()).unwrap().lines;
        leaks.into_iter().map(|leak| (leak.line, leak.kept.blocks, leak.bytes_per_step)).collect::<Vec<_>>()
    };
    let load = |blocks| vec![("load".to_owned(), blocks, 100)];
    assert_eq!((kept(6, 6), kept(6, 5)), (load(5), load(4)), "the first step of the recording does not count");
    assert!(kept(6, 4).is_empty(), "two steps without are no leak");
}

#[test]
fn survivors_less_what_was_freed_is_the_growth_to_the_byte() {
    for metric in Metric::OF_BLOCKS {
        for filter in ["", "category=activation", "category=input,buffer"] {
            for keys in [&[GroupKey::Category, GroupKey::Scope][..], &[GroupKey::Stack], &[GroupKey::Step], &[]] {
                let growth = growth_of(&leaky(), metric, filter, keys);
                let mut net: i128 = growth.groups.iter().map(GrownGroup::net).sum();
                net += i128::from(growth.rest_survivors.bytes) - i128::from(growth.rest_freed.bytes);
                assert_eq!(net, growth.net(), "{metric} {filter} {keys:?}");
                let by_step: u64 = growth.steps.iter().map(|row| row.survivors.bytes).sum();
                assert_eq!(by_step, growth.balance.born.bytes);
                let end = growth.steps.iter().rev().find(|row| row.step.is_some()).unwrap().end_bytes;
                assert_eq!(end, growth.balance.get(Question::AliveAtB).bytes, "{metric} {filter}");
                if filter.is_empty() {
                    assert_eq!(net, i128::from(growth.end.bytes) - i128::from(growth.start.bytes));
                    assert_eq!(end, growth.end.bytes);
                }
            }
        }
    }
}

#[test]
fn what_comes_again_with_every_step_stands_before_what_came_once() {
    let growth = growth_of(&leaky(), Metric::Requested, "", &[GroupKey::Category, GroupKey::Scope]);
    let [cache, table] = &growth.groups[..] else { panic!("two groups are listed: {:?}", growth.groups) };
    assert_eq!((cache.key.join(" "), cache.is_recurring), ("activation cache".to_owned(), true));
    assert_eq!((cache.survivors, cache.freed.blocks, cache.steps), (Sum { bytes: 410, blocks: 4 }, 0, 4));
    assert_eq!(cache.least_bytes, 101);
    assert_eq!((table.key.join(" "), table.is_recurring, table.steps), ("buffer table".to_owned(), false, 1));
    assert_eq!(growth.recurring.bytes, 410, "the input is replaced, and so does not grow");
    assert_eq!(leaks(&growth), [("remember", 410, 103)]);
    // The input of the last step against that of the first.
    assert_eq!((growth.rest_groups, growth.rest_survivors.bytes, growth.rest_freed.bytes), (1, 50, 50));
    assert_eq!((growth.net(), growth.step_count(), growth.bytes_per_step()), (1110, 4, 278));
    assert_eq!(growth.stacks.len(), 1);
    assert_eq!(growth.stacks[0].key, ["remember\nmain"]);
}

fn leaks(growth: &Growth) -> Vec<(&str, u64, u64)> {
    growth.leaks.iter().map(|leak| (leak.line.as_str(), leak.kept.bytes, leak.bytes_per_step)).collect()
}

#[test]
fn a_leak_is_found_whatever_its_blocks_are_taken_for_and_whatever_the_table_shows() {
    // The guessed category of the same line alternates, and so do its stacks.
    let mut text = String::new();
    for step in 0..6 {
        let category = if step % 2 == 0 { "activation" } else { "unknown" };
        let caller = if step % 2 == 0 { "train.py:30 even" } else { "train.py:40 odd" };
        text += &format!("step {step}\nalloc h{step} 1000 temporary < train.py:9 log < {caller}\n");
        text += &format!("alloc x{step} 50 input < train.py:5 load < {caller}\n");
        if step > 0 {
            text += &format!("free x{}\n", step - 1);
        }
        text += &format!("alloc out{step} 40 {category} < train.py:20 keep < {caller}\n");
    }
    for keys in [&[GroupKey::Category, GroupKey::Frame][..], &[GroupKey::Frame], &[GroupKey::Size], &[]] {
        let growth = growth_of(&text, Metric::Requested, "", keys);
        let expected = [("train.py:9 log", 5000, 1000), ("train.py:20 keep", 200, 40)];
        assert_eq!(leaks(&growth), expected, "{keys:?}");
        assert_eq!(growth.recurring.bytes, 5200);
    }
    assert_eq!(leaks(&growth_of(&text, Metric::Requested, "size<100", &[])), [("train.py:20 keep", 200, 40)]);
}

#[test]
fn memory_that_each_step_replaces_does_not_leak_with_what_one_step_allocates_at_its_line() {
    // As DistributedDataParallel does, the second step replaces buckets; each step replaces its input.
    let mut text = "alloc buckets0 32 < train.py:6 main\n".to_owned();
    for step in 0..3 {
        text += &format!("step {step}\nalloc x{step} 2 < functional.py:1 randn < train.py:8 main\n");
        if step > 0 {
            text += &format!("free x{}\n", step - 1);
        }
        if step == 1 {
            text += "free buckets0\nalloc buckets1 32 < distributed.py:1 rebuild < train.py:8 main\n";
        }
    }
    let growth = growth_of(&text, Metric::Requested, "", &[GroupKey::Frame]);
    assert!(leaks(&growth).is_empty(), "{:?}", leaks(&growth));
}

#[test]
fn lines_that_take_turns_are_one_leak_of_the_line_that_calls_them() {
    let mut text = String::new();
    for step in 0..6 {
        let line = if step % 2 == 0 { "train.py:20 even" } else { "train.py:24 odd" };
        text += &format!("step {step}\nalloc h{step} 1000 < {line} < train.py:9 log < train.py:3 main\n");
        text += &format!("alloc x{step} 50 < train.py:5 load < train.py:3 main\n");
        if step > 0 {
            text += &format!("free x{}\n", step - 1);
        }
        if step == 4 {
            text += "alloc t 500 < train.py:12 table < train.py:3 main\n";
        }
    }
    let growth = growth_of(&text, Metric::Requested, "", &[]);
    assert_eq!(leaks(&growth), [("train.py:9 log", 5000, 1000)], "neither a line in it nor all of main");
}

#[test]
fn what_the_last_step_has_not_yet_replaced_does_not_count_as_leaked() {
    // An LSTM's output, which is live until the next step's, and its hidden state, which is kept, from one line.
    let of_length = |length: fn(u32) -> u32| {
        let mut text = String::new();
        for step in 0..6 {
            text += &format!("step {step}\nalloc h{step} 32 < train.py:9 lstm\nalloc c{step} 32 < train.py:9 lstm\n");
            text += &format!("alloc o{step} {} < train.py:9 lstm\n", length(step));
            if step > 0 {
                text += &format!("free o{}\n", step - 1);
            }
        }
        let growth = growth_of(&text, Metric::Requested, "", &[]);
        let leaks = growth.leaks.iter().map(|leak| (leak.kept.bytes, leak.kept.blocks, leak.bytes_per_step));
        (leaks.collect::<Vec<_>>(), growth.stacks[0].bytes)
    };
    assert_eq!(of_length(|_| 640), (vec![(320, 10, 64)], 320));
    assert_eq!(of_length(|step| 500 + step), (vec![(320, 10, 64)], 320), "nor if lengths differ");
    assert_eq!(of_length(|_| 32), (vec![(320, 10, 64)], 320), "nor if sizes do not");
}

#[test]
fn what_is_replaced_or_kept_once_is_no_leak() {
    let mut text = String::new();
    for step in 0..6 {
        text += &format!("step {step}\nalloc q{step} 70 < train.py:9 queue\n");
        // A queue of three: its length is constant.
        if step > 2 {
            text += &format!("free q{}\n", step - 3);
        }
        if step == 3 {
            text += "alloc t 500 < train.py:12 table\n";
        }
    }
    assert!(leaks(&growth_of(&text, Metric::Requested, "", &[])).is_empty());
}

#[test]
fn without_steps_the_whole_recording_is_counted_and_no_growth_per_step_is_claimed() {
    let fixture =
        Fixture::of("baseline w 10 < main\nalloc a 100 < train.py:9 log\nalloc b 30 < train.py:9 log\nfree b\n");
    assert!(window_of(&fixture, DeviceId(0), StepRange::default()).is_err());
    let filter = Filter::default();
    let query = GrowthQuery { metric: Metric::Requested, keys: &[GroupKey::Frame], top: 9, filter: &filter };
    let growth = growth_of_device(&fixture.source, DeviceId(0), query);
    assert_eq!((growth.net(), growth.step_count(), growth.leaks.len(), growth.steps_until(1000)), (100, 0, 0, None));
    assert_eq!((growth.start.bytes, growth.end.bytes, growth.last_peak.bytes), (10, 110, 140));
}

#[test]
fn a_leak_of_each_of_a_devices_steps_is_found_though_it_pauses_while_another_works() {
    let mut text = "alloc w 1\nalloc v 1 device=1\n".to_owned();
    for step in 0..8 {
        text += &format!("step {step}\nphase forward\n");
        text += &match step % 2 {
            0 => format!("alloc k{step} 100 device=1 < train.py:9 log\n"),
            _ => format!("alloc a{step} 50\nfree a{step}\n"),
        };
    }
    let (fixture, device) = (Fixture::of(&text), DeviceId(1));
    let window = window_of(&fixture, device, StepRange::default()).unwrap();
    assert_eq!((window.from(), window.to(), window.steps.len()), (2, 6, 3));
    let filter = Filter::default();
    let query = GrowthQuery { metric: Metric::Requested, keys: &[GroupKey::Frame], top: 2, filter: &filter };
    let growth = growth_of_device(&fixture.source, device, query);
    assert_eq!((growth.leaks.len(), growth.leaks[0].bytes_per_step, growth.bytes_per_step()), (1, 100, 100));
    assert!(
        window_of(&fixture, device, StepRange { from: Some(3), ..StepRange::default() })
            .unwrap_err()
            .why
            .contains("the recording has steps")
    );
}

#[test]
fn the_capacity_is_full_when_the_peak_of_a_step_has_grown_to_it() {
    let growth = growth_of(&leaky(), Metric::Requested, "", &[GroupKey::Category]);
    let peak = growth.last_peak.bytes;
    assert_eq!((growth.last_peak.step, peak), (Some(4), growth.end.bytes + 300));
    // 1110 bytes in 4 steps: 3 more are 832.5, 4 are 1110.
    assert_eq!(growth.steps_until(peak + 1109), Some(4));
    assert_eq!(growth.steps_until(peak + 832), Some(3));
    assert_eq!(growth.steps_until(peak), Some(1));
    assert_eq!(growth.steps_until(0), None);
    let still = growth_of(
        "alloc w 5\nstep 0\nalloc a 1\nfree a\nstep 1\nalloc a 1\nfree a",
        Metric::Requested,
        "",
        &[GroupKey::Category],
    );
    assert_eq!((still.net(), still.steps_until(1000), still.bytes_per_step()), (0, None, 0));
}

#[test]
fn a_leak_continues_although_the_last_step_lacks_the_input_of_the_next() {
    let mut text = "alloc w 5\nalloc i0 100 < train.py:3 load\n".to_owned();
    for step in 0..6 {
        text += &format!("step {step}\nalloc k{step} 20 < train.py:9 log\n");
        let next = step + 1;
        if next < 6 {
            text += &format!("alloc i{next} 100 < train.py:3 load\n");
        }
        text += &format!("free i{step}\n");
    }
    let growth = growth_of(&text, Metric::Requested, "", &[GroupKey::Category]);
    assert_eq!((growth.net(), growth.step_count()), (0, 5));
    assert_eq!((growth.bytes_per_step(), growth.lasting_bytes_per_step()), (0, 20));
    assert_eq!(growth.steps_until(growth.last_peak.bytes + 100), Some(6));
}
