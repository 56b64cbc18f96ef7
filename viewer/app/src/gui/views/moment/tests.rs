//! Tests of the panel, driven through the accessibility tree, and of its pictures against exact sums.

use eframe::egui::{Key, Modifiers, Rect, Vec2, pos2, vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use highwater_analysis::{Filter, GroupKey, Matches, Metric, Siblings, TreeKey};
use highwater_notation::trace_from_text;
use highwater_snapshots::{BlockId, format_share};

use super::tile::What;
use super::*;
use crate::gui::widgets::Computed as _;
use crate::{Recording, Selection};

/// At its peak, after event 5: two weights, two activations of one layer, one of another, and a large temporary.
const NET: &str = "
    baseline w 4000 parameter @net.a
    baseline v 2000 parameter @net.b
    alloc a 1000 activation #linear @net.a < c10::cuda::malloc < forward < main
    alloc b 500 activation #linear @net.a < c10::cuda::malloc < forward < main
    alloc c 300 activation #relu @net.b < at::relu < norm < forward < main
    alloc t 8000 temporary #adam @opt < c10::cuda::malloc < step < main
    alloc d 200 gradient #relu @net.b < backward < main
    free t
    free a
    alloc e 100 gradient #linear @net.a < backward < main
";

/// The panel with what it is shown and what it wished for.
struct Bench {
    recording: Arc<Recording>,
    selection: Selection,
    filter: Filter,
    position: Option<usize>,
    panel: MomentPanel,
    actions: Vec<Action>,
}

impl Bench {
    fn new(text: &str) -> Self {
        let recording = Arc::new(Recording::new("test", None, trace_from_text(text).unwrap()));
        Self {
            selection: Selection::new(&recording),
            recording,
            filter: Filter::default(),
            position: None,
            panel: MomentPanel::default(),
            actions: Vec::new(),
        }
    }

    fn by(mut self, look: MomentLook, first: GroupKey, second: Option<TreeKey>) -> Self {
        self.panel.choices = Choices { look, first: TreeKey::By(first), second, ..Choices::default() };
        self
    }

    fn with_scene<R>(&mut self, with: impl FnOnce(&mut MomentPanel, &ViewContext<'_>) -> R) -> R {
        let index = &self.recording.devices[0];
        let trace = &self.recording.trace;
        let moment = match self.position {
            Some(position) => index.moment(trace, Metric::Requested, position),
            None => index.peak(trace, Metric::Requested),
        };
        let reason = if self.position.is_some() { Reason::Pinned } else { Reason::Peak };
        let matches = Arc::new(Matches::of(trace, &self.filter));
        let context = ViewContext {
            recording: &self.recording,
            selection: &self.selection,
            moment,
            reason,
            matches: &matches,
            filter: &self.filter,
            under: None,
            is_picture: false,
        };
        with(&mut self.panel, &context)
    }

    fn answer(&mut self) -> Arc<Answer> {
        self.with_scene(|panel, context| {
            panel.follow(context.selection.range());
            Answerer::default().answer(&panel.request(context))
        })
    }

    fn csv(&mut self) -> String {
        self.with_scene(MomentPanel::csv)
    }

    fn shown(self) -> Harness<'static, Self> {
        let builder = Harness::builder().with_size(Vec2::new(380.0, 800.0)).with_max_steps(16);
        let mut harness = builder.build_ui_state(
            |ui, bench: &mut Self| {
                let actions = bench.with_scene(|panel, context| panel.moment_ui(ui, context, false));
                bench.actions.extend(actions);
            },
            self,
        );
        settle(&mut harness);
        harness
    }
}

fn settle(harness: &mut Harness<'_, Bench>) {
    for _ in 0..8 {
        harness.run_steps(2);
        if !harness.state().panel.is_busy() {
            return;
        }
        harness.state_mut().panel.wait();
    }
    panic!("the panel never becomes complete");
}

fn click(harness: &mut Harness<'_, Bench>, label: &str) {
    harness.get_by_label(label).click();
    settle(harness);
}

fn press(harness: &mut Harness<'_, Bench>, key: Key) {
    harness.key_press(key);
    settle(harness);
}

#[test]
fn the_table_adds_up_and_a_row_shows_its_largest_blocks() {
    let mut harness = Bench::new(NET).shown();
    harness.get_by_label("At the peak");
    harness.get_by_label("temporary · 7.81 KiB · 50% · 1");
    harness.get_by_label("parameter · 5.86 KiB · 38% · 2");
    harness.get_by_label("Total of 4 groups, 7 blocks");
    click(&mut harness, "parameter · 5.86 KiB · 38% · 2");
    let listed: Vec<String> = harness
        .get_all_by_label_contains("parameter · ")
        .map(|node| node.accesskit_node().label().unwrap_or_default())
        .collect();
    assert_eq!(listed[1..], ["parameter · module net.a · 1 · 3.91 KiB", "parameter · module net.b · 1 · 1.95 KiB"]);
    click(&mut harness, "parameter · module net.a · 1 · 3.91 KiB");
    assert_eq!(harness.state().actions, [Action::Block(BlockId(0))]);
    click(&mut harness, "Only these");
    assert_eq!(harness.state().actions.last(), Some(&Action::Where("category=parameter".to_owned())));
    click(&mut harness, "Close");
    assert!(harness.query_by_label("Only these").is_none());
}

#[test]
fn who_made_the_largest_block_is_one_step_away() {
    let mut bench = Bench::new(NET);
    bench.panel.choices.first = TreeKey::Block;
    let mut harness = bench.shown();
    click(&mut harness, "temporary of adam by step · 7.81 KiB · 50% · 1");
    assert_eq!(harness.state().actions, [Action::Block(BlockId(5))]);
    harness.get_by_label("Total of 7 groups, 7 blocks");
}

#[test]
fn headings_sort_and_enter_filters() {
    let mut harness = Bench::new(NET).shown();
    let first = |harness: &mut Harness<'_, Bench>| {
        let answer = harness.state_mut().answer();
        answer.tree.name(&answer.request.source.recording.trace.tables, answer.rows[0])
    };
    assert_eq!(first(&mut harness), "temporary");
    click(&mut harness, "Sort Groups by Bytes");
    click(&mut harness, "Sort Groups by Bytes (largest first)");
    assert_eq!(first(&mut harness), "gradient");
    click(&mut harness, "Sort Groups by Blocks");
    assert_eq!(first(&mut harness), "activation");
    click(&mut harness, "Sort Groups by Name");
    let names = ["activation", "gradient", "parameter", "temporary"];
    assert!(names.contains(&first(&mut harness).as_str()));
    harness.get_by_label_contains("gradient · 200 B").click();
    settle(&mut harness);
    press(&mut harness, Key::Enter);
    assert_eq!(harness.state().actions, [Action::Where("category=gradient".to_owned())]);
}

