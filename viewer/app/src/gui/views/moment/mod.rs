//! The memory in use at one moment, or the change between two moments, as a table, treemap or flame graph.

mod names;
mod job;
mod squarify;
mod tile;
mod treemap;
mod flame;
mod groups;
mod details;
mod export;
mod choosers;

use std::ops::Range;
use std::sync::Arc;

use eframe::egui::{self, Label, RichText, Ui};
use highwater_analysis::tree::Part;
use highwater_analysis::{Metric, NodeId, Question, TreeKey, TreeQuery};
use highwater_snapshots::format_bytes;

pub(crate) use choosers::Choices;
pub use choosers::MomentLook;

use crate::figures::moment::{peak_name, total_name};
use crate::gui::legend::peak_cause;
use crate::gui::views::timeline::fails_at;
use crate::gui::views::view::{Action, Reason, RecordingView, ViewContext, WriteTable, whole_table};
use crate::gui::widgets::{Query, Shades, TableState, computed, least_height_ui, moment_text, place_ui, theme, when};
use details::Ask;
use flame::Flame;
use job::{Answer, Answerer, OfTimeline, Place, Request, Source, When};
use tile::Act;
use treemap::Treemap;

/// Minimum share of the height for the largest blocks, and minimum height, in points, at which they are shown.
const LARGEST_PART: f32 = 0.3;
const LARGEST_MIN: f32 = 130.0;

/// The Moment panel of a recording: its settings, and the last answer.
#[derive(Debug)]
pub struct MomentPanel {
    /// The form in which memory is shown, and its grouping.
    pub choices: Choices,
    /// The class of blocks shown for the range between the marks.
    pub question: Question,
    /// Whether the range between the marks is shown, if both are set.
    shows_range: bool,
    /// The marks that were set in the previous frame.
    marks: Option<Range<usize>>,
    focus: Place,
    chosen: Option<Place>,
    table: TableState,
    blocks: TableState,
    treemap: Treemap,
    flame: Flame,
    query: Query<Request, Arc<Answer>>,
}

computed!(MomentPanel: query);

impl Default for MomentPanel {
    fn default() -> Self {
        Self::new(Choices::default())
    }
}

impl RecordingView for MomentPanel {
    fn view_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) -> Vec<Action> {
        if context.is_picture {
            self.picture_ui(ui, context);
            return Vec::new();
        }
        let is_low = ui.available_height() < theme::LOW_MOMENT;
        let least = if is_low { theme::LOW_MOMENT / 2.0 } else { theme::MOMENT_MIN };
        least_height_ui(ui, "moment", least, |ui| self.moment_ui(ui, context, is_low))
    }

    fn table(&mut self, context: &ViewContext<'_>) -> Result<WriteTable, String> {
        whole_table(Some(self.csv(context)), "the groups are")
    }
}

impl MomentPanel {
    pub(crate) fn new(choices: Choices) -> Self {
        let mut answerer = Answerer::default();
        Self {
            choices,
            question: Question::default(),
            shows_range: false,
            marks: None,
            focus: Place::default(),
            chosen: None,
            table: TableState::default(),
            blocks: TableState::default(),
            treemap: Treemap::default(),
            flame: Flame::default(),
            query: Query::new("highwater-moment", move |request, _| Some(answerer.answer(request))).showing_late(),
        }
    }

    /// Returns the condition that selects exactly the blocks of the selected group, if there is one.
    pub(crate) fn chosen_condition(&self) -> Option<&str> {
        self.query.answer()?.chosen.as_ref()?.condition.as_deref().filter(|_| self.chosen.is_some())
    }

    /// The panel's content as CSV, with a last line for the total: the rows of the table, or for the other forms every
    /// node of the tree with its full path.
    fn csv(&mut self, context: &ViewContext<'_>) -> String {
        self.follow(context.selection.range());
        let request = self.request(context);
        let shown = self.query.answer().filter(|shown| shown.request == request);
        let answer = shown.map_or_else(|| Answerer::default().answer(&request), Arc::clone);
        match self.choices.look {
            MomentLook::Table => export::rows_csv(&answer),
            MomentLook::Treemap | MomentLook::Flame => export::nodes_csv(&answer),
        }
    }

