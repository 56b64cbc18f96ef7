//! The controls of the Moment panel: moment or range, table, treemap or flame graph, grouping keys, and breadcrumbs.

use std::ops::Range;

use eframe::egui::{Grid, Label, RichText, Ui};
use highwater_analysis::{Balance, GroupKey, NodeId, Question, Siblings, TreeKey};
use highwater_snapshots::{count_of, format_bytes, format_signed_bytes};

use super::job::Answer;
use super::names;
use super::tile::Act;
use crate::Recording;
use crate::gui::views::group_keys::{absent_reason, keys_ui, tree_keys};
use crate::gui::views::view::ViewContext;
use crate::gui::widgets::moment_text;
use crate::report::cut;
use crate::session::absent::Absent;

highwater_snapshots::vocabulary!(
    /// The forms in which the memory in use can be shown.
    #[derive(Default, serde::Serialize, serde::Deserialize)]
    MomentLook {
        /// A sortable table.
        #[default]
        Table = "Table",
        /// A treemap: nested rectangles.
        Treemap = "Treemap",
        /// A flame graph: stacked bars.
        Flame = "Flame",
    }
);

/// The form in which memory is shown, and its grouping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Choices {
    /// The form in which the groups are shown.
    pub look: MomentLook,
    /// The first grouping key.
    pub first: TreeKey,
    /// The second grouping key, within the first.
    pub second: Option<TreeKey>,
    /// Whether stacks omit frames of libraries and frameworks.
    pub hides_internals: bool,
    /// Whether stacks start with the innermost frame.
    pub is_inverted: bool,
    /// Whether identical modules are combined into one row of the table.
    #[serde(default)]
    pub siblings: Siblings,
}

impl Default for Choices {
    fn default() -> Self {
        let first = TreeKey::By(GroupKey::Category);
        let (look, siblings) = (MomentLook::Table, Siblings::Merged);
        Self { look, first, second: None, hides_internals: true, is_inverted: false, siblings }
    }
}

impl Choices {
    /// The choices for a recording without events: by pool, then by line of code.
    pub(crate) const OF_STATE: Self = Self {
        look: MomentLook::Treemap,
        first: TreeKey::By(GroupKey::Pool),
        second: Some(TreeKey::By(GroupKey::Frame)),
        hides_internals: true,
        is_inverted: false,
        siblings: Siblings::Merged,
    };

    /// Replaces the first key by the default key, and drops the second, if no block has a value for it.
    pub(super) fn possible(self, absent: &Absent) -> Self {
        let has = |key: &TreeKey| absent_reason(absent, *key).is_none();
        let first = if has(&self.first) { self.first } else { Self::default().first };
        Self { first, second: self.second.filter(has), ..self }
    }

    /// Changes the form in which memory is shown. In a flame graph by one flat key, stacks become the second key; the
    /// other forms drop stacks as the second key again.
    pub(crate) fn show_as(&mut self, look: MomentLook) {
        let stack = Some(TreeKey::By(GroupKey::Stack));
        let is_flat = |key: TreeKey| !matches!(key, TreeKey::Block | TreeKey::By(GroupKey::Stack | GroupKey::Scope));
        self.second = match (look, self.second) {
            (MomentLook::Flame, None) if is_flat(self.first) => stack,
            (_, second) if self.look == MomentLook::Flame && look != self.look => second.filter(|_| second != stack),
            (_, second) => second,
        };
        self.look = look;
    }

    pub(crate) fn is_of_modules(&self) -> bool {
        let is_module = |key: &TreeKey| matches!(key, TreeKey::By(GroupKey::Scope | GroupKey::ScopeTo(_)));
        is_module(&self.first) || self.second.as_ref().is_some_and(is_module)
    }

    pub(crate) fn is_of_stacks(&self) -> bool {
        let stack = TreeKey::By(GroupKey::Stack);
        self.first == stack || self.second == Some(stack)
    }
}

/// Width of the panel below which the tabs and the keys are in separate rows, in points.
const NARROW: f32 = 372.0;

