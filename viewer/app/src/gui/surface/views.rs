//! The views that a sheet can show, by name.

use eframe::egui::{CentralPanel, Frame, Margin, Panel, Rect, RichText, Ui, UiBuilder};
use highwater_analysis::{GroupKey, Siblings, TreeKey};

use super::sheet::Sheet;
use crate::figures::moment::peak_name;
use crate::gui::views::moment::{Choices, MomentLook};
use crate::gui::views::segments::Under;
use crate::gui::views::view::{Reason, ViewContext};
use crate::gui::widgets::layout::Bottom;
use crate::gui::widgets::query::Computed as _;
use crate::gui::widgets::words::when;

/// A view that can be drawn without a window.
#[derive(Clone, Copy, Debug)]
pub struct SheetView {
    /// The name on the command line.
    pub name: &'static str,
    /// Whether it shows the blocks of one moment in groups.
    pub is_of_moment: bool,
    /// Draws it. Returns whether all of it is complete.
    pub(super) draw: fn(&mut Sheet, &mut Ui) -> bool,
}

/// All views; the first is the default.
pub(crate) const VIEWS: &[SheetView] = &[
    SheetView { name: "timeline", is_of_moment: false, draw: Sheet::timeline_ui },
    SheetView { name: "segments", is_of_moment: false, draw: Sheet::segments_ui },
    SheetView { name: "flame", is_of_moment: true, draw: |sheet, ui| sheet.moment_ui(ui, FLAME) },
    SheetView { name: "treemap", is_of_moment: true, draw: |sheet, ui| sheet.moment_ui(ui, TREEMAP) },
    SheetView { name: "table", is_of_moment: true, draw: |sheet, ui| sheet.moment_ui(ui, TABLE) },
    EXPLAIN,
    PLAN,
];

const EXPLAIN: SheetView = SheetView { name: "explain", is_of_moment: false, draw: Sheet::explain_ui };

const PLAN: SheetView = SheetView { name: "plan", is_of_moment: false, draw: Sheet::plan_ui };

const TABLE: Choices = Choices {
    look: MomentLook::Table,
    first: TreeKey::By(GroupKey::Category),
    second: None,
    hides_internals: true,
    is_inverted: false,
    siblings: Siblings::Merged,
};
const TREEMAP: Choices = Choices { look: MomentLook::Treemap, second: Some(TreeKey::By(GroupKey::Scope)), ..TABLE };
const FLAME: Choices = Choices { look: MomentLook::Flame, first: TreeKey::By(GroupKey::Stack), ..TABLE };

/// Share of the timeline's height above segments or explanation.
const UPPER: f32 = 0.4;
/// Share of the timeline's height above the plan, which has a chart of its own.
const ABOVE_PLAN: f32 = 0.33;

impl SheetView {
    /// The view with this name.
    ///
    /// # Errors
    ///
    /// Fails with a message that lists all names if there is no such view.
    pub fn named(name: &str) -> Result<Self, String> {
        // A comparison is not a view of one recording, but is a valid name.
        let names: Vec<&str> = VIEWS.iter().map(|view| view.name).chain(["diff"]).collect();
        let found = VIEWS.iter().find(|view| view.name == name).copied();
        found.ok_or_else(|| format!("unknown view '{name}'; the views are: {}", names.join(", ")))
    }

    /// The view of the timeline with `bottom` below it. There is none for the list of events and the what-if
    /// form.
    pub fn beside(bottom: Option<Bottom>) -> Self {
        match bottom {
            Some(Bottom::Segments) => VIEWS[1],
            Some(Bottom::Explain) => EXPLAIN,
            Some(Bottom::Plan) => PLAN,
            Some(Bottom::Events | Bottom::WhatIf) | None => VIEWS[0],
        }
    }
}

impl Sheet {
    /// Its display name.
    pub fn title(&self, view: SheetView) -> String {
        format!("{}: {}", self.recording.name, view.name)
    }