    fn moment_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>, is_low: bool) -> Vec<Action> {
        self.follow(context.selection.range());
        self.choices = self.choices.possible(&context.recording.absent);
        self.receive(ui.ctx(), context);
        self.head_ui(ui, context, is_low);
        choosers::choices_ui(ui, &mut self.choices, context.recording);
        let mut actions = Vec::new();
        if let Some(why) = self.query.failure() {
            ui.label(RichText::new(why).color(Shades::in_ui(ui).warning));
        }
        let Some(answer) = self.query.answer().map(Arc::clone) else {
            ui.weak("Computing…");
            return actions;
        };
        let (act, has_details) = self.look_ui(ui, &answer);
        if let Some(act) = act {
            self.act(act, &answer, &mut actions);
        }
        if has_details {
            ui.add_space(4.0);
            let below = ui.available_rect_before_wrap();
            let show = |ui: &mut Ui| details::details_ui(ui, &answer, &mut self.blocks);
            match (place_ui(ui, "details", below, show), &answer.chosen) {
                (Some(Ask::Block(block)), _) => actions.push(Action::Block(block)),
                (Some(Ask::Filter), Some(chosen)) => self.act(Act::Filter(chosen.node), &answer, &mut actions),
                (Some(Ask::Close), _) => (self.chosen, self.blocks) = (None, TableState::default()),
                _ => {}
            }
        }
        // Requests of this frame are computed by the next.
        self.ask(ui.ctx(), context);
        actions
    }

    /// Updates the marks, and shows the range between them if the marks are new.
    fn follow(&mut self, marks: Option<Range<usize>>) {
        if marks.is_some() && marks != self.marks {
            self.shows_range = true;
        }
        self.marks = marks;
    }

    fn request(&self, context: &ViewContext<'_>) -> Request {
        let when = match &self.marks {
            Some(marks) if self.shows_range => When::Between(marks.start, marks.end, self.question),
            _ => When::Moment(context.moment.position()),
        };
        let Choices { first, second, hides_internals, is_inverted, siblings, .. } = self.choices;
        let is_of_stacks = self.choices.is_of_stacks();
        Request {
            source: Source {
                recording: Arc::clone(context.recording),
                device: context.selection.device,
                metric: context.moment.metric,
                when,
                matches: Arc::clone(context.matches),
            },
            query: TreeQuery {
                keys: std::iter::once(first).chain(second).collect(),
                hides_internals: hides_internals && is_of_stacks,
                is_inverted: is_inverted && is_of_stacks,
            },
            focus: self.focus.clone(),
            chosen: self.chosen.clone(),
            order: groups::order_of(&self.table),
            siblings,
            colouring: OfTimeline(context.colouring().cloned()),
        }
    }

    fn ask(&mut self, ctx: &egui::Context, context: &ViewContext<'_>) {
        let request = self.request(context);
        self.query.ask(ctx, &request);
    }

    fn receive(&mut self, ctx: &egui::Context, context: &ViewContext<'_>) {
        self.query.receive();
        // The last answer of another device must not be shown. That of the previous recording of the same
        // file stays until the next one is ready.
        self.query.keep_if(|shown| shown.source.device == context.selection.device);
        self.ask(ctx, context);
    }

    /// Shows the panel without controls, for exported pictures.
    fn picture_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) {
        self.receive(ui.ctx(), context);
        if let Some(answer) = self.query.answer().map(Arc::clone) {
            self.look_ui(ui, &answer);
        }
        self.ask(ui.ctx(), context);
    }

    fn head_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>, is_low: bool) {
        let big = |bytes: u64| RichText::new(format_bytes(bytes)).size(26.0).strong();
        if let Some(marks) = self.marks.clone() {
            choosers::source_ui(ui, &mut self.shows_range);
            if self.shows_range {
                let balance = self.query.answer().and_then(|shown| shown.balance).unwrap_or_default();
                ui.label(big(balance.get(self.question).bytes)).on_hover_text(self.question.meaning());
                choosers::question_ui(ui, &mut self.question, &balance);
                choosers::range_ui(ui, context, &marks);
                self.filter_hint_ui(ui, context);
                return;
            }
        }
        let what = match context.reason {
            Reason::Peak if context.moment.is_state => peak_name(&context.moment),
            Reason::Peak if context.recording.run.is_some() => "At the peak of this part",
            Reason::Peak => "At the peak",
            Reason::Pinned => "At the pinned moment",
        };
        if is_low {
            ui.horizontal(|ui| {
                ui.strong(format_bytes(context.moment.bytes));
                let text = format!("{} {}", total_name(context.moment.metric), what.to_lowercase());
                ui.add(Label::new(RichText::new(text).weak()).truncate());
            });
            return;
        }
        ui.label(RichText::new(what).weak());
        ui.label(big(context.moment.bytes));
        let (metric, recording) = (context.moment.metric, context.recording);
        let reserved = context.index().moment(&recording.trace, Metric::Reserved, context.moment.position()).bytes;
        let has_reserved = metric.is_of_blocks() && reserved > 0;
        let of_reserved = if has_reserved { format!(" of {} reserved", format_bytes(reserved)) } else { String::new() };
        let moment = if context.moment.is_state { String::new() } else { format!("\n{}", when(&context.moment)) };
        let response = ui.weak(format!("{}{of_reserved}{moment}", total_name(metric)));
        response.on_hover_text(moment_text(&context.moment));
        let failure = context.under.and_then(|under| under.failure);
        if let Some([title, lines]) = failure.filter(|_| fails_at(recording, context.selection, &context.moment)) {
            let title = RichText::new(title).strong().color(Shades::in_ui(ui).failure());
            ui.label(title).on_hover_text("The failed request; see Segments.");
            ui.strong(lines);
        } else if context.moment == context.index().peak(&recording.trace, metric)
            && let Some(text) = peak_cause(recording, context.selection.device, metric)
        {
            ui.strong(text).on_hover_text("The cause of the peak; see Explain.");
        }
        self.filter_hint_ui(ui, context);
    }

    fn filter_hint_ui(&self, ui: &mut Ui, context: &ViewContext<'_>) {
        if !context.filter.is_empty() {
            ui.weak("Below: only blocks that meet the search conditions.");
        }
    }

    /// Returns the height, out of `height` points, of the selected group, or of the largest blocks if no group is
    /// selected and there is room for some.
    fn details_height(&self, answer: &Answer, height: f32) -> f32 {
        if answer.chosen.is_some() {
            return (height * 0.42).clamp(80.0, theme::DETAILS_HEIGHT);
        }
        let is_listed = self.choices.look == MomentLook::Table
            && !answer.request.query.keys.contains(&TreeKey::Block)
            && !answer.blocks.is_empty();
        let room = (height - groups::needed_height(answer)).max(height * LARGEST_PART);
        if is_listed && room >= LARGEST_MIN { room } else { 0.0 }
    }

    /// Also returns whether there is room for details below.
    fn look_ui(&mut self, ui: &mut Ui, answer: &Answer) -> (Option<Act>, bool) {
        let mut act = choosers::breadcrumb_ui(ui, answer);
        let is_for_stacks = self.choices.is_of_stacks() && self.choices.look != MomentLook::Table;
        if is_for_stacks {
            flame::roles_ui(ui);
        }
        let whole = ui.available_rect_before_wrap();
        let below = self.details_height(answer, whole.height());
        let mut place = whole;
        place.max.y = (place.max.y - below).max(place.min.y + 40.0);
        let shown = place_ui(ui, "view", place, |ui| match self.choices.look {
            MomentLook::Table => groups::groups_ui(ui, answer, &mut self.table),
            MomentLook::Treemap => self.treemap.treemap_ui(ui, answer),
            MomentLook::Flame => self.flame.flame_ui(ui, answer),
        });
        act = shown.or(act);
        (act, below > 0.0)
    }

    fn act(&mut self, act: Act, answer: &Answer, actions: &mut Vec<Action>) {
        let place = |id: NodeId| job::place_of(&answer.tree, &answer.request, id);
        match act {
            Act::Enter(id) => self.focus = place(id),
            Act::List(id) => (self.focus, self.choices.look) = (place(id), MomentLook::Table),
            Act::Up => {
                // Leave nodes with a single child at once, as they were entered.
                let tree = &answer.tree;
                let mut at = answer.focus;
                while at != NodeId::ROOT {
                    at = tree.node(at).parent;
                    if self.choices.look == MomentLook::Flame || treemap::first_fork(tree, at) == at {
                        break;
                    }
                }
                self.focus = place(at);
            }
            Act::Choose(id) => {
                if let Part::Block(block) = answer.tree.node(id).part {
                    actions.push(Action::Block(block));
                }
                (self.chosen, self.blocks) = (Some(place(id)), TableState::default());
            }
            Act::Filter(id) => {
                match answer.tree.condition_of(&answer.request.source.recording.trace, answer.nodes(&id)) {
                    Some(condition) => actions.push(Action::Where(condition)),
                    None => actions
                        .push(Action::ShowMessage("No search condition selects exactly these blocks.".to_owned())),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
