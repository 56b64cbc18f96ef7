//! Tests the drawing of bands against exact results, and its cost against frees × live blocks.

use std::fmt::Write as _;
use std::ops::Range;

use expect_test::{Expect, expect};
use highwater_analysis::bands::{Across, BandWindow, Bands, Raster, Stack, column_totals};
use highwater_analysis::{LiveIndex, Metric, Series};
use highwater_notation::trace_from_text;
use highwater_snapshots::{BlockId, DeviceId, Trace};

struct Opened {
    trace: Trace,
    live: LiveIndex,
    series: Series,
    bands: Bands,
}

fn open(text: &str) -> Opened {
    let trace = trace_from_text(text).unwrap();
    let device = trace.main_device();
    let bands = Bands::in_block_order(&trace, device);
    Opened { live: LiveIndex::build(&trace, device), series: Series::build(&trace, device), bands, trace }
}

impl Opened {
    fn raster(&self, window: &BandWindow) -> Raster {
        self.bands.raster(&self.trace, &self.live, &self.series, window)
    }

    /// One column per moment, one pixel per `unit` bytes.
    fn whole(&self, metric: Metric, unit: u64, height: usize) -> BandWindow {
        let width = self.trace.events.len() + 1;
        let across = Across::Moments(0.0..width as f64);
        BandWindow { metric, across, width, bytes: 0..unit * height as u64, height }
    }
}

/// The drawing as text, a digit per block, the top of the stack first; below it each column's moment and total.
fn text_of(raster: &Raster) -> String {
    let mut out = String::new();
    for y in (0..raster.height).rev() {
        for x in 0..raster.columns.len() {
            let id = raster.blocks[x * raster.height + y];
            out.push(if id.is_some() { char::from_digit(id.0 % 36, 36).unwrap() } else { '.' });
        }
        out.push('\n');
    }
    for column in &raster.columns {
        write!(out, "{}:{} ", column.moment, column.bytes).unwrap();
    }
    out.trim_end().to_owned() + "\n"
}

fn check(raster: &Raster, expected: &Expect) {
    expected.assert_eq(&text_of(raster));
}

const STEP: &str = "
    baseline w 20 parameter
    alloc a 10/16 activation
    alloc b 30/32 activation
    alloc g 20/32 gradient
    free_requested a
    free_completed a
    free b
    alloc o 10/16 optimizer_state
";

