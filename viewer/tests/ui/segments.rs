//! Tests of the segments view, driven through its accessibility tree and keys.

use std::sync::Arc;

use eframe::egui::accesskit::Toggled;
use eframe::egui::{CentralPanel, Key, Panel, Pos2, Vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use highwater_analysis::{Filter, Matches};
use highwater_app::gui::{
    Action, Computed as _, Reason, RecordingView as _, SegmentsView, Timeline, Under, ViewContext,
};
use highwater_app::selection::{Pin, Selection};
use highwater_app::session::Recording;
use highwater_notation::trace_from_text;
use highwater_snapshots::{BlockId, Trace};

use super::harness::{click_at, look, right_click_at};

const MIB: u64 = 1 << 20;

/// The frame around the views in the app.
struct Stage {
    recording: Arc<Recording>,
    selection: Selection,
    timeline: Timeline,
    view: SegmentsView,
    filter: Filter,
    matches: Arc<Matches>,
    actions: Vec<Action>,
}

impl Stage {
    fn ui(&mut self, ui: &mut eframe::egui::Ui) {
        self.timeline.receive(ui.ctx());
        Panel::top("timeline").exact_size(220.0).show(ui, |ui| {
            self.timeline.timeline_ui(ui, &self.recording, &mut self.selection, &look());
        });
        CentralPanel::default().show(ui, |ui| {
            let (trace, metric) = (&self.recording.trace, self.selection.metric);
            let index = &self.recording.devices[self.selection.device];
            let pinned = self.selection.pin.map(|pin| index.moment(trace, metric, pin.moment));
            let context = ViewContext {
                recording: &self.recording,
                selection: &self.selection,
                moment: pinned.unwrap_or_else(|| index.peak(trace, metric)),
                reason: Reason::Pinned,
                matches: &self.matches,
                filter: &self.filter,
                under: Under::of(&self.timeline),
                is_picture: false,
            };
            for action in self.view.view_ui(ui, &context) {
                if let Action::Moment(moment) = action {
                    self.selection.pin = Some(Pin { block: None, moment });
                }
                self.actions.push(action);
            }
        });
    }
}

fn harness(trace: Trace, moment: usize) -> Harness<'static, Stage> {
    let recording = Arc::new(Recording::new("test", None, trace));
    let mut selection = Selection::new(&recording);
    selection.pin = Some(Pin { block: None, moment });
    let filter = Filter::default();
    let stage = Stage {
        matches: Arc::new(Matches::of(&recording.trace, &filter)),
        recording,
        selection,
        timeline: Timeline::default(),
        view: SegmentsView::default(),
        filter,
        actions: Vec::new(),
    };
    let builder = Harness::builder().with_size(Vec2::new(1500.0, 1000.0)).with_max_steps(16);
    let mut harness = builder.build_ui_state(|ui, stage: &mut Stage| stage.ui(ui), stage);
    settle(&mut harness);
    harness
}

/// Runs frames until everything requested is computed and shown.
fn settle(harness: &mut Harness<'_, Stage>) {
    for _ in 0..8 {
        harness.run_steps(2);
        let stage = harness.state_mut();
        if !stage.timeline.is_busy() && !stage.view.is_busy() {
            return;
        }
        stage.timeline.wait();
        stage.view.wait();
    }
    panic!("the view never becomes complete");
}

fn go_to(harness: &mut Harness<'_, Stage>, moment: usize) {
    harness.state_mut().selection.pin = Some(Pin { block: None, moment });
    settle(harness);
}

fn click(harness: &mut Harness<'_, Stage>, at: Pos2) {
    click_at(harness, at);
    settle(harness);
}

fn press(harness: &mut Harness<'_, Stage>, label: &str) {
    harness.get_by_label(label).click();
    settle(harness);
}

/// Two segments of the large pool and one of the small one; a block in three waits for a stream. At the end eight
/// blocks of 8 MiB are live, except for three, and a request of 20 MiB fails.
fn crowded() -> Trace {
    let mut text = "segment_alloc 0x10000000 2097152 small\nsegment_alloc 0x0 67108864\n".to_owned();
    for name in "abcdefgh".chars() {
        text += &format!("alloc {name} 8388000/8388608 activation #op_{name} @net\n");
    }
    text += "alloc s 1000/1024 small parameter\nsegment_alloc 0x20000000 20971520 stream=7\n\
             free a\nfree d\nfree_requested g\noom 20971520 free=1048576 #matmul @net.fc\nfree_completed g\n\
             oom 41943040 free=0\n";
    trace_from_text(&text).unwrap().edited(|trace| trace.blocks.address[8] = 0x1000_0000)
}

/// The moment after the first failed request.
const FIRST_OOM: usize = 18;

