//! Tests of the allocator when memory is short or may not be cached, as scripts with their expected results. The
//! language of the scripts is described in `script.rs`.

use expect_test::expect;

use crate::script::check;

#[test]
fn out_of_memory_gives_the_cache_back_and_tries_again_before_it_fails() {
    check(
        "capacity 64M
         alloc a 30M
         alloc b 30M
         free a
         alloc c 31M
         alloc too_much 31M
         stat num_alloc_retries
         stat num_ooms
         free b
         alloc d 31M
         stat num_alloc_retries",
        expect![[r#"
              segment_alloc 30M at 0+0
            a: 30M at 0+0
              segment_alloc 30M at 1+0
            b: 30M at 1+0
              segment_free 30M at 0+0
              segment_alloc 32M at 2+0
            c: 32M at 2+0
            too_much: out of memory on device 0 (accounting device): 31 MiB requested
              request    31 MiB rounded to 31 MiB; 32 MiB needed from the driver; stream 0, large pool
              device     64 MiB total, 2 MiB free, 0 B used outside this allocator
              reserved   62 MiB = 62 MiB allocated + 0 B awaiting free + 0 B cached
              allocated  62 MiB for 61 MiB requested
              cached     0 B = 0 B fragmented (largest free range 0 B) + 0 B of other streams + 0 B in the other pool
              tried      waiting for all streams; 0 B of cache released to the driver
              advice     record the run: `highwater oom` shows what is using memory, and tests what would have helped
            num_alloc_retries = 2
            num_ooms = 1
              segment_free 30M at 1+0
              segment_alloc 32M at 3+0
            d: 32M at 3+0
            num_alloc_retries = 3
        "#]],
    );
}

#[test]
fn a_block_that_came_free_while_waiting_for_streams_is_found_where_pytorch_fails() {
    check(
        "capacity 22M
         hold
         alloc a 6M
         alloc b 6M
         alloc c 6M
         stream b 1
         free b
         alloc d 6M
         stat num_alloc_retries
         stat num_ooms",
        expect![[r#"
              segment_alloc 20M at 0+0
            a: 6M at 0+0
            b: 6M at 0+6M
            c: 6M at 0+12M
            d: 6M at 0+6M
            num_alloc_retries = 1
            num_ooms = 0
        "#]],
    );
}

#[test]
fn a_memory_fraction_limits_what_is_reserved() {
    check(
        "config per_process_memory_fraction:0.5
         capacity 80M
         alloc a 20M
         alloc b 20M
         alloc c 2M
         fraction 1
         alloc c 2M",
        expect![[r#"
              segment_alloc 20M at 0+0
            a: 20M at 0+0
              segment_alloc 20M at 1+0
            b: 20M at 1+0
            c: out of memory on device 0 (accounting device): 2 MiB requested
              request    2 MiB rounded to 2 MiB; 20 MiB needed from the driver; stream 0, large pool
              device     80 MiB total, 40 MiB free, 0 B used outside this allocator
              limit      at most 40 MiB can be reserved (per_process_memory_fraction)
              reserved   40 MiB = 40 MiB allocated + 0 B awaiting free + 0 B cached
              allocated  40 MiB for 40 MiB requested
              cached     0 B = 0 B fragmented (largest free range 0 B) + 0 B of other streams + 0 B in the other pool
              tried      waiting for all streams; 0 B of cache released to the driver
              advice     the device has enough memory, but the memory fraction limits it: raise per_process_memory_fraction
              advice     record the run: `highwater oom` shows what is using memory, and tests what would have helped
              segment_alloc 20M at 2+0
            c: 2M at 2+0
        "#]],
    );
}

#[test]
fn garbage_collection_gives_back_what_has_been_cached_longest() {
    check(
        "config garbage_collection_threshold:0.6,per_process_memory_fraction:0.5
         capacity 400M
         alloc shared 5M
         alloc old 30M
         alloc young 40M
         free old
         alloc x 2M
         alloc y 2M
         free young
         alloc fills 50M
         alloc trigger 45M
         state",
        expect![[r#"
              segment_alloc 20M at 0+0
            shared: 5M at 0+0
              segment_alloc 30M at 1+0
            old: 30M at 1+0
              segment_alloc 40M at 2+0
            young: 40M at 2+0
            x: 2M at 0+5M
            y: 2M at 0+7M
              segment_alloc 50M at 3+0
            fills: 50M at 3+0
              segment_free 30M at 1+0
              segment_alloc 46M at 4+0
            trigger: 46M at 4+0
              0+0 stream 0 large: shared 5M | x 2M | y 2M | (11M)
              2+0 stream 0 large: (40M)
              3+0 stream 0 large: fills 50M
              4+0 stream 0 large: trigger 46M
        "#]],
    );
}

#[test]
fn blocks_at_the_limit_on_splitting_are_neither_split_nor_given_to_much_smaller_requests() {
    check(
        "config max_split_size_mb:40
         alloc big 60M
         free big
         alloc small 30M
         alloc near 41M
         free near
         alloc smaller 39M
         alloc far 40M
         stat oversize_allocations.current
         stat oversize_segments.current
         state",
        expect![[r#"
              segment_alloc 60M at 0+0
            big: 60M at 0+0
              segment_alloc 30M at 1+0
            small: 30M at 1+0
            near: 60M at 0+0
              segment_alloc 40M at 2+0
            smaller: 40M at 2+0
              segment_alloc 40M at 3+0
            far: 40M at 3+0
            oversize_allocations.current = 2
            oversize_segments.current = 3
              0+0 stream 0 large: (60M)
              1+0 stream 0 large: small 30M
              2+0 stream 0 large: smaller 40M
              3+0 stream 0 large: far 40M
        "#]],
    );
}

#[test]
fn with_a_limit_on_splitting_oversize_segments_are_given_back_before_the_whole_cache() {
    check(
        "config max_split_size_mb:20
         capacity 100M
         alloc a 30M
         alloc b 40M
         alloc keep 12M
         free a
         free b
         free keep
         alloc c 60M
         stat num_alloc_retries
         free c
         alloc d 25M
         state
         stat num_alloc_retries
         alloc e 74M
         stat num_alloc_retries",
        expect![[r#"
              segment_alloc 30M at 0+0
            a: 30M at 0+0
              segment_alloc 40M at 1+0
            b: 40M at 1+0
              segment_alloc 12M at 2+0
            keep: 12M at 2+0
              segment_free 40M at 1+0
              segment_free 30M at 0+0
              segment_alloc 60M at 3+0
            c: 60M at 3+0
            num_alloc_retries = 0
              segment_alloc 26M at 4+0
            d: 26M at 4+0
              3+0 stream 0 large: (60M)
              2+0 stream 0 large: (12M)
              4+0 stream 0 large: d 26M
            num_alloc_retries = 0
              segment_free 60M at 3+0
              segment_free 12M at 2+0
              segment_alloc 74M at 5+0
            e: 74M at 5+0
            num_alloc_retries = 1
        "#]],
    );
}

#[test]
fn an_out_of_memory_report_says_where_the_memory_is_and_what_would_help() {
    check(
        "capacity 100M
         outside 10M
         alloc small 512
         alloc a 6M
         alloc b 6M
         alloc c 6M
         alloc other 3M 4
         alloc more 30M
         free b
         alloc x 31M
         alloc y 19M",
        expect![[r#"
              segment_alloc 2M at 0+0
            small: 512 at 0+0
              segment_alloc 20M at 1+0
            a: 6M at 1+0
            b: 6M at 1+6M
            c: 6M at 1+12M
              segment_alloc 20M at 2+0
            other: 3M at 2+0
              segment_alloc 30M at 3+0
            more: 30M at 3+0
            x: out of memory on device 0 (accounting device): 31 MiB requested
              request    31 MiB rounded to 31 MiB; 32 MiB needed from the driver; stream 0, large pool
              device     100 MiB total, 18 MiB free, 10 MiB used outside this allocator
              reserved   72 MiB = 45.00 MiB allocated + 0 B awaiting free + 27.00 MiB cached
              allocated  45.00 MiB for 45.00 MiB requested
              cached     27.00 MiB = 8 MiB fragmented (largest free range 6 MiB) + 17 MiB of other streams + 2.00 MiB in the other pool
              tried      waiting for all streams; 0 B of cache released to the driver
              advice     record the run: `highwater oom` shows what is using memory, and tests what would have helped
            y: out of memory on device 0 (accounting device): 19 MiB requested
              request    19 MiB rounded to 19 MiB; 20 MiB needed from the driver; stream 0, large pool
              device     100 MiB total, 18 MiB free, 10 MiB used outside this allocator
              reserved   72 MiB = 45.00 MiB allocated + 0 B awaiting free + 27.00 MiB cached
              allocated  45.00 MiB for 45.00 MiB requested
              cached     27.00 MiB = 8 MiB fragmented (largest free range 6 MiB) + 17 MiB of other streams + 2.00 MiB in the other pool
              tried      waiting for all streams; 0 B of cache released to the driver
              advice     10 MiB of the device is used outside this allocator: look for other processes
              advice     record the run: `highwater oom` shows what is using memory, and tests what would have helped
        "#]],
    );
}

#[test]
fn a_report_gives_only_advice_that_applies() {
    check(
        "config expandable_segments:True,per_process_memory_fraction:0.5
         capacity 100M
         alloc a 20M
         alloc b 45M
         fraction 1
         alloc c 101M
         outside 75M
         alloc d 60M",
        expect![[r#"
              segment_map 20M at 0+0
            a: 20M at 0+0
            b: out of memory on device 0 (accounting device): 45 MiB requested
              request    45 MiB rounded to 45 MiB; 60 MiB needed from the driver; stream 0, large pool
              device     100 MiB total, 80 MiB free, 0 B used outside this allocator
              limit      at most 50 MiB can be reserved (per_process_memory_fraction)
              reserved   20 MiB = 20 MiB allocated + 0 B awaiting free + 0 B cached
              allocated  20 MiB for 20 MiB requested
              cached     0 B = 0 B fragmented (largest free range 0 B) + 0 B of other streams + 0 B in the other pool
              tried      waiting for all streams; 0 B of cache released to the driver
              advice     the device has enough memory, but the memory fraction limits it: raise per_process_memory_fraction
              advice     record the run: `highwater oom` shows what is using memory, and tests what would have helped
            c: out of memory on device 0 (accounting device): 101 MiB requested
              request    101 MiB rounded to 101 MiB; 120 MiB needed from the driver; stream 0, large pool
              device     100 MiB total, 80 MiB free, 0 B used outside this allocator
              reserved   20 MiB = 20 MiB allocated + 0 B awaiting free + 0 B cached
              allocated  20 MiB for 20 MiB requested
              cached     0 B = 0 B fragmented (largest free range 0 B) + 0 B of other streams + 0 B in the other pool
              tried      waiting for all streams; 0 B of cache released to the driver
              advice     the request alone is larger than the device: split it up
            d: out of memory on device 0 (accounting device): 60 MiB requested
              request    60 MiB rounded to 60 MiB; 60 MiB needed from the driver; stream 0, large pool
              device     100 MiB total, 5 MiB free, 75 MiB used outside this allocator
              reserved   20 MiB = 20 MiB allocated + 0 B awaiting free + 0 B cached
              allocated  20 MiB for 20 MiB requested
              cached     0 B = 0 B fragmented (largest free range 0 B) + 0 B of other streams + 0 B in the other pool
              tried      waiting for all streams; 0 B of cache released to the driver
              advice     75 MiB of the device is used outside this allocator: look for other processes
              advice     record the run: `highwater oom` shows what is using memory, and tests what would have helped
        "#]],
    );
}

#[test]
fn a_segment_that_is_larger_than_the_device_is_not_taken_for_the_request() {
    check(
        "capacity 10M
         alloc a 1M
         alloc b 2M",
        expect![[r#"
              segment_alloc 2M at 0+0
            a: 1M at 0+0
            b: out of memory on device 0 (accounting device): 2 MiB requested
              request    2 MiB rounded to 2 MiB; 20 MiB needed from the driver; stream 0, large pool
              device     10 MiB total, 8 MiB free, 0 B used outside this allocator
              reserved   2 MiB = 1 MiB allocated + 0 B awaiting free + 1 MiB cached
              allocated  1 MiB for 1 MiB requested
              cached     1 MiB = 0 B fragmented (largest free range 0 B) + 0 B of other streams + 1 MiB in the other pool
              tried      waiting for all streams; 0 B of cache released to the driver
              advice     a segment for the request needs 20 MiB, more than the memory of the whole device
              advice     record the run: `highwater oom` shows what is using memory, and tests what would have helped
        "#]],
    );
}

#[test]
fn a_request_that_no_device_could_meet_is_refused_at_once() {
    check(
        "alloc a 1152921504606846976+1\n stat num_ooms",
        expect![[r#"
        a: cannot allocate 1152921504606846977 bytes: a block has at most 1 EiB; check for a negative size
        num_ooms = 0
    "#]],
    );
}