#[test]
fn blocks_stack_in_block_order_and_fall_when_one_below_is_freed() {
    let opened = open(STEP);
    let raster = opened.raster(&opened.whole(Metric::Requested, 10, 9));
    check(
        &raster,
        &expect![[r#"
            .........
            ...3.....
            ...333...
            ..2233...
            ..2222..4
            ..2222333
            .11122333
            000000000
            000000000
            0:20 1:30 2:60 3:80 4:70 5:70 6:40 7:40 8:50
        "#]],
    );
}

#[test]
fn each_metric_has_its_own_sizes_and_its_own_end_of_life() {
    let opened = open(
        "
        alloc a 10/16
        alloc b 10/16
        free_requested a
        free_completed a
    ",
    );
    let totals = |metric| {
        let columns = opened.raster(&opened.whole(metric, 8, 4)).columns;
        columns.iter().map(|column| column.bytes).collect::<Vec<_>>()
    };
    assert_eq!(totals(Metric::Requested), [0, 10, 20, 10, 10]);
    assert_eq!(totals(Metric::Allocated), [0, 16, 32, 16, 16]);
    assert_eq!(totals(Metric::Active), [0, 16, 32, 32, 16]);
    assert_eq!(totals(Metric::Reserved), [0, 16, 32, 32, 16], "bands of no block metric show the active blocks");
    let active = opened.raster(&opened.whole(Metric::Active, 16, 2));
    check(
        &active,
        &expect![[r#"
            ..11.
            .0001
            0:0 1:16 2:32 3:32 4:16
        "#]],
    );
}

#[test]
fn groups_stack_by_rank_and_in_block_order_within() {
    let mut opened = open(STEP);
    let category = opened.trace.blocks.category.clone();
    let rank_of = |id: BlockId| category[id.0 as usize] as u8;
    opened.bands = Bands::grouped(&opened.trace, DeviceId(0), rank_of);
    let raster = opened.raster(&opened.whole(Metric::Requested, 10, 8));
    check(
        &raster,
        &expect![[r#"
            ...2.....
            ...222...
            ..2222...
            ..2122..4
            ..2333333
            .11333333
            000000000
            000000000
            0:20 1:30 2:60 3:80 4:70 5:70 6:40 7:40 8:50
        "#]],
    );
}

#[test]
fn a_column_shows_the_largest_moment_that_falls_into_it() {
    let opened = open(STEP);
    let window =
        BandWindow { metric: Metric::Requested, across: Across::Moments(0.0..9.0), width: 2, bytes: 0..80, height: 8 };
    let raster = opened.raster(&window);
    check(
        &raster,
        &expect![[r#"
            3.
            33
            23
            22
            22
            12
            00
            00
            3:80 4:70
        "#]],
    );
}

#[test]
fn zoomed_in_beyond_single_events_and_bytes_the_picture_stays_true() {
    let opened = open(STEP);
    let window =
        BandWindow { metric: Metric::Requested, across: Across::Moments(2.5..4.5), width: 6, bytes: 25..35, height: 2 };
    check(
        &opened.raster(&window),
        &expect![[r#"
            222222
            111112
            2:60 3:80 3:80 3:80 3:80 4:70
        "#]],
    );
}

#[test]
fn by_time_a_moment_is_as_wide_as_it_lasts_and_one_of_no_duration_still_counts() {
    let opened = open(
        "
        alloc a 10 t=10us
        alloc b 70 t=20us
        free b t=20us
        alloc c 10 t=50us
    ",
    );
    let window = BandWindow {
        metric: Metric::Requested,
        across: Across::Nanos(0.0..60_000.0),
        width: 6,
        bytes: 0..80,
        height: 8,
    };
    check(
        &opened.raster(&window),
        &expect![[r#"
            ..1...
            ..1...
            ..1...
            ..1...
            ..1...
            ..1...
            ..1..2
            .00000
            0:0 1:10 2:80 4:10 4:10 5:20
        "#]],
    );
}

/// The block that covers byte `offset`, and the bytes it covers; `None` at or above the total.
fn band_at(stack: &Stack, offset: u64) -> Option<&(BlockId, Range<u64>)> {
    stack.bands.iter().find(|(_, bytes)| bytes.contains(&offset))
}

#[test]
fn picking_finds_the_block_that_the_picture_shows() {
    let opened = open(STEP);
    let window = opened.whole(Metric::Requested, 7, 12);
    let raster = opened.raster(&window);
    for (x, column) in raster.columns.iter().enumerate() {
        let stack = opened.bands.stack(&opened.trace, &opened.live, Metric::Requested, column.moment);
        assert_eq!(stack.total(), column.bytes);
        for y in 0..raster.height {
            let picked = band_at(&stack, window.byte_at(y)).map_or(BlockId::NONE, |(id, _)| *id);
            assert_eq!(picked, raster.blocks[x * raster.height + y]);
        }
    }
    let stack = opened.bands.stack(&opened.trace, &opened.live, Metric::Requested, 3);
    assert_eq!(band_at(&stack, 30), Some(&(BlockId(2), 30..60)));
    assert_eq!(band_at(&stack, 80), None);
}

#[test]
fn an_outline_follows_its_block_through_every_column() {
    let opened = open(STEP);
    let columns = opened.raster(&opened.whole(Metric::Requested, 10, 9)).columns;
    let outline = opened.bands.outline(&opened.trace, &opened.live, Metric::Requested, &columns, BlockId(2));
    let none = None::<Range<u64>>;
    let (high, low) = (Some(30..60), Some(20..50));
    assert_eq!(outline, [&none, &none, &high, &high, &low, &low, &none, &none, &none].map(Clone::clone));
}

#[test]
fn devices_do_not_mix() {
    let mut opened = open(
        "
        alloc a 10
        alloc x 15 device=1
        alloc b 10
        free_requested x device=1
    ",
    );
    let height = 3;
    check(
        &opened.raster(&opened.whole(Metric::Requested, 10, height)),
        &expect![[r#"
            .....
            ...22
            .0000
            0:0 1:10 2:10 3:20 4:20
        "#]],
    );
    opened.bands = Bands::in_block_order(&opened.trace, DeviceId(1));
    opened.series = Series::build(&opened.trace, DeviceId(1));
    opened.live = LiveIndex::build(&opened.trace, DeviceId(1));
    let raster = opened.raster(&opened.whole(Metric::Requested, 15, 1));
    assert_eq!(text_of(&raster), "..11.\n0:0 1:0 2:15 3:15 4:0\n");
}

#[test]
fn an_empty_recording_and_an_empty_window_are_pictures_too() {
    let opened = open("");
    let raster = opened.raster(&opened.whole(Metric::Requested, 1, 2));
    assert_eq!(text_of(&raster), ".\n.\n0:0\n");
    let nothing = BandWindow { width: 0, height: 0, ..opened.whole(Metric::Requested, 1, 2) };
    assert!(opened.raster(&nothing).columns.is_empty());
}

/// `count` blocks of one KiB, freed oldest first: every free moves every block above it.
fn freed_oldest_first(count: usize) -> String {
    let mut text = String::new();
    for block in 0..count {
        writeln!(text, "alloc b{block} 1024").unwrap();
    }
    for block in 0..count {
        writeln!(text, "free b{block}").unwrap();
    }
    text
}

#[test]
fn blocks_freed_oldest_first_cost_pixels_and_live_blocks_alone() {
    let (width, height) = (400, 300);
    let cost = |count: usize| {
        let opened = open(&freed_oldest_first(count));
        let bytes = 0..1024 * count as u64;
        let across = Across::Moments(0.0..3.0 * count as f64 + 1.0);
        let raster = opened.raster(&BandWindow { metric: Metric::Requested, across, width, bytes, height });
        let peak = raster.columns.iter().map(|column| column.bytes).max();
        assert_eq!(peak, Some(1024 * count as u64), "the peak is lost");
        raster.cost
    };
    let cost = cost(10_000);
    // A column's moment is at most two strides of 64 and the largest stride between away.
    assert!(cost.events <= 3 * 64 * width as u64, "{cost:?}");
    // Blocks × frees would be 100 million, and blocks × columns 4 million: a pixel searches one pile of 64.
    assert!(cost.visits < 2_500_000, "{cost:?}");
}

#[test]
fn a_picture_costs_no_more_where_it_spans_more_events() {
    // Steps of a hundred short-lived blocks over ten that are kept.
    let cost = |steps: usize| {
        let mut text: String = (0..10).map(|kept| format!("alloc k{kept} 64\n")).collect();
        for step in 0..steps {
            (0..100).for_each(|block| write!(text, "alloc t{step}_{block} 32\nfree t{step}_{block}\n").unwrap());
        }
        let opened = open(&text);
        let across = Across::Moments(0.0..opened.trace.events.len() as f64 + 1.0);
        let window = BandWindow { metric: Metric::Active, across, width: 50, bytes: 0..1024, height: 40 };
        let raster = opened.raster(&window);
        assert!(raster.columns[1..].iter().all(|column| column.bytes == 10 * 64 + 32), "a temporary is lost");
        raster.cost
    };
    let (few, many) = (cost(100), cost(800));
    assert!(many.events <= 3 * 64 * 50, "{many:?}");
    assert!(many.blocks <= few.blocks + 20 && many.visits < 2 * few.visits, "{few:?} {many:?}");
}

#[test]
fn a_picture_of_a_few_events_walks_no_others() {
    let opened = open(&freed_oldest_first(10_000));
    let across = Across::Moments(15_000.0..15_100.0);
    let width = 1000;
    let window = BandWindow { metric: Metric::Requested, across, width, bytes: 0..1 << 24, height: 10 };
    let cost = opened.raster(&window).cost;
    // Each run of at least 32 columns begins at a checkpoint that is less than 64 events away.
    assert!(cost.events <= 200 + 64 * (width as u64 / 32 + 1), "{cost:?}");
}

#[test]
fn the_indices_take_less_than_three_bytes_an_event_however_many_devices_there_are() {
    let mut text = String::new();
    for block in 0..8000 {
        writeln!(text, "alloc b{block} 1024 device={0}\nfree b{block} device={0}", block % 4).unwrap();
    }
    let trace = trace_from_text(&text).unwrap();
    let of_device =
        |device| Series::build(&trace, device).memory_bytes() + LiveIndex::build(&trace, device).memory_bytes();
    let all: usize = trace.device_ids().into_iter().map(of_device).sum();
    assert!(all < 3 * trace.events.len(), "{all} bytes for {} events", trace.events.len());
}

#[test]
fn lines_show_the_largest_of_every_total_in_each_column() {
    let opened = open(
        "
        baseline_segment 0x1000 64
        alloc a 10/16
        segment_alloc 0x2000 128
        alloc b 30/32
        free_requested b
        segment_free 0x2000 128
        free_completed b
        alloc c 50/64
    ",
    );
    let window = |width| BandWindow { width, ..opened.whole(Metric::Requested, 1, 1) };
    let lines = |width| {
        let totals = column_totals(
            &opened.trace,
            &opened.series,
            &BandWindow { across: Across::Moments(0.0..8.0), ..window(width) },
        );
        totals.iter().map(|at| (at.requested, at.active, at.reserved)).collect::<Vec<_>>()
    };
    assert_eq!(lines(2), [(40, 48, 192), (60, 80, 192)]);
    let each = [
        (0, 0, 64),
        (10, 16, 64),
        (10, 16, 192),
        (40, 48, 192),
        (10, 48, 192),
        (10, 48, 64),
        (10, 16, 64),
        (60, 80, 64),
    ];
    assert_eq!(lines(8), each);
    assert_eq!(lines(16), each.iter().flat_map(|at| [*at, *at]).collect::<Vec<_>>());
}
