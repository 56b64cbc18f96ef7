//! Checks the growth of reserved memory and its causes against sums computed by hand.

use super::*;
use crate::Source;
use crate::tests::fixture::growth_of_device;
use highwater_notation::trace_from_text;
use highwater_snapshots::DeviceId;

const MIB: u64 = 1 << 20;

fn growth(trace: &Trace, keys: &[GroupKey]) -> Growth {
    let device = DeviceId(0);
    let source = Source::in_memory(trace);
    let query = GrowthQuery { metric: Metric::Reserved, keys, top: 9, filter: &Filter::default() };
    let growth = growth_of_device(&source, device, query);
    let [start, end] = [&growth.start, &growth.end].map(|moment| i128::from(moment.bytes));
    assert_eq!(growth.net(), end - start, "segments account for the change");
    let of_groups: i128 = growth.groups.iter().map(GrownGroup::net).sum();
    assert_eq!((of_groups, growth.steps.last().unwrap().end_bytes), (growth.net(), growth.end.bytes));
    let of_causes: i128 = growth.causes.iter().map(Kept::net).sum();
    assert_eq!(of_causes, growth.net(), "{:?}", growth.causes);
    growth
}

/// The growth of a recording, which may have no steps.
fn growth_of_any(text: &str) -> Growth {
    let (trace, device) = (trace_from_text(text).unwrap(), DeviceId(0));
    let source = Source::in_memory(&trace);
    let query = GrowthQuery { metric: Metric::Reserved, keys: &[], top: 9, filter: &Filter::default() };
    growth_of_device(&source, device, query)
}

fn causes(growth: &Growth) -> Vec<(KeptBecause, u64, u64, Option<u64>)> {
    growth.causes.iter().map(|kept| (kept.because, kept.sum.bytes, kept.sum.blocks, kept.shared_bytes)).collect()
}

/// Steps that each obtain a segment and free all of their blocks; `place` is the segment's stream and `pool` its fact.
fn steps(count: u64, place: impl Fn(u64) -> String, pool: impl Fn(u64) -> String) -> String {
    let step = |step: u64| {
        let (address, place, pool) = (step * 0x100_0000, place(step), pool(step));
        format!(
            "step {step}\nphase forward\nsegment_alloc {address} 2097152 large {place} < loader.py:9 prefetch < main\n\
             {pool}alloc a{step} 1000/2097152 large {place} < loader.py:9 prefetch < main\nfree a{step}\n"
        )
    };
    (0..count).map(step).collect()
}

#[test]
fn segments_of_streams_that_are_no_longer_used_are_named_with_what_one_stream_would_need() {
    let text = steps(5, |step| format!("stream={}", 7 + step), |_| String::new());
    let growth = growth(&trace_from_text(&text).unwrap(), &[GroupKey::Pool, GroupKey::Frame]);
    assert_eq!((growth.net(), growth.bytes_per_step()), (8 * i128::from(MIB), 2 * MIB));
    let (unused, last) = (KeptBecause::UnusedStream, KeptBecause::NotReleased);
    assert_eq!(causes(&growth), [(unused, 6 * MIB, 3, Some(2 * MIB)), (last, 2 * MIB, 1, None)]);
    assert_eq!(growth.causes[0].streams, [8, 9, 10]);
    assert!(growth.causes[0].text().ends_with("one stream would need 2 MiB in all"), "{}", growth.causes[0].text());
    assert_eq!((growth.leaks.len(), growth.leaks[0].line.as_str()), (1, "loader.py:9 prefetch"));
    assert_eq!(growth.groups[0].key, ["large", "loader.py:9 prefetch"]);
    assert!(growth.groups[0].is_recurring && growth.stacks.len() == 1);
}

#[test]
fn private_pools_are_named_with_what_one_pool_would_need() {
    let pool = |step: u64| format!("attribute segment_pool_id \"(0, {})\"\n", step + 1);
    let trace = trace_from_text(&steps(3, |_| String::new(), pool)).unwrap();
    let moved = trace.clone().edited(|moved| moved.blocks.address = vec![0, 0x100_0000, 0x200_0000]);
    let growth = growth(&moved, &[GroupKey::Pool]);
    assert_eq!(causes(&growth), [(KeptBecause::PrivatePool, 4 * MIB, 2, Some(2 * MIB))]);
    assert_eq!(growth.groups.iter().map(|group| group.key[0].as_str()).collect::<Vec<_>>(), ["(0,2)", "(0,3)"]);
}

#[test]
fn blocks_that_stay_in_segments_divide_them_into_used_and_fragmented_bytes() {
    let step = |step: u64| {
        format!(
            "step {step}\nphase forward\nsegment_alloc {} 2097152\nalloc a{step} 500/512\nalloc b{step} 2096640\n\
             free b{step}\n",
            step * 0x100_0000
        )
    };
    let trace = trace_from_text(&(0..3).map(step).collect::<String>()).unwrap().edited(|trace| {
        trace.blocks.address = (0..3).flat_map(|step| [step * 0x100_0000, step * 0x100_0000 + 512]).collect();
    });
    let growth = growth(&trace, &[GroupKey::Size]);
    let (free, used) = (KeptBecause::Fragmentation, KeptBecause::InUse);
    assert_eq!(causes(&growth), [(free, 2 * (2 * MIB - 512), 2, None), (used, 1024, 2, None)]);
    assert_eq!(growth.groups[0].key, ["2 MiB"]);
}

