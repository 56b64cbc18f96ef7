//! Tests of where requested blocks are placed and how blocks are freed, as scripts with their expected results. The
//! language of the scripts is described in `script.rs`.

use expect_test::expect;

use crate::script::check;

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