#[test]
fn the_headline_and_the_table_say_how_segments_are_used() {
    let mut harness = harness(crowded(), FIRST_OOM - 1);
    let five = 5 * 8_388_000 + 1000;
    assert_eq!(five, 41_941_000);
    harness.get_by_label_contains("Reserved 86 MiB: 40.00 MiB requested");
    harness.get_by_label_contains("8 MiB awaiting free, 38.00 MiB free in 4 ranges");
    harness.get_by_label_contains("largest request that fits: 20 MiB from the cache (stream 7)");
    harness.get_by_label("Segments: 3 rows");
    harness.get_by_label("small · 0 · 0x10000000 · 2 MiB · <0.1% · 2.00 MiB · 2.00 MiB · - · 1");
    harness.get_by_label("large · 0 · 0x0 · 64 MiB · 62% · 8.00 MiB · 16.00 MiB · 8 MiB · 6");
    harness.get_by_label("large · 7 · 0x20000000 · 20 MiB · 0% · 20.00 MiB · 20.00 MiB · - · 0");
    harness.get_by_label_contains("Address lanes: 86 MiB of addresses over time in 3 pools");
    for kind in ["block", "rounding", "waiting", "free", "not mapped", "not reserved"] {
        harness.get_by_label_contains(&format!("Pattern of {kind}: "));
    }
    let csv = harness.state_mut().view.csv().unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(
        lines[0],
        "\"pool\",\"stream\",\"address\",\"bytes\",\"used_share\",\"largest_free_bytes\",\"free_bytes\",\"waiting_bytes\",\"blocks\""
    );
    assert_eq!(lines[2], format!("\"large\",0,0,{},0.625,{},{},{},6", 64 * MIB, 8 * MIB, 16 * MIB, 8 * MIB));
    // An earlier moment has other segments.
    go_to(&mut harness, 1);
    harness.get_by_label("Segments: 1 row");
    go_to(&mut harness, 0);
    harness.get_all_by_label("No segments are reserved at this moment.").next().unwrap();
}

#[test]
fn segments_are_sorted_and_walked_by_keyboard() {
    let mut harness = harness(crowded(), FIRST_OOM - 1);
    press(&mut harness, "Sort Segments by Bytes");
    let rows = |harness: &Harness<'_, Stage>| -> Vec<String> {
        let rows = harness.get_all_by_role(eframe::egui::Role::Row);
        rows.filter_map(|row| row.accesskit_node().label()).filter(|label| label.contains("0x")).collect()
    };
    let sorted = rows(&harness);
    assert!(sorted[0].contains("64 MiB") && sorted[2].contains("2 MiB"), "{sorted:?}");
    harness.get_by_label("Segments: 3 rows").focus();
    harness.run_steps(3);
    for _ in 0..2 {
        harness.key_press(Key::ArrowDown);
        settle(&mut harness);
    }
    let is_chosen = |harness: &Harness<'_, Stage>, what: &str| {
        let node = harness.get_by_label_contains(what);
        node.accesskit_node().toggled() == Some(Toggled::True)
    };
    assert!(is_chosen(&harness, "0x20000000 · 20 MiB"));
    // Enter: the lanes show that segment alone, and Enter again all.
    harness.key_press(Key::Enter);
    settle(&mut harness);
    harness.get_by_label_contains("Address lanes: 20 MiB of addresses");
    harness.key_press(Key::Enter);
    settle(&mut harness);
    harness.get_by_label_contains("Address lanes: 86 MiB of addresses");
}

#[test]
fn a_right_click_on_a_block_of_the_map_offers_what_can_be_done_with_it() {
    let mut harness = harness(crowded(), FIRST_OOM - 1);
    let map = harness.get_by_label_contains("Address map: 3 segments").rect();
    let across = |row: u16| (0..150_u16).map(move |step| (f32::from(step) * 5.0, (f32::from(row) + 0.4) * 19.0));
    let mut places = (0..3).flat_map(across).map(|(x, y)| Pos2::new(map.left() + x, map.top() + y));
    let is_open = |harness: &Harness<'_, Stage>| harness.query_by_label("Zoom to its lifetime").is_some();
    while !is_open(&harness) {
        right_click_at(&mut harness, places.next().expect("a block in the row"));
    }
    press(&mut harness, "Show its call stack and facts");
    assert!(matches!(harness.state().actions.last(), Some(Action::Block(BlockId(_)))));
}

#[test]
fn the_map_is_walked_piece_by_piece_and_gives_its_blocks() {
    let mut harness = harness(crowded(), FIRST_OOM - 1);
    harness.get_by_label_contains("Address map: 3 segments").focus();
    harness.run_steps(3);
    let mut seen = Vec::new();
    for key in [Key::ArrowUp, Key::ArrowDown, Key::ArrowRight, Key::ArrowRight, Key::ArrowDown] {
        harness.key_press(key);
        settle(&mut harness);
        let label = harness.get_by_label_contains("Address map: 3 segments").accesskit_node().label().unwrap();
        seen.push(label.rsplit_once("; at ").unwrap().1.to_owned());
    }
    let expected = [
        "0x10000000: live block, parameter, 1000 B",
        "0x0: free, 8 MiB",
        "0x800000: live block, activation, 8.00 MiB",
        "0xfffda0: rounding loss, activation, 608 B",
        "0x20000000: free, 20 MiB",
    ];
    assert_eq!(seen, expected);
    for key in [Key::ArrowLeft, Key::ArrowLeft, Key::Enter] {
        harness.key_press(key);
        settle(&mut harness);
    }
    // The last pieces at the left of it: the small segment's hole, and its block with its rounding.
    harness.key_press(Key::ArrowLeft);
    settle(&mut harness);
    harness.key_press(Key::Enter);
    settle(&mut harness);
    assert_eq!(harness.state().actions, [Action::Block(BlockId(8)), Action::Block(BlockId(8))]);
}

