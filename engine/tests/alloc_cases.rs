//! Cases: every rule of the allocator as a script and what comes of it. The script's language is described in
//! `alloc_harness/script.rs`.

use expect_test::{Expect, expect};

mod alloc_harness;
#[path = "alloc_harness/script.rs"]
mod script;

#[expect(clippy::needless_pass_by_value, reason = "expectations are written in place")]
fn check(script: &str, expected: Expect) {
    expected.assert_eq(&script::run(script));
}

#[test]
fn sizes_round_to_512_and_pools_and_segments_follow_from_the_rounded_size() {
    check(
        "alloc zero 0
         alloc one 1
         alloc edge 513
         alloc last_small 1M
         alloc first_large 1M+1
         alloc nearly_ten 10M-512
         alloc rounds_to_ten 10M-1
         alloc eleven 11M+5
         state",
        expect![[r#"
            zero: 0 at nowhere
              segment_alloc 2M at 0+0
            one: 512 at 0+0
            edge: 1K at 0+512
            last_small: 1M at 0+1536
              segment_alloc 20M at 1+0
            first_large: 1049088 at 1+0
            nearly_ten: 10485248 at 1+1049088
              segment_alloc 10M at 2+0
            rounds_to_ten: 10M at 2+0
              segment_alloc 12M at 3+0
            eleven: 12M at 3+0
              0+0 stream 0 small: one 512 | edge 1K | last_small 1M | (1047040)
              1+0 stream 0 large: first_large 1049088 | nearly_ten 10485248 | (9M)
              2+0 stream 0 large: rounds_to_ten 10M
              3+0 stream 0 large: eleven 12M
        "#]],
    );
}

#[test]
fn the_smallest_range_that_fits_is_taken_then_the_oldest_segment_then_the_lowest_address() {
    check(
        "alloc a 1M
         alloc b 1M
         alloc c 512K
         alloc d 512K
         alloc e 1M
         free e
         free c
         free b
         free a
         alloc exact 512K
         alloc f 1M
         alloc g 1M",
        expect![[r#"
              segment_alloc 2M at 0+0
            a: 1M at 0+0
            b: 1M at 0+1M
              segment_alloc 2M at 1+0
            c: 512K at 1+0
            d: 512K at 1+512K
            e: 1M at 1+1M
            exact: 512K at 1+0
            f: 1M at 1+1M
            g: 1M at 0+0
        "#]],
    );
}

#[test]
fn freed_neighbours_join_and_whole_segments_come_back_to_one_range() {
    check(
        "alloc a 512K
         alloc b 512K
         alloc c 512K
         free a
         free c
         state
         free b
         state",
        expect![[r#"
              segment_alloc 2M at 0+0
            a: 512K at 0+0
            b: 512K at 0+512K
            c: 512K at 0+1M
              0+0 stream 0 small: (512K) | b 512K | (1M)
              0+0 stream 0 small: (2M)
        "#]],
    );
}

#[test]
fn a_rest_is_split_off_from_512_bytes_in_the_small_pool_and_above_1_mib_in_the_large_one() {
    check(
        "alloc small 2M-512
         free small
         alloc small 1M
         alloc large 19M
         free large
         alloc keeps_a_mib 19M-512
         free keeps_a_mib
         alloc takes_all 19M
         alloc half 5M
         state",
        expect![[r#"
              segment_alloc 20M at 0+0
            small: 2096640 at 0+0
              segment_alloc 2M at 1+0
            small: 1M at 1+0
            large: 20M at 0+0
            keeps_a_mib: 19922432 at 0+0
            takes_all: 20M at 0+0
              segment_alloc 20M at 2+0
            half: 5M at 2+0
              0+0 stream 0 large: takes_all 20M
              1+0 stream 0 small: small 1M | (1M)
              2+0 stream 0 large: half 5M | (15M)
        "#]],
    );
}

#[test]
fn streams_do_not_share_ranges() {
    check(
        "alloc a 1K 1
         free a
         alloc b 1K 2
         alloc c 1K 1",
        expect![[r#"
              segment_alloc 2M at 0+0
            a: 1K at 0+0
              segment_alloc 2M at 1+0
            b: 1K at 1+0
            c: 1K at 0+0
        "#]],
    );
}

#[test]
fn a_block_that_another_stream_uses_is_free_only_once_that_stream_is_done() {
    check(
        "hold
         alloc a 12M 1
         stream a 2
         stream a 3
         stream a 3
         stream a 1
         free a
         state
         stat allocated_bytes.all.current
         stat active_bytes.all.current
         stat requested_bytes.all.current
         alloc meanwhile 12M 1
         done 2
         process
         state
         done 3
         state
         alloc again 12M 1",
        expect![[r#"
              segment_alloc 12M at 0+0
            a: 12M at 0+0
              0+0 stream 1 large: waiting 12M
            allocated_bytes.all.current = 0
            active_bytes.all.current = 12M
            requested_bytes.all.current = 12M
              segment_alloc 12M at 1+0
            meanwhile: 12M at 1+0
              0+0 stream 1 large: waiting 12M
              1+0 stream 1 large: meanwhile 12M
              0+0 stream 1 large: waiting 12M
              1+0 stream 1 large: meanwhile 12M
            again: 12M at 0+0
        "#]],
    );
}

#[test]
fn a_slow_stream_holds_up_only_its_own_blocks_and_each_stream_in_order() {
    check(
        "hold
         alloc a 12M
         alloc b 14M
         alloc c 16M
         stream a 1
         stream b 2
         stream c 1
         free a
         free b
         free c
         done 2
         process
         state
         sync
         state
         stat num_sync_all_streams",
        expect![[r#"
              segment_alloc 12M at 0+0
            a: 12M at 0+0
              segment_alloc 14M at 1+0
            b: 14M at 1+0
              segment_alloc 16M at 2+0
            c: 16M at 2+0
              0+0 stream 0 large: waiting 12M
              1+0 stream 0 large: (14M)
              2+0 stream 0 large: waiting 16M
              0+0 stream 0 large: (12M)
              1+0 stream 0 large: (14M)
              2+0 stream 0 large: (16M)
            num_sync_all_streams = 1
        "#]],
    );
}

#[test]
fn emptying_the_cache_waits_for_streams_and_gives_back_whole_segments_large_ones_first() {
    check(
        "hold
         alloc small 1K
         alloc stays 1M-512
         alloc whole 30M
         alloc other 12M 5
         alloc split 2M
         alloc rest 2M
         stream whole 7
         free small
         free whole
         free other
         free rest
         empty
         state
         free stays
         empty
         stat num_device_free
         stat num_sync_all_streams",
        expect![[r#"
              segment_alloc 2M at 0+0
            small: 1K at 0+0
            stays: 1048064 at 0+1K
              segment_alloc 30M at 1+0
            whole: 30M at 1+0
              segment_alloc 12M at 2+0
            other: 12M at 2+0
              segment_alloc 20M at 3+0
            split: 2M at 3+0
            rest: 2M at 3+2M
              segment_free 30M at 1+0
              segment_free 12M at 2+0
            released 42M
              0+0 stream 0 small: (1K) | stays 1048064 | (1048064)
              3+0 stream 0 large: split 2M | (18M)
              segment_free 2M at 0+0
            released 2M
            num_device_free = 3
            num_sync_all_streams = 2
        "#]],
    );
}

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
              device     64 MiB in all, 2 MiB free, 0 B held outside this allocator
              reserved   62 MiB = 62 MiB allocated + 0 B waiting for streams + 0 B cached
              allocated  62 MiB for 61 MiB requested
              cached     0 B = 0 B fragmented (largest free range 0 B) + 0 B of other streams + 0 B in the other pool
              tried      waiting for all streams; 0 B of cache given back to the driver
              advice     live blocks fill the memory: record the memory history to see which; smaller batches or checkpointing need fewer
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
              device     80 MiB in all, 40 MiB free, 0 B held outside this allocator
              limit      40 MiB may be reserved, by the memory fraction
              reserved   40 MiB = 40 MiB allocated + 0 B waiting for streams + 0 B cached
              allocated  40 MiB for 40 MiB requested
              cached     0 B = 0 B fragmented (largest free range 0 B) + 0 B of other streams + 0 B in the other pool
              tried      waiting for all streams; 0 B of cache given back to the driver
              advice     the device has the memory, the limit forbids it: raise per_process_memory_fraction
              advice     live blocks fill the memory: record the memory history to see which; smaller batches or checkpointing need fewer
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
fn large_segments_can_be_larger_and_divisions_round_up_further() {
    check(
        "config large_segment_size_mb:64,roundup_power2_divisions:[1:4,16:2,>:8]
         alloc a 3000000
         alloc b 17M
         alloc c 33M
         alloc d 1200
         alloc e 2049
         state",
        expect![[r#"
              segment_alloc 64M at 0+0
            a: 2930K at 0+0
            b: 24M at 0+2930K
            c: 36M at 0+27506K
              segment_alloc 2M at 1+0
            d: 1536 at 1+0
            e: 2560 at 1+1536
              0+0 stream 0 large: a 2930K | b 24M | c 36M | (1166K)
              1+0 stream 0 small: d 1536 | e 2560 | (2044K)
        "#]],
    );
}

#[test]
fn expandable_segments_map_whole_pages_as_they_grow_and_reuse_what_is_free_at_the_end() {
    check(
        "config expandable_segments:True
         capacity 1G
         alloc a 5M
         alloc b 30M
         alloc s 1K
         alloc t 3K
         free b
         alloc c 50M
         state
         stat segment.all.current
         stat reserved_bytes.all.current
         stat num_device_alloc",
        expect![[r#"
              segment_map 20M at 0+0
            a: 5M at 0+0
              segment_map 20M at 0+20M
            b: 30M at 0+5M
              segment_map 2M at 1+0
            s: 1K at 1+0
            t: 3K at 1+1K
              segment_map 20M at 0+40M
            c: 50M at 0+5M
              0+0 stream 0 large: a 5M | c 50M | (5M)
              1+0 stream 0 small: s 1K | t 3K | (2044K)
            segment.all.current = 0
            reserved_bytes.all.current = 62M
            num_device_alloc = 4
        "#]],
    );
}

#[test]
fn expandable_segments_unmap_whole_pages_between_blocks_and_map_them_again() {
    check(
        "config expandable_segments:True
         capacity 1G
         alloc a 5M
         alloc hole 50M
         alloc b 5M
         free hole
         empty
         state
         alloc fits_the_hole 30M
         alloc spans 45M
         state
         free a
         free b
         free fits_the_hole
         free spans
         empty
         state",
        expect![[r#"
              segment_map 20M at 0+0
            a: 5M at 0+0
              segment_map 40M at 0+20M
            hole: 50M at 0+5M
            b: 5M at 0+55M
              segment_unmap 20M at 0+20M
            released 20M
              0+0 stream 0 large: a 5M | (15M)
              0+40M stream 0 large: (15M) | b 5M
              segment_map 20M at 0+20M
            fits_the_hole: 30M at 0+5M
              segment_map 60M at 0+60M
            spans: 45M at 0+60M
              0+0 stream 0 large: a 5M | fits_the_hole 30M | (20M) | b 5M | spans 45M | (15M)
              segment_unmap 120M at 0+0
            released 120M
              no segments
        "#]],
    );
}

#[test]
fn an_expandable_segment_keeps_pages_that_were_mapped_before_memory_ran_out_until_the_cache_is_given_back() {
    check(
        "config expandable_segments:True
         capacity 70M
         alloc a 5M
         alloc hole 50M
         alloc b 5M
         free hole
         empty
         free b
         alloc c 60M
         state
         stat num_ooms
         stat num_alloc_retries",
        expect![[r#"
              segment_map 20M at 0+0
            a: 5M at 0+0
              segment_map 40M at 0+20M
            hole: 50M at 0+5M
            b: 5M at 0+55M
              segment_unmap 20M at 0+20M
            released 20M
              segment_map 20M at 0+20M
              segment_unmap 40M at 0+20M
            c: out of memory on device 0 (accounting device): 60 MiB requested
              request    60 MiB rounded to 60 MiB; 60 MiB needed from the driver; stream 0, large pool
              device     70 MiB in all, 50 MiB free, 0 B held outside this allocator
              reserved   20 MiB = 5 MiB allocated + 0 B waiting for streams + 15 MiB cached
              allocated  5 MiB for 5 MiB requested
              cached     15 MiB = 15 MiB fragmented (largest free range 15 MiB) + 0 B of other streams + 0 B in the other pool
              tried      waiting for all streams; 40 MiB of cache given back to the driver
              advice     live blocks fill the memory: record the memory history to see which; smaller batches or checkpointing need fewer
              0+0 stream 0 large: a 5M | (15M)
            num_ooms = 1
            num_alloc_retries = 1
        "#]],
    );
}

#[test]
fn a_free_range_with_less_room_to_grow_is_taken_before_a_smaller_one_with_more() {
    check(
        "config expandable_segments:True
         alloc a 5M
         alloc hole 18M
         alloc b 10M
         free hole
         state
         alloc c 6M
         alloc d 6M
         alloc e 7M",
        expect![[r#"
              segment_map 20M at 0+0
            a: 5M at 0+0
              segment_map 20M at 0+20M
            hole: 18M at 0+5M
            b: 10M at 0+23M
              0+0 stream 0 large: a 5M | (18M) | b 10M | (7M)
            c: 6M at 0+5M
            d: 6M at 0+11M
            e: 7M at 0+33M
        "#]],
    );
}

#[test]
fn statistics_reset_their_peaks_and_their_sums_apart() {
    check(
        "alloc a 1M
         alloc b 1M
         free a
         stat allocated_bytes.all.peak
         stat allocation.small_pool.allocated
         reset peak
         stat allocated_bytes.all.peak
         stat allocation.small_pool.freed
         reset sums
         stat allocation.small_pool.freed
         stat allocation.small_pool.current
         stat inactive_split_bytes.all.current",
        expect![[r#"
              segment_alloc 2M at 0+0
            a: 1M at 0+0
            b: 1M at 0+1M
            allocated_bytes.all.peak = 2M
            allocation.small_pool.allocated = 2
            allocated_bytes.all.peak = 1M
            allocation.small_pool.freed = 1
            allocation.small_pool.freed = 0
            allocation.small_pool.current = 1
            inactive_split_bytes.all.current = 1M
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
              device     100 MiB in all, 18 MiB free, 10 MiB held outside this allocator
              reserved   72 MiB = 45.00 MiB allocated + 0 B waiting for streams + 27.00 MiB cached
              allocated  45.00 MiB for 45.00 MiB requested
              cached     27.00 MiB = 8 MiB fragmented (largest free range 6 MiB) + 17 MiB of other streams + 2.00 MiB in the other pool
              tried      waiting for all streams; 0 B of cache given back to the driver
              advice     other streams' caches hold 17 MiB: allocate on fewer streams
              advice     live blocks fill the memory: record the memory history to see which; smaller batches or checkpointing need fewer
            y: out of memory on device 0 (accounting device): 19 MiB requested
              request    19 MiB rounded to 19 MiB; 20 MiB needed from the driver; stream 0, large pool
              device     100 MiB in all, 18 MiB free, 10 MiB held outside this allocator
              reserved   72 MiB = 45.00 MiB allocated + 0 B waiting for streams + 27.00 MiB cached
              allocated  45.00 MiB for 45.00 MiB requested
              cached     27.00 MiB = 8 MiB fragmented (largest free range 6 MiB) + 17 MiB of other streams + 2.00 MiB in the other pool
              tried      waiting for all streams; 0 B of cache given back to the driver
              advice     fragments hold 8 MiB: with expandable_segments:True, free ranges can grow instead of staying too small
              advice     other streams' caches hold 17 MiB: allocate on fewer streams
              advice     10 MiB of the device is held outside this allocator: look for other users
              advice     live blocks fill the memory: record the memory history to see which; smaller batches or checkpointing need fewer
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
              device     100 MiB in all, 80 MiB free, 0 B held outside this allocator
              limit      50 MiB may be reserved, by the memory fraction
              reserved   20 MiB = 20 MiB allocated + 0 B waiting for streams + 0 B cached
              allocated  20 MiB for 20 MiB requested
              cached     0 B = 0 B fragmented (largest free range 0 B) + 0 B of other streams + 0 B in the other pool
              tried      waiting for all streams; 0 B of cache given back to the driver
              advice     the device has the memory, the limit forbids it: raise per_process_memory_fraction
              advice     live blocks fill the memory: record the memory history to see which; smaller batches or checkpointing need fewer
            c: out of memory on device 0 (accounting device): 101 MiB requested
              request    101 MiB rounded to 101 MiB; 120 MiB needed from the driver; stream 0, large pool
              device     100 MiB in all, 80 MiB free, 0 B held outside this allocator
              reserved   20 MiB = 20 MiB allocated + 0 B waiting for streams + 0 B cached
              allocated  20 MiB for 20 MiB requested
              cached     0 B = 0 B fragmented (largest free range 0 B) + 0 B of other streams + 0 B in the other pool
              tried      waiting for all streams; 0 B of cache given back to the driver
              advice     the request alone is larger than the device: split it up
            d: out of memory on device 0 (accounting device): 60 MiB requested
              request    60 MiB rounded to 60 MiB; 60 MiB needed from the driver; stream 0, large pool
              device     100 MiB in all, 5 MiB free, 75 MiB held outside this allocator
              reserved   20 MiB = 20 MiB allocated + 0 B waiting for streams + 0 B cached
              allocated  20 MiB for 20 MiB requested
              cached     0 B = 0 B fragmented (largest free range 0 B) + 0 B of other streams + 0 B in the other pool
              tried      waiting for all streams; 0 B of cache given back to the driver
              advice     75 MiB of the device is held outside this allocator: look for other users
              advice     live blocks fill the memory: record the memory history to see which; smaller batches or checkpointing need fewer
        "#]],
    );
}

#[test]
fn a_request_that_no_device_could_meet_is_refused_at_once() {
    check("alloc a 1152921504606846976+1\n stat num_ooms", expect![[r#"
        a: a request of 1152921504606846977 bytes is more than 1 EiB, the most that one block may have: was a size negative?
        num_ooms = 0
    "#]]);
}
