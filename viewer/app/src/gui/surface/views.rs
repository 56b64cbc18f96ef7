//! The views that can be drawn into a picture, by name.

use eframe::egui::{CentralPanel, Frame, Margin, Panel, RichText, Ui};
use highwater_analysis::{GroupKey, Siblings, TreeKey};

use super::sheet::Sheet;
use crate::figures::moment::{peak_name, total_name};
use crate::gui::views::list::{Bottom, Views};
use crate::gui::views::moment::{Choices, MomentLook};
use crate::gui::views::view::{Reason, RecordingView as _, Under, ViewContext};
use crate::gui::widgets::{Computed as _, place_ui, when};

/// A view that can be drawn without a window.
#[derive(Clone, Copy, Debug)]
pub struct SheetView {
    /// The name on the command line.
    pub name: &'static str,
    content: Content,
}

#[derive(Clone, Copy, Debug)]
enum Content {
    Timeline,
    Moment(Choices),
    /// A view below the timeline, and its share of the height.
    Below(f32, Bottom),
}

/// All views; the first is the default.
pub(crate) const VIEWS: &[SheetView] = &[
    SheetView { name: "timeline", content: Content::Timeline },
    SheetView { name: "segments", content: Content::Below(UPPER, Bottom::Segments) },
    SheetView { name: "flame", content: Content::Moment(FLAME) },
    SheetView { name: "treemap", content: Content::Moment(TREEMAP) },
    SheetView { name: "table", content: Content::Moment(TABLE) },
    SheetView { name: "explain", content: Content::Below(UPPER, Bottom::Explain) },
    SheetView { name: "plan", content: Content::Below(ABOVE_PLAN, Bottom::Plan) },
];

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

/// Share of the height for the timeline above segments or an explanation.
const UPPER: f32 = 0.4;
/// Share of the height for the timeline above the plan, which has its own chart.
const ABOVE_PLAN: f32 = 0.33;

impl SheetView {
    /// Returns the view called `name`.
    ///
    /// # Errors
    /// Fails with a message that lists all names if there is no such view.
    pub fn named(name: &str) -> Result<Self, String> {
        // A comparison is not a view of one recording, but is a valid name.
        let names: Vec<&str> = VIEWS.iter().map(|view| view.name).chain(["diff"]).collect();
        let found = VIEWS.iter().find(|view| view.name == name).copied();
        found.ok_or_else(|| format!("unknown view '{name}'; the views are: {}", names.join(", ")))
    }

    /// Returns the timeline with the view `bottom` below it, or the timeline alone if that view cannot be drawn.
    pub fn beside(bottom: Option<Bottom>) -> Self {
        let is_it = |view: &&Self| matches!(view.content, Content::Below(_, other) if bottom == Some(other));
        VIEWS.iter().find(is_it).copied().unwrap_or(VIEWS[0])
    }

    /// Returns whether the view shows the blocks of a single moment in groups.
    pub const fn is_of_moment(self) -> bool {
        matches!(self.content, Content::Moment(_))
    }
}

pub(super) fn sheet_ui<S, R>(
    ui: &mut Ui,
    sheet: &mut S,
    [title, facts]: [fn(&S, &mut Ui); 2],
    show: impl FnOnce(&mut Ui, &mut S) -> R,
) -> R {
    let frame = |ui: &Ui, top: i8, bottom: i8| {
        Frame::new().fill(ui.visuals().panel_fill).inner_margin(Margin { left: 12, right: 14, top, bottom })
    };
    let above = Panel::top("title").frame(frame(ui, 10, 2)).show_separator_line(false);
    above.show(ui, |ui| title(sheet, ui));
    let below = Panel::bottom("facts").frame(frame(ui, 2, 8)).show_separator_line(false);
    below.show(ui, |ui| facts(sheet, ui));
    let middle = CentralPanel::default().frame(frame(ui, 2, 2));
    middle.show(ui, |ui| show(ui, sheet)).inner
}

impl Sheet {
    /// Returns the title of a picture of `view`.
    pub fn title(&self, view: SheetView) -> String {
        format!("{}: {}", self.recording.name, view.name)
    }

    /// Draws the title, the view and the facts. Returns whether everything is complete.
    pub fn sheet_ui(&mut self, ui: &mut Ui, view: SheetView) -> bool {
        let show = |ui: &mut Ui, sheet: &mut Self| match view.content {
            Content::Timeline => sheet.timeline_ui(ui),
            Content::Moment(choices) => sheet.moment_ui(ui, choices),
            Content::Below(share, bottom) => sheet.below_ui(ui, share, bottom),
        };
        sheet_ui(ui, self, [Self::title_ui, Self::facts_ui], show)
    }

    /// Draws the timeline, and below it a view of the pinned moment, or otherwise of the peak.
    fn below_ui(&mut self, ui: &mut Ui, share: f32, bottom: Bottom) -> bool {
        let whole = ui.available_rect_before_wrap();
        let (mut upper, mut lower) = (whole, whole);
        upper.max.y = whole.top() + whole.height() * share;
        lower.min.y = upper.max.y + 8.0;
        let is_complete = place_ui(ui, "above", upper, |ui| self.timeline_ui(ui));
        let (context, views) = self.scene();
        let view = bottom.of(views);
        place_ui(ui, "below", lower, |ui| view.view_ui(ui, &context));
        view.finish() && is_complete
    }

    fn scene(&mut self) -> (ViewContext<'_>, &mut Views) {
        let (moment, reason) = self.moment();
        let Self { recording, selection, timeline, look, filter, views, .. } = self;
        let (matches, under) = (&look.matches, Under::of(timeline));
        let context = ViewContext { recording, selection, moment, reason, matches, filter, under, is_picture: true };
        (context, views)
    }

    /// Draws the memory in use at the pinned moment, or at the peak.
    pub(super) fn moment_ui(&mut self, ui: &mut Ui, choices: Choices) -> bool {
        let (moment, reason) = self.moment();
        let metric = total_name(moment.metric);
        let caption = match reason {
            Reason::Peak if moment.is_state => format!("{}: {metric} memory", peak_name(&moment)),
            Reason::Peak => format!("At the peak: {metric} memory, {}", when(&moment)),
            _ => format!("At the moment: {metric} memory, {}", when(&moment)),
        };
        ui.label(RichText::new(caption).weak());
        let mut choices = choices;
        if let Some((first, others)) = self.keys.split_first() {
            let second = others.first().map(|key| TreeKey::By(*key));
            choices = Choices { first: TreeKey::By(*first), second, ..choices };
        }
        let (context, views) = self.scene();
        views.moment.choices = choices;
        views.moment.view_ui(ui, &context);
        views.moment.finish()
    }
}