#[test]
fn the_treemap_goes_in_and_out_by_click_and_by_keys() {
    let mut harness = Bench::new(NET).by(MomentLook::Treemap, GroupKey::Scope, None).shown();
    harness.get_by_label("Treemap by scope");
    harness.get_by_label("net: 7.81 KiB");
    harness.get_by_label("a: 5.37 KiB");
    click(&mut harness, "net: 7.81 KiB");
    assert!(harness.query_by_label("opt: 7.81 KiB").is_none(), "it is not part of what is shown");
    harness.get_by_label("b: 2.44 KiB");
    click(&mut harness, "Up");
    harness.get_by_label("opt: 7.81 KiB");
    click(&mut harness, "opt: 7.81 KiB");
    harness.get_by_label("Largest blocks: 1 row");
    press(&mut harness, Key::ArrowUp);
    let chosen = |harness: &Harness<'_, Bench>| harness.state().panel.chosen.clone();
    assert_eq!(chosen(&harness), Some(vec![job::Step::Named(0, "net".to_owned())]));
    press(&mut harness, Key::Enter);
    harness.get_by_label("b: 2.44 KiB");
    assert!(harness.query_by_label("opt: 7.81 KiB").is_none());
    press(&mut harness, Key::Backspace);
    harness.get_by_label("opt: 7.81 KiB");
    harness.key_press_modifiers(Modifiers::SHIFT, Key::Enter);
    settle(&mut harness);
    assert_eq!(harness.state().actions, [Action::Where("scope~net".to_owned())]);
}