#[test]
fn released_segments_and_parts_of_mappings_are_taken_off() {
    let text = "
        segment_alloc 0 4096
        segment_alloc 0x10000 8192
        segment_map 0x20000 8192
        step 0
        phase forward
        alloc a 512
        step 1
        phase forward
        segment_free 0x10000 8192
        segment_unmap 0x21000 4096
        segment_alloc 0x30000 1024
        segment_alloc 0x40000 2048
        segment_free 0x40000 2048
        alloc b 512
        step 2
        phase forward
        alloc c 512
    ";
    let trace = trace_from_text(text).unwrap().edited(|trace| trace.blocks.address = vec![0, 512, 1024]);
    let growth = growth(&trace, &[GroupKey::Stream]);
    let sum = |bytes, blocks| Sum { bytes, blocks };
    let expected = Balance { kept: sum(8192, 2), born: sum(1024, 1), freed: sum(12288, 2), short_lived: sum(2048, 1) };
    assert_eq!(growth.balance, expected);
    assert!(growth.leaks.is_empty() && growth.net() < 0);
}

#[test]
fn what_is_released_and_obtained_again_in_each_step_is_no_growth() {
    let step = |step: u64| {
        let (cache, pool) = (step * 0x100_0000, 0x4000_0000 + step * 0x100_0000);
        let released = match step {
            0 => String::new(),
            _ => format!("segment_free {} 8388608\n", (step - 1) * 0x100_0000),
        };
        format!(
            "step {step}\nphase forward\n{released}segment_alloc {cache} 8388608 large\n\
             alloc c{step} 5000/8388608 large\nfree c{step}\nsegment_alloc {pool} 2097152 large\n\
             attribute segment_pool_id \"(0, {})\"\nalloc p{step} 1000/2097152 large\nfree p{step}\n",
            step + 1
        )
    };
    let trace = trace_from_text(&(0..4).map(step).collect::<String>()).unwrap().edited(|trace| {
        trace.blocks.address = (0..4).flat_map(|step| [step * 0x100_0000, 0x4000_0000 + step * 0x100_0000]).collect();
    });
    let growth = growth(&trace, &[GroupKey::Pool]);
    assert_eq!((growth.net(), growth.balance.freed.bytes), (6 * i128::from(MIB), 8 * MIB));
    assert_eq!(causes(&growth), [(KeptBecause::PrivatePool, 6 * MIB, 3, Some(2 * MIB))]);
}

#[test]
fn what_is_kept_for_another_reason_than_before_is_named_with_both() {
    let text = "
        segment_alloc 0 4194304 large
        step 0
        phase forward
        alloc a 4194304 large
        step 1
        phase forward
        alloc b 512
        step 2
        phase forward
        segment_alloc 0x1000000 2097152 large
        alloc c 2097152 large
        free a
        alloc d 512
    ";
    let trace = trace_from_text(text)
        .unwrap()
        .edited(|trace| trace.blocks.address = vec![0, 0x900_0000, 0x100_0000, 0x900_0200]);
    let growth = growth(&trace, &[GroupKey::Pool]);
    let found: Vec<(KeptBecause, i128)> = growth.causes.iter().map(|kept| (kept.because, kept.net())).collect();
    let (free, used) = (KeptBecause::NotReleased, KeptBecause::InUse);
    assert_eq!(found, [(free, 4 * i128::from(MIB)), (used, -2 * i128::from(MIB))]);
    assert_eq!(growth.causes[1].text(), "2 MiB less are in use by blocks");
}

#[test]
fn without_steps_streams_that_are_used_only_earlier_are_named() {
    let text = steps(20, |step| format!("stream={}", 7 + step), |_| String::new());
    let plain: String = text.lines().filter(|line| !line.starts_with("step")).map(|line| format!("{line}\n")).collect();
    let growth = growth_of_any(&plain);
    let (unused, last) = (KeptBecause::UnusedStream, KeptBecause::NotReleased);
    assert_eq!(causes(&growth), [(unused, 36 * MIB, 18, Some(2 * MIB)), (last, 4 * MIB, 2, None)]);
}

#[test]
fn a_line_that_obtains_its_segment_before_each_step_obtains_it_in_every_one() {
    let step = |step: u64| {
        format!(
            "step {step}\nphase forward\nalloc a{step} 512\nfree a{step}\n\
             segment_alloc {} 2097152 large < loader.py:9 prefetch < main\n",
            step * 0x100_0000
        )
    };
    let text: String = (0..6).map(step).collect();
    let last = text.rfind("segment_alloc").unwrap();
    let growth = growth(&trace_from_text(&text[..last]).unwrap(), &[GroupKey::Frame]);
    assert_eq!((growth.step_count(), growth.groups[0].steps), (5, 4));
    assert_eq!((growth.leaks.len(), growth.leaks[0].bytes_per_step), (1, 2 * MIB));
}