    /// Draws title, view and facts. Returns whether all of it is complete.
    pub fn sheet_ui(&mut self, ui: &mut Ui, view: SheetView) -> bool {
        let frame = |ui: &Ui, top: i8, bottom: i8| {
            Frame::new().fill(ui.visuals().panel_fill).inner_margin(Margin { left: 12, right: 14, top, bottom })
        };
        let title = Panel::top("title").frame(frame(ui, 10, 2)).show_separator_line(false);
        title.show(ui, |ui| self.title_ui(ui));
        let facts = Panel::bottom("facts").frame(frame(ui, 2, 8)).show_separator_line(false);
        facts.show(ui, |ui| self.facts_ui(ui));
        let middle = CentralPanel::default().frame(frame(ui, 2, 2));
        middle.show(ui, |ui| (view.draw)(self, ui)).inner
    }

    /// The timeline in the upper part. Returns whether it is complete, and the lower part.
    fn upper_ui(&mut self, ui: &mut Ui, share: f32) -> (bool, Rect) {
        let whole = ui.available_rect_before_wrap();
        let (mut upper, mut lower) = (whole, whole);
        upper.max.y = whole.top() + whole.height() * share;
        lower.min.y = upper.max.y + 8.0;
        let above = UiBuilder::new().id_salt("above").max_rect(upper);
        (ui.scope_builder(above, |ui| self.timeline_ui(ui)).inner, lower)
    }

    /// The timeline, and below it the segments at the pinned moment, or at the peak.
    fn segments_ui(&mut self, ui: &mut Ui) -> bool {
        let (is_complete, lower) = self.upper_ui(ui, UPPER);
        let (moment, reason) = self.moment();
        let Self { recording, selection, timeline, look, filter, segments, .. } = self;
        let context = ViewContext {
            recording,
            selection,
            moment,
            reason,
            matches: &look.matches,
            filter,
            colouring: timeline.picture().map(|picture| &*picture.colouring),
        };
        let under = timeline.frame().zip(timeline.picture()).map(|(frame, picture)| Under { frame, picture });
        let below = UiBuilder::new().id_salt("below").max_rect(lower);
        ui.scope_builder(below, |ui| segments.segments_ui(ui, &context, under));
        segments.finish() && is_complete
    }

    /// The timeline, and the explanation of its peak below it.
    fn explain_ui(&mut self, ui: &mut Ui) -> bool {
        let (is_complete, lower) = self.upper_ui(ui, UPPER);
        let (moment, reason) = self.moment();
        let Self { recording, selection, look, filter, explain, .. } = self;
        let matches = &look.matches;
        let context = ViewContext { recording, selection, moment, reason, matches, filter, colouring: None };
        let below = UiBuilder::new().id_salt("below").max_rect(lower);
        ui.scope_builder(below, |ui| explain.explain_ui(ui, &context));
        explain.finish() && is_complete
    }

    /// The timeline, and the plan for a budget below it.
    fn plan_ui(&mut self, ui: &mut Ui) -> bool {
        let (is_complete, lower) = self.upper_ui(ui, ABOVE_PLAN);
        let (moment, reason) = self.moment();
        let Self { recording, selection, look, filter, plan, .. } = self;
        let matches = &look.matches;
        let context = ViewContext { recording, selection, moment, reason, matches, filter, colouring: None };
        let below = UiBuilder::new().id_salt("below").max_rect(lower);
        ui.scope_builder(below, |ui| plan.plan_ui(ui, &context));
        plan.finish() && is_complete
    }

    /// Memory in use at the pinned moment, or at the peak.
    pub(super) fn moment_ui(&mut self, ui: &mut Ui, choices: Choices) -> bool {
        let (moment, reason) = self.moment();
        let metric = moment.metric.name().replace('_', " ");
        let caption = match reason {
            Reason::Peak if moment.is_state => format!("{}: {metric} memory", peak_name(&moment)),
            Reason::Peak => format!("At the peak: {metric} memory, {}", when(&moment)),
            _ => format!("At the moment: {metric} memory, {}", when(&moment)),
        };
        ui.label(RichText::new(caption).weak());
        let Self { recording, selection, look, filter, panel, keys, .. } = self;
        panel.choices = choices;
        if let Some((first, others)) = keys.split_first() {
            let second = others.first().map(|key| TreeKey::By(*key));
            panel.choices = Choices { first: TreeKey::By(*first), second, ..choices };
        }
        let matches = &look.matches;
        let context = ViewContext { recording, selection, moment, reason, matches, filter, colouring: None };
        panel.picture_ui(ui, &context);
        panel.finish()
    }
}