#[test]
fn the_flame_graph_shows_whose_lines_are_whose_and_zooms() {
    let mut harness = Bench::new(NET).by(MomentLook::Flame, GroupKey::Stack, None).shown();
    harness.get_by_label_contains("all: 15.6");
    harness.get_by_label("main: 9.77 KiB");
    harness.get_by_label("forward: 1.76 KiB");
    harness.get_by_label("allocator");
    assert!(harness.query_by_label("at::relu: 300 B").is_none(), "internals are hidden at first");
    click(&mut harness, "Hide internals");
    harness.get_by_label("at::relu: 300 B");
    click(&mut harness, "forward: 1.76 KiB");
    assert!(harness.query_by_label("step: 7.81 KiB").is_none());
    harness.get_by_label("main: 9.77 KiB");
    press(&mut harness, Key::ArrowDown);
    click(&mut harness, "Only these");
    let action = Action::Where("frame=c10::cuda::malloc frame=forward".to_owned());
    assert_eq!(harness.state().actions.last(), Some(&action));
    harness.get_by_label("Flame graph by stack").focus();
    press(&mut harness, Key::Backspace);
    harness.get_by_label("step: 7.81 KiB");
    click(&mut harness, "Innermost first");
    harness.get_by_label("c10::cuda::malloc: 9.28 KiB");
}

#[test]
fn marks_ask_what_became_of_memory_and_add_up() {
    let mut bench = Bench::new(NET);
    bench.selection.marks = [Some(2), Some(9)];
    let mut harness = bench.shown();
    harness.get_by_label("live at A: 7.32 KiB");
    harness.get_by_label("born: 500 B");
    harness.get_by_label("7.32 KiB + 500 B allocated − 1000 B freed = 6.84 KiB (−500 B)");
    harness.get_by_label("Total of 2 groups, 2 blocks");
    click(&mut harness, "short-lived: 7.81 KiB");
    harness.get_by_label("temporary · 7.81 KiB · 100% · 1");
    click(&mut harness, "Moment");
    harness.get_by_label("At the peak");
    harness.get_by_label("Total of 4 groups, 7 blocks");
}

#[test]
fn what_is_chosen_stays_chosen_at_another_moment() {
    let mut harness = Bench::new(NET).shown();
    click(&mut harness, "parameter · 5.86 KiB · 38% · 2");
    harness.state_mut().position = Some(1);
    settle(&mut harness);
    harness.get_by_label("At the pinned moment");
    harness.get_by_label("parameter · 5.86 KiB · 86% · 2");
    harness.get_by_label("Largest blocks: 2 rows");
    harness.state_mut().filter = "category=activation".parse().unwrap();
    settle(&mut harness);
    harness.get_by_label("Total of 1 group, 1 block");
    assert!(harness.query_by_label("Largest blocks: 2 rows").is_none(), "none of it is left");
}

#[test]
fn files_hold_every_row_in_full_and_the_total() {
    let mut bench = Bench::new(NET).by(MomentLook::Table, GroupKey::Category, Some(TreeKey::By(GroupKey::Scope)));
    bench.filter = "scope~net.a".parse().unwrap();
    let expected = "\"category\",\"scope\",\"bytes\",\"blocks\"\n\"parameter\",\"net.a\",4000,1\n\"activation\",\"net.a\",1500,2\n\
                    \"total\",\"\",5500,3\n";
    assert_eq!(bench.csv(), expected);
    let mut bench = Bench::new(NET).by(MomentLook::Flame, GroupKey::Stack, None);
    bench.filter = "category=activation,temporary".parse().unwrap();
    let expected = "\"path\",\"bytes\",\"own_bytes\",\"blocks\"\n\"main\",9800,0,4\n\"main; step\",8000,8000,1\n\
                    \"main; forward\",1800,1500,3\n\"main; forward; norm\",300,300,1\n\"total\",9800,9800,4\n";
    assert_eq!(bench.csv(), expected);
}