pub(super) fn choices_ui(ui: &mut Ui, choices: &mut Choices, recording: &Recording) {
    ui.horizontal_wrapped(|ui| {
        for &look in MomentLook::ALL {
            if ui.selectable_label(choices.look == look, look.name()).clicked() {
                choices.show_as(look);
            }
        }
        if ui.max_rect().width() < NARROW {
            ui.end_row();
        }
        let keys: Vec<TreeKey> = tree_keys(recording.deepest_scope).collect();
        let chosen = (&mut choices.first, &mut choices.second);
        keys_ui(ui, ["Group by", "Then group by"], chosen, &keys, |key| absent_reason(&recording.absent, key));
    });
    if choices.is_of_modules() && choices.look == MomentLook::Table {
        let mut is_each = choices.siblings == Siblings::Each;
        ui.checkbox(&mut is_each, "Each module")
            .on_hover_text("List identical modules, such as layers whose paths differ only in a number, individually.");
        choices.siblings = if is_each { Siblings::Each } else { Siblings::Merged };
    }
    if choices.is_of_stacks() {
        ui.horizontal_wrapped(|ui| {
            ui.checkbox(&mut choices.hides_internals, "Hide internals")
                .on_hover_text("Hide frames of the allocator and the framework, and native frames below Python.");
            ui.checkbox(&mut choices.is_inverted, "Innermost first")
                .on_hover_text("Show the innermost frame first, then its callers.");
        });
    }
}

/// Shows the switch between a single moment and the range between the marks.
pub(super) fn source_ui(ui: &mut Ui, shows_range: &mut bool) {
    ui.horizontal(|ui| {
        ui.selectable_value(shows_range, false, "Moment").on_hover_text("Memory in use at one moment.");
        ui.selectable_value(shows_range, true, "From A to B")
            .on_hover_text("Memory allocated, freed and kept between the two marks.");
    });
}

/// Shows the classes of blocks between the marks as buttons with their bytes, and how the bytes add up.
pub(super) fn question_ui(ui: &mut Ui, question: &mut Question, balance: &Balance) {
    Grid::new("questions").num_columns(2).spacing([6.0, 1.0]).show(ui, |ui| {
        for pair in Question::ALL.chunks(2) {
            for &asked in pair {
                let sum = balance.get(asked);
                let text = RichText::new(format!("{}: {}", asked.name(), format_bytes(sum.bytes))).size(12.0);
                let blocks = count_of(sum.blocks, "block");
                ui.selectable_value(question, asked, text).on_hover_text(format!("{}; {blocks}", asked.meaning()));
            }
            ui.end_row();
        }
    });
    let [a, b] = [Question::AliveAtA, Question::AliveAtB].map(|question| balance.get(question).bytes);
    let change = i64::try_from(i128::from(b) - i128::from(a)).unwrap_or_default();
    ui.weak(format!(
        "{} + {} allocated − {} freed = {} ({})",
        format_bytes(a),
        format_bytes(balance.born.bytes),
        format_bytes(balance.freed.bytes),
        format_bytes(b),
        format_signed_bytes(change)
    ));
}

pub(super) fn range_ui(ui: &mut Ui, context: &ViewContext<'_>, marks: &Range<usize>) {
    let trace = &context.recording.trace;
    let metric = context.moment.metric;
    for (name, position) in [("A", marks.start.min(marks.end)), ("B", marks.start.max(marks.end))] {
        let moment = context.index().moment(trace, metric, position);
        let text = format!("{name}: {}", moment_text(&moment));
        ui.add(Label::new(RichText::new(&text).weak().size(12.0)).truncate()).on_hover_text(&text);
    }
}

/// Shows the breadcrumbs to the focus; a click goes to any of its ancestors. Shows nothing without a focus.
pub(super) fn breadcrumb_ui(ui: &mut Ui, answer: &Answer) -> Option<Act> {
    /// Number of parts shown at the end of a long path.
    const SHOWN: usize = 3;
    const LETTERS: usize = 22;
    let path = answer.tree.path(answer.focus);
    if path.is_empty() {
        return None;
    }
    let recording = &answer.request.source.recording;
    let mut act = None;
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 3.0;
        if ui.small_button("all").on_hover_text("Show everything.").clicked() {
            act = Some(Act::Enter(NodeId::ROOT));
        }
        let left_out = path.len().saturating_sub(SHOWN);
        if left_out > 0 {
            ui.weak(format!("> ({left_out} more)"));
        }
        for &id in &path[left_out..] {
            ui.weak(">");
            let name = names::short(recording, &answer.tree, id);
            if ui.small_button(cut(&name, LETTERS)).on_hover_text(&name).clicked() {
                act = Some(Act::Enter(id));
            }
        }
        if ui.small_button("Up").on_hover_text("Go one level up (Backspace).").clicked() {
            act = Some(Act::Up);
        }
    });
    act
}
