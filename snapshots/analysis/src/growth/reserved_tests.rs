//! Checks the growth of reserved memory and its causes against sums computed by hand.

use super::*;
use crate::Source;
use highwater_snapshots::DeviceId;
use highwater_snapshots::text::trace_from_text;

const MIB: u64 = 1 << 20;

fn growth(trace: &Trace, keys: &[GroupKey]) -> Growth {
    let device = DeviceId(0);
    let source = Source::in_memory(trace);
    let window = StepWindow::of(&source, device, StepRange::default()).unwrap().unwrap();
    let query = GrowthQuery { metric: Metric::Reserved, keys, top: 9, filter: &Filter::default() };
    let growth = Growth::of(&source, device, window, &query).unwrap();
    let [start, end] = [&growth.start, &growth.end].map(|moment| i128::from(moment.bytes));
    assert_eq!(growth.net(), end - start, "segments account for the change");
    let of_groups: i128 = growth.groups.iter().map(GrownGroup::net).sum();
    assert_eq!((of_groups, growth.steps.last().unwrap().end_bytes), (growth.net(), growth.end.bytes));
    let of_causes: u64 = growth.causes.iter().map(|kept| kept.sum.bytes).sum();
    assert_eq!(of_causes, growth.balance.born.bytes, "{:?}", growth.causes);
    growth
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
    let mut moved = trace.clone();
    moved.blocks.address = vec![0, 0x100_0000, 0x200_0000];
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
    let mut trace = trace_from_text(&(0..3).map(step).collect::<String>()).unwrap();
    trace.blocks.address = (0..3).flat_map(|step| [step * 0x100_0000, step * 0x100_0000 + 512]).collect();
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
    let mut trace = trace_from_text(text).unwrap();
    trace.blocks.address = vec![0, 512, 1024];
    let growth = growth(&trace, &[GroupKey::Stream]);
    let sum = |bytes, blocks| Sum { bytes, blocks };
    let expected = Balance { kept: sum(8192, 2), born: sum(1024, 1), freed: sum(12288, 2), short_lived: sum(2048, 1) };
    assert_eq!(growth.balance, expected);
    assert!(growth.leaks.is_empty() && growth.net() < 0);
}
