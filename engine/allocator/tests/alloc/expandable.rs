//! Tests of how expandable segments map and unmap pages, as scripts with their expected results. The language of the
//! scripts is described in `script.rs`.

use expect_test::expect;

use crate::script::check;

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
              device     70 MiB total, 50 MiB free, 0 B used outside this allocator
              reserved   20 MiB = 5 MiB allocated + 0 B awaiting free + 15 MiB cached
              allocated  5 MiB for 5 MiB requested
              cached     15 MiB = 15 MiB fragmented (largest free range 15 MiB) + 0 B of other streams + 0 B in the other pool
              tried      waiting for all streams; 40 MiB of cache released to the driver
              advice     record the run: `highwater oom` shows what is using memory, and tests what would have helped
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