#[test]
fn names_in_files_are_no_formulas_of_a_spreadsheet() {
    let text = "alloc a 5 activation @=1+1\nalloc b 6 activation @+cmd\n";
    for (look, total) in [(MomentLook::Table, "\"total\",11,2"), (MomentLook::Treemap, "\"total\",11,11,2")] {
        let file = Bench::new(text).by(look, GroupKey::Scope, None).csv();
        assert!(file.contains("\"'=1+1\",5,") && file.contains("\"'+cmd\",6,"), "{file}");
        assert!(file.trim_end().ends_with(total), "{file}");
    }
}

/// Many groups of very different sizes, most of them too small to be seen.
fn many() -> String {
    (0..3000)
        .map(|n| format!("alloc b{n} {} #op{} @net.m{}.k{}\n", 1 + 4_000_000 / (1 + n * n), n % 700, n % 40, n))
        .collect()
}

#[test]
fn tiles_and_bars_that_are_too_small_are_merged_with_exact_sums() {
    let mut bench = Bench::new(&many()).by(MomentLook::Treemap, GroupKey::Scope, Some(TreeKey::Block));
    let answer = bench.answer();
    let tree = &answer.tree;
    let rect = Rect::from_min_size(pos2(0.0, 0.0), vec2(340.0, 500.0));
    let tiles = treemap::tiles(tree, NodeId::ROOT, rect);
    let outer: u64 = tiles.iter().filter(|tile| tile.depth == 0).map(|tile| tile.item.bytes).sum();
    assert_eq!(outer, tree.total());
    let blocks: u64 = tiles.iter().filter(|tile| tile.depth == 0).map(|tile| tile.item.blocks).sum();
    assert_eq!(blocks, 3000);
    assert!(tiles.iter().any(|tile| matches!(tile.item.what, What::Rest { count, .. } if count > 1)));
    assert!(tiles.len() < 2000, "{} tiles", tiles.len());
    let bars = flame::bars(tree, NodeId::ROOT, 340.0);
    assert!(bars.is_sorted_by_key(|bar| bar.row) && bars.len() < 600, "{} bars", bars.len());
    for id in tree.ids() {
        let Some(bar) = bars.iter().find(|bar| bar.item.what == What::Node(id)) else {
            continue;
        };
        let node = tree.node(id);
        let below: Vec<_> = bars
            .iter()
            .filter(|other| match other.item.what {
                What::Node(child) => child != NodeId::ROOT && tree.node(child).parent == id,
                What::Rest { of, .. } => of == id,
                What::Own(_) => false,
            })
            .collect();
        let sum: u64 = below.iter().map(|bar| bar.item.bytes).sum();
        assert_eq!(sum, node.bytes - node.own_bytes);
        for other in below {
            assert!(other.left >= bar.left - 0.01 && other.right <= bar.right + 0.01);
            assert_eq!(other.row, bar.row + 1);
        }
    }
}

#[test]
fn stacks_with_one_innermost_line_are_distinguished_by_the_first_caller_that_differs() {
    let text = "
        alloc a 1000 < alloc (t.py:1) < one (m.py:10) < main (m.py:30)
        alloc b 900 < alloc (t.py:1) < two (m.py:20) < main (m.py:30)
        alloc c 800 < alloc (t.py:1) < two (m.py:20) < other (m.py:40)
        alloc d 700 < apart (m.py:50) < main (m.py:30)
    ";
    for is_inverted in [false, true] {
        let mut bench = Bench::new(text).by(MomentLook::Table, GroupKey::Stack, None);
        bench.panel.choices.is_inverted = is_inverted;
        let harness = bench.shown();
        let rows = harness.query_all_by_role(egui::Role::Row);
        let names: Vec<String> = rows
            .filter_map(|row| row.accesskit_node().label())
            .map(|label| label.split(" · ").next().unwrap_or_default().to_owned())
            .collect();
        let expected = [
            "alloc (t.py:1) < one (m.py:10)",
            "alloc (t.py:1) < … < main (m.py:30)",
            "alloc (t.py:1) < … < other (m.py:40)",
            "apart (m.py:50)",
        ];
        // The largest blocks are listed below the groups.
        assert_eq!(names[..4], expected, "inverted: {is_inverted}");
    }
}