#[test]
fn a_click_in_the_lanes_gives_the_block_that_lies_there() {
    let mut harness = harness(crowded(), FIRST_OOM - 1);
    let lanes = harness.get_by_label_contains("Address lanes: ").rect();
    let plot = harness.state().timeline.frame().unwrap().rect;
    assert_eq!((lanes.left(), lanes.right()), (plot.left(), plot.right()), "they lie exactly under the timeline");
    // The axis: 2 MiB of the small pool, 64 MiB of the large one, 20 of stream 7.
    let at = |harness: &Harness<'_, Stage>, moment: usize, mebibyte: f32| {
        let frame = harness.state().timeline.frame().unwrap();
        let x = frame.screen_x(harness.state().selection.middle_of(&harness.state().recording.trace, moment));
        Pos2::new(x, lanes.top() + lanes.height() * mebibyte / 86.0)
    };
    let places =
        [(10, 2.0 + 12.0), (10, 2.0 + 60.0), (FIRST_OOM, 2.0 + 52.0), (FIRST_OOM, 2.0 + 28.0), (3, 2.0 + 12.0)];
    for (moment, mebibyte) in places {
        let place = at(&harness, moment, mebibyte);
        click(&mut harness, place);
    }
    let expected = [
        Action::Block(BlockId(1)),
        Action::Block(BlockId(7)),
        Action::Block(BlockId(6)),
        Action::Moment(FIRST_OOM),
        Action::Moment(3),
    ];
    assert_eq!(harness.state().actions, expected, "a live one twice, a waiting one, a free range twice");
}

#[test]
fn every_out_of_memory_is_explained_against_what_was_free() {
    let mut harness = harness(crowded(), 5);
    assert!(harness.query_by_label_contains("requested by matmul").is_none());
    press(&mut harness, "Why 2 requests failed");
    assert_eq!(harness.state().actions, [Action::Moment(FIRST_OOM)]);
    harness.get_by_label("Why it failed (1 of 2)");
    assert!(harness.query_by_label_contains("outside the allocator").is_none(), "it is not recorded");
    harness.get_by_label("20 MiB requested by matmul of net.fc: 40.00 MiB of 87 MiB allocated in live blocks.");
    harness.get_by_label_contains("Probable cause: free memory held by another pool or stream.");
    harness.get_by_label("40 MiB, 5 blocks: activation net");
    harness.get_by_label("20 MiB requested");
    harness.get_by_label("20 MiB free at 0x20000000, large pool, stream 7");
    harness.get_by_label("8 MiB free at 0x0, large pool, stream 0");
    harness.get_by_label("1 MiB free on the device");
    harness.get_by_label("To free: 16 MiB allocated in 2 blocks");
    harness.get_by_label("16 MiB, 2 blocks: activation net");
    press(&mut harness, "Show in the map");
    let chosen = harness.get_by_label_contains("0x0 · 64 MiB");
    assert_eq!(chosen.accesskit_node().toggled(), Some(Toggled::True), "the segment in question is chosen");
    press(&mut harness, "Next");
    harness.get_by_label("Why it failed (2 of 2)");
    harness.get_by_label_contains("40 MiB requested: ");
    assert_eq!(harness.state().actions.last(), Some(&Action::Moment(FIRST_OOM + 2)));
    press(&mut harness, "Previous");
    harness.get_by_label("Why it failed (1 of 2)");
}

#[test]
fn recordings_without_segments_say_so_and_still_have_lanes() {
    let harness = harness(trace_from_text("alloc a 1024\nalloc b 1024\nfree a").unwrap(), 2);
    let mut told = harness.get_all_by_label_contains("No segments are known at this moment, only 2 blocks of 2 KiB");
    assert!(told.next().is_some());
    harness.get_by_label_contains("Address lanes: 2 KiB of addresses over time in 1 pool,");
}

#[test]
fn the_look_of_the_map_changes_by_its_buttons() {
    let mut harness = harness(crowded(), FIRST_OOM - 1);
    for button in ["One row each", "Larger", "Smaller", "Only this segment", "Copy table"] {
        harness.get_by_label(button);
    }
    press(&mut harness, "One row each");
    let map = harness.get_by_label_contains("Address map: 3 segments").rect();
    // The third row is the free segment of stream 7, the first the small one.
    click(&mut harness, Pos2::new(map.center().x, map.top() + 2.0 * 19.0 + 8.0));
    let chosen = harness.get_by_label_contains("0x20000000 · 20 MiB");
    assert_eq!(chosen.accesskit_node().toggled(), Some(Toggled::True));
    press(&mut harness, "Copy table");
    assert_eq!(harness.state().actions, [Action::ShowMessage("Copied 3 segments as CSV.".to_owned())]);
}
