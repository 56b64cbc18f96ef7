//! Tests of advice on segments: free memory in them, private pools, and segments that are freed and allocated again.

use super::tests::{explain, explain_device};
use super::*;
use crate::GroupKey;
use highwater_notation::trace_from_text;

#[test]
fn segments_that_are_freed_and_allocated_again_are_named_with_their_count_and_lines() {
    let round = |n: u32| {
        let place = n * 0x10_0000;
        format!(
            "segment_alloc {place:#x} 1048576 < infer.py:9 run\nalloc b{n} 1000 < infer.py:9 run\nfree b{n}\n\
             segment_free {place:#x} 1048576 < serve.py:4 clean\n"
        )
    };
    let advice = |rounds: u32| {
        let (_, explanation) = explain(&(0..rounds).map(round).collect::<String>(), &[GroupKey::Category], "");
        let advice = explanation.advice;
        advice.into_iter().find(|one| one.remedy == Remedy::KeepSegments).map(|one| one.text)
    };
    assert_eq!(
        advice(30).unwrap(),
        "30 segments were allocated and 30 freed in 150 events: 29 were allocated again after others were freed (29 MiB), \
         and each call of the driver takes time. Freed at serve.py:4 clean (30). Allocated again at infer.py:9 run (29). \
         Keep segments for reuse instead of freeing them."
    );
    assert_eq!(advice(20), None, "few are allocated again");
}

#[test]
fn segments_that_requests_free_to_make_room_are_not_the_programs_to_keep() {
    let advice = |clean: &str, recorder: &str| {
        let round = |n: u32| {
            let place = n * 0x10_0000;
            let freed = match n {
                0 => String::new(),
                _ => format!("segment_free {:#x} 1048576{clean}\n", place - 0x10_0000),
            };
            format!("{freed}segment_alloc {place:#x} 1048576{clean}\nalloc b{n} 1000{clean}\nfree b{n}\n")
        };
        let trace = trace_from_text(&(0..30).map(round).collect::<String>())
            .unwrap()
            .edited(|trace| trace.header.recorder = recorder.to_owned());
        let advice = explain_device(&trace, trace.main_device(), &[GroupKey::Category], "").advice;
        advice.into_iter().find(|one| one.remedy == Remedy::KeepSegments).map(|one| one.text).unwrap()
    };
    let by_requests = advice(" < infer.py:9 run", "PyTorch");
    assert!(by_requests.contains("29 were allocated again after others were freed (29 MiB)"), "{by_requests}");
    assert!(by_requests.contains("The allocator frees them itself"), "{by_requests}");
    assert!(!by_requests.contains("empty_cache"), "{by_requests}");
    let unknown = advice("", "PyTorch");
    assert!(unknown.contains("If the program calls `torch.cuda.empty_cache()`"), "{unknown}");
}

#[test]
fn private_pools_that_are_never_in_use_at_the_same_time_are_advised_to_share() {
    let graph = |number: u64| {
        let (address, bytes) = (number << 32, 64_u64 << 20);
        format!(
            "segment_alloc {address} {bytes}\nattribute segment_pool_id \"(0, {number})\"\nalloc g{number} {bytes}\n\
             free g{number}\n"
        )
    };
    let trace = trace_from_text(&format!("{}alloc w 99999999", (1..4).map(graph).collect::<String>()))
        .unwrap()
        .edited(|trace| trace.blocks.address = [1_u64 << 32, 2 << 32, 3 << 32, 0].to_vec());
    let advice = |trace: &Trace| explain_device(trace, trace.main_device(), &[GroupKey::Category], "").advice;
    // The last block lies in no segment, so that the pools of free bytes are unknown.
    assert!(advice(&trace).iter().all(|one| one.remedy != Remedy::SharePools));
    let (mut with_segment, addresses) = (String::from("segment_alloc 0 134217728\n"), trace.blocks.address.clone());
    with_segment += &format!("{}alloc w 99999999", (1..4).map(graph).collect::<String>());
    let trace = trace_from_text(&with_segment).unwrap().edited(|trace| trace.blocks.address.clone_from(&addresses));
    // A pool that is in use at the peak may share its memory too.
    let fourth = graph(4);
    let one_in_use = trace_from_text(&format!("{with_segment}\n{}", fourth.split("free").next().unwrap()))
        .unwrap()
        .edited(|one_in_use| one_in_use.blocks.address = [addresses, vec![4 << 32]].concat());
    let of_four = advice(&one_in_use).into_iter().find(|one| one.remedy == Remedy::SharePools).unwrap();
    let expected = "are free in 3 private pools. 4 private pools are never in use at the same time";
    assert!(of_four.text.contains(expected), "{}", of_four.text);
    let advice = advice(&trace);
    let shared = advice.iter().find(|one| one.remedy == Remedy::SharePools).unwrap();
    assert_eq!(shared.bytes, 3 * (64 << 20));
    assert!(
        shared.text.contains("3 private pools are never in use at the same time, and at most 64 MiB"),
        "{}",
        shared.text
    );
    assert!(advice.iter().all(|one| one.remedy != Remedy::ExpandableSegments), "{advice:?}");
}

#[test]
fn what_is_free_in_segments_is_measured_at_the_peak_as_the_layers_have_it() {
    let free = |mebibytes: u64| {
        let text = format!("segment_alloc 0x0 209715200\nalloc a {} buffer", mebibytes << 20);
        let (_, explanation) = explain(&text, &[GroupKey::Category], "");
        let free = explanation.layers.expect("it is sound").free_in_segments;
        let advice = explanation.advice.into_iter().find(|one| one.remedy == Remedy::ExpandableSegments);
        (free >> 20, advice.map(|one| (one.bytes >> 20, one.settings, one.text)))
    };
    // Before the block is placed, the whole segment is free.
    assert_eq!(free(190), (10, None));
    let text = "100 MiB (50%) of the 200 MiB reserved at the peak are free in segments.";
    assert_eq!(free(100), (100, Some((100, Some("expandable_segments:True"), text.to_owned()))));
}