#[test]
fn a_low_panel_shows_rows_rather_than_their_sum() {
    let mut harness = Bench::new(NET).shown();
    let has_total = |harness: &Harness<'_, Bench>| harness.query_by_label_contains("Total of").is_some();
    assert!(has_total(&harness));
    harness.set_size(vec2(380.0, 250.0));
    settle(&mut harness);
    assert!(!has_total(&harness));
    harness.state_mut().filter = "category=activation".parse().unwrap();
    settle(&mut harness);
    assert!(has_total(&harness), "no other sum of what was found is shown");
}

#[test]
fn equal_layers_are_one_row_of_the_table_unless_each_is_asked_for() {
    let layer = |at: u64, bytes: u64| format!("alloc a{at} {bytes} activation @h.{at}.mlp\n");
    let text: String = (0..4).map(|at| layer(at, if at == 3 { 7 } else { 500 })).collect();
    let mut bench = Bench::new(&text).by(MomentLook::Table, GroupKey::Scope, None);
    let answer = bench.answer();
    let first = answer.rows[0];
    assert_eq!((answer.rows.len(), answer.own(first)), (2, (1500, 3)));
    assert_eq!(answer.labels[&first], "h.{0-2}.mlp");
    let condition = answer.tree.condition_of(&bench.recording.trace, answer.nodes(&first)).unwrap();
    let matches = Matches::of(&bench.recording.trace, &condition.parse().unwrap());
    let found: Vec<BlockId> = bench.recording.trace.blocks.ids().filter(|id| matches.contains(*id)).collect();
    assert_eq!(found, [BlockId(0), BlockId(1), BlockId(2)], "{condition}");
    assert_eq!(bench.csv().lines().count(), 6, "each is a line of its own: {}", bench.csv());
    let mut harness = bench.shown();
    harness.get_by_label_contains("h.{0-2}.mlp  3 × 500 B");
    harness.state_mut().panel.choices.siblings = Siblings::Each;
    assert_eq!(harness.state_mut().answer().rows.len(), 4);
}

#[test]
fn a_flame_graph_by_one_key_has_the_stacks_below_it_and_a_table_has_not() {
    let stack = Some(TreeKey::By(GroupKey::Stack));
    let mut choices = Choices::default();
    for (look, second) in [(MomentLook::Flame, stack), (MomentLook::Flame, stack), (MomentLook::Table, None)] {
        choices.show_as(look);
        assert_eq!((choices.look, choices.second), (look, second));
    }
    let mut pools = Choices::OF_STATE;
    pools.show_as(MomentLook::Flame);
    pools.show_as(MomentLook::Table);
    assert_eq!(pools.second, Choices::OF_STATE.second, "a chosen key stays");
}

#[test]
fn equal_blocks_state_the_size_of_each_if_there_is_room() {
    let text = "alloc a 500 activation @net\nalloc b 500 activation @net\nalloc c 2000 activation @net";
    let mut harness = Bench::new(text).shown();
    harness.get_by_label("activation · module net · 2 × 500 B · 1000 B");
    harness.get_by_label("activation · module net · 1 · 1.95 KiB");
    harness.set_size(vec2(300.0, 800.0));
    settle(&mut harness);
    harness.get_by_label("activation · module net · 2 · 1000 B");
}

#[test]
fn the_table_by_category_states_what_leaks_as_the_legend_does() {
    let step =
        |n: u32| format!("step {n}\nalloc kept{n} 1000 < cache < main\nalloc t{n} 50 < forward < main\nfree t{n}\n");
    let text: String = (0..6).map(step).collect();
    let mut bench = Bench::new(&text).by(MomentLook::Table, GroupKey::Category, None);
    let recording = Arc::clone(&bench.recording);
    let leaks = recording.devices[0].leaks(&recording.source).unwrap();
    let leaking = recording.trace.blocks.ids().filter(|id| leaks.has(&recording.trace, *id)).count() as u64;
    let mut label = |position: Option<usize>| {
        bench.position = position;
        let answer = bench.answer();
        answer.labels[&answer.rows[0]].clone()
    };
    assert_eq!(label(None), format!("unknown, {} leaks", format_share(1000 * leaking, 6050)));
    assert_eq!(label(Some(2)), leaks.name());
}
