//! Keyboard: Tab reaches every control of every view, and each has a name for screen readers.

use std::collections::BTreeSet;

use eframe::egui::accesskit::Action;
use eframe::egui::{Key, Vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::NodeT as _;
use highwater_app::command::Command;
use highwater_app::gui::App;
use highwater_notation::trace_from_text;

use super::harness::{STEPS, harness, run, settle, steps};

/// The roles and names of controls, of all or only of the focused one.
fn controls(harness: &Harness<'_, App>, is_focused: bool) -> BTreeSet<String> {
    // For screen readers, the focus of a table is at its selected row.
    let focus = harness.ctx.memory(|memory| memory.focused()).map(|id| id.accesskit_id());
    let nodes = harness.root().children_recursive().filter_map(|node| {
        let node = node.accesskit_node();
        let is_control = node.data().supports_action(Action::Focus) && !node.is_disabled();
        let name = node.label().or_else(|| node.value()).unwrap_or_default();
        let is_asked = !is_focused || focus == Some(node.locate().0);
        (is_control && is_asked).then(|| format!("{:?} {name}", node.role()))
    });
    nodes.collect()
}

/// Asserts that Tab reaches all controls, and that these have names.
fn walk(harness: &mut Harness<'_, App>, view: &str) {
    let all = controls(harness, false);
    let nameless: Vec<&String> = all.iter().filter(|name| name.ends_with(' ')).collect();
    assert!(nameless.is_empty(), "{view}: controls without a name: {nameless:?}");
    let mut reached = BTreeSet::new();
    for _ in 0..2 * all.len() + 10 {
        harness.key_press(Key::Tab);
        harness.run_steps(2);
        reached.extend(controls(harness, true));
        if all.is_subset(&reached) {
            break;
        }
    }
    let missed: Vec<&String> = all.difference(&reached).collect();
    assert!(missed.is_empty(), "{view}: Tab does not reach {missed:?} of {}", all.len());
}

#[test]
fn tab_reaches_every_control_of_every_view_and_each_has_a_name() {
    walk(&mut harness(None), "first screen");
    let failed = format!("{STEPS}\nsegment_alloc 0x10000000 4096 large\noom 900 free=7 #linear < forward < main");
    let views = [
        Command::ShowMoment,
        Command::ShowBlock,
        Command::ShowStatistics,
        Command::ShowKept,
        Command::ShowSegments,
        Command::ShowEvents,
        Command::ShowExplain,
        Command::ShowWhatIf,
        Command::ShowPlan,
    ];
    for command in views {
        let mut harness = harness(Some(trace_from_text(&failed).unwrap()));
        harness.set_size(Vec2::new(1600.0, 1000.0));
        run(&mut harness, Command::LargestBlock);
        run(&mut harness, command);
        settle(&mut harness);
        walk(&mut harness, command.name());
    }
    let mut harness = harness(Some(steps()));
    run(&mut harness, Command::Compare);
    walk(&mut harness, "comparison");
}
