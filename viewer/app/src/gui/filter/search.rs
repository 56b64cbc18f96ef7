//! The search box, whose conditions apply to all views, and the blocks that meet these conditions.

use std::sync::Arc;

use eframe::egui::{Context, Id, Key, Label, RichText, Role, TextEdit, Ui, WidgetInfo};
use highwater_analysis::filter::key_names;
use highwater_analysis::{Filter, Matches, Metric};
use highwater_snapshots::{BlockId, count_of, format_bytes, format_count};
use rayon::prelude::*;

use crate::gui::filter::completions::{Completions, put_cursor};
use crate::gui::identity::Identity;
use crate::gui::widgets::{Computed, Memo, Query, Shades, theme};
use crate::{Command, Recording, drawn_metric};

/// The moment at which blocks are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SearchPlace {
    /// Index of the device.
    pub device: usize,
    /// The total, which determines the period during which a block counts.
    pub metric: Metric,
    /// Number of events before the moment.
    pub position: usize,
}

/// Numbers of blocks of a device: live at a moment, matching among these, matching in all, and all in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    live: u64,
    found: u64,
    in_all: u64,
    all: u64,
}

impl Count {
    fn of(recording: &Recording, matches: &Matches, place: SearchPlace) -> Option<Self> {
        let (trace, index) = (&recording.trace, recording.devices.get(place.device)?);
        let live = index.live.before_position(trace, drawn_metric(place.metric), place.position);
        let found = live.iter().filter(|id| matches.contains(**id)).count() as u64;
        let devices = trace.blocks.device.iter().enumerate();
        let (mut in_all, mut all) = (0, 0);
        for (row, _) in devices.filter(|(_, device)| **device == index.device) {
            all += 1;
            in_all += u64::from(matches.contains(BlockId(row as u32)));
        }
        Some(Self { live: live.len() as u64, found, in_all, all })
    }

    /// Formats the count, such as `100 of 245 live blocks; 2,040 of 9,000 in the recording on device 1`.
    fn text(self, recording: &Recording, device: usize) -> String {
        let [found, in_all] = [self.found, self.in_all].map(format_count);
        let on = match recording.devices.len() {
            0 | 1 => String::new(),
            _ => format!(" on {}", recording.device_label(device)),
        };
        let live = count_of(self.live, "live block");
        format!("{found} of {live}; {in_all} of {} in the recording{on}", format_count(self.all))
    }
}

/// The search in one recording.
#[derive(Debug)]
pub struct Search {
    text: String,
    error: Option<String>,
    filter: Filter,
    counted: Memo<(SearchPlace, Identity<Matches>), Option<Count>>,
    matches: Arc<Matches>,
    query: Query<(Identity<Recording>, Filter), Arc<Matches>>,
    /// Whether the matches are still those of the previous recording.
    is_stale: bool,
    wants_focus: bool,
    completions: Completions,
}

impl Search {
    /// A search without conditions, which all blocks of `recording` match.
    pub fn new(recording: &Recording) -> Self {
        let filter = Filter::default();
        let matches = Arc::new(Matches::of(&recording.trace, &filter));
        Self {
            text: String::new(),
            error: None,
            filter,
            counted: Memo::default(),
            matches,
            query: Query::new("highwater-search", |(recording, filter): &(Identity<Recording>, Filter), _| {
                Some(Arc::new(Matches::of(&recording.get()?.trace, filter)))
            }),
            is_stale: false,
            wants_focus: false,
            completions: Completions::default(),
        }
    }

    /// The conditions in effect: the entered conditions if they are valid and their matches are computed.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// The blocks that meet the applied conditions.
    pub fn matches(&self) -> &Arc<Matches> {
        &self.matches
    }

    /// The text in the search box.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The last requested filter, while its matches are being computed.
    fn pending(&self) -> Option<&Filter> {
        let asked = self.query.asked().filter(|asked| self.query.answered() != Some(asked));
        asked.map(|(_, filter)| filter)
    }

    /// Takes the keyboard focus when next shown.
    pub fn focus(&mut self) {
        self.wants_focus = true;
    }

    /// Replaces the search by `text`. Its valid conditions are applied; the box shows the error of the first invalid
    /// one. `ctx` is repainted when the matches are computed.
    pub fn set(&mut self, ctx: &Context, recording: &Arc<Recording>, text: &str) {
        text.clone_into(&mut self.text);
        let filter = match text.parse() {
            Ok(filter) => {
                self.error = None;
                filter
            }
            Err(why) => {
                self.error = Some(why);
                Filter::valid_part(text)
            }
        };
        if *self.pending().unwrap_or(&self.filter) != filter {
            self.query.ask(ctx, &(Identity::of(recording), filter));
        }
    }

    /// Adds a condition to those entered, unless it is already among them.
    pub fn add(&mut self, ctx: &Context, recording: &Arc<Recording>, condition: &str) {
        if self.text.contains(condition) {
            return;
        }
        let text = format!("{} {condition}", self.text.trim_end());
        self.set(ctx, recording, text.trim_start());
    }

    /// Prepares to search again in a newer version of the recording.
    pub fn renew(&mut self, recording: &Recording) {
        if let Some(filter) = self.pending() {
            self.filter = filter.clone();
        }
        self.query.cancel();
        self.completions = Completions::default();
        self.counted = Memo::default();
        self.is_stale = !self.filter.is_empty();
        if self.filter.is_empty() {
            self.matches = Arc::new(Matches::of(&recording.trace, &self.filter));
        }
    }

    /// Receives computed matches, and requests those of a newer version of the recording.
    pub fn receive(&mut self, ctx: &Context, recording: &Arc<Recording>) {
        if std::mem::take(&mut self.is_stale) {
            self.query.ask(ctx, &(Identity::of(recording), self.filter.clone()));
        }
        self.keep();
    }

    fn keep(&mut self) {
        if self.query.receive()
            && let Some(((_, filter), matches)) = self.query.answered().zip(self.query.current())
        {
            (self.filter, self.matches) = (filter.clone(), Arc::clone(matches));
        }
        if let Some(why) = self.query.failure() {
            self.error = Some(why.to_owned());
            self.query.cancel();
        }
    }

    /// Shows the search box and the number of matches at `place`. Returns the new text after a change.
    pub(crate) fn search_ui(
        &mut self,
        ui: &mut Ui,
        recording: &Arc<Recording>,
        place: Option<SearchPlace>,
        is_hiding: &mut bool,
    ) -> Option<String> {
        let mut text = self.text.clone();
        let id = Id::unique("search").with(&recording.name);
        if let Some((completed, cursor)) = self.completions.keys(ui, id, &text) {
            put_cursor(ui, id, &completed, cursor);
            text = completed;
        }
        let hint = theme::placeholder(ui, "Search: category=activation size>=1MiB");
        // Leaves room for the widgets after it, so that the line does not wrap.
        let behind = if self.text.is_empty() { 0.0 } else { theme::OUTCOME_WIDTH };
        let width = (ui.available_width() - behind - 12.0).clamp(theme::MIN_SEARCH_WIDTH, theme::SEARCH_WIDTH);
        let field = TextEdit::singleline(&mut text).id(id).hint_text(hint).desired_width(width);
        // Tab accepts a completion; without one it leaves the field.
        let field = field.lock_focus(self.completions.takes_tab(&self.text));
        let output = field.show(ui);
        let cursor = output.cursor_range.map(|range| range.primary.index.0);
        let field = output.response.response;
        field.widget_info(|| WidgetInfo::labeled(Role::TextInput, true, "Search"));
        // Enter applies nothing while a condition is invalid: text typed next belongs to the search.
        let is_entered = field.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter));
        if std::mem::take(&mut self.wants_focus) || is_entered && text.parse::<Filter>().is_err() {
            field.request_focus();
        }
        if field.has_focus() && ui.input(|input| input.key_pressed(Key::Escape)) {
            ui.memory_mut(|memory| memory.surrender_focus(id));
        }
        if let Some((completed, cursor)) = self.completions.completions_ui(ui, &field, recording, (&text, cursor)) {
            put_cursor(ui, id, &completed, cursor);
            field.request_focus();
            text = completed;
        }
        let mut wanted = (text != self.text).then_some(text);
        if !field.has_focus() {
            field.on_hover_text(explained());
        }
        if !self.text.is_empty() {
            if ui.small_button("x").on_hover_text(Command::ClearSearch.tooltip()).clicked() {
                wanted = Some(String::new());
            }
            let toggle = ui.toggle_value(is_hiding, "hide the rest");
            toggle.on_hover_text(Command::ToggleHide.tooltip());
        }
        self.outcome_ui(ui, recording, place);
        wanted
    }

    /// Computed once for each moment.
    fn count(&mut self, recording: &Recording, place: SearchPlace) -> Option<Count> {
        let matches = &self.matches;
        *self.counted.get((place, Identity::of(matches)), |_| Count::of(recording, matches, place))
    }

    fn outcome_ui(&mut self, ui: &mut Ui, recording: &Recording, place: Option<SearchPlace>) {
        if let Some(why) = self.error.as_ref().filter(|_| !self.completions.is_offering()) {
            let applied = match self.pending().unwrap_or(&self.filter).is_empty() {
                true => "no condition is applied",
                false => "the valid conditions are applied",
            };
            let words = format!("{why} ({applied})");
            let label = Label::new(RichText::new(&words).color(Shades::in_ui(ui).warning)).truncate();
            ui.add(label).on_hover_text(words);
        } else if self.pending().is_some() {
            ui.spinner();
        } else if !self.filter.is_empty() {
            let (blocks, bytes) = (self.matches.blocks(), self.matches.requested());
            let count = count_of(blocks, "block");
            let shown = place.and_then(|place| Some((self.count(recording, place)?, place.device)));
            let shown = shown.map_or_else(|| count.clone(), |(found, device)| found.text(recording, device));
            let text = RichText::new(&shown).color(Shades::in_ui(ui).faint);
            let response = ui.add(Label::new(text).truncate());
            response.widget_info(|| WidgetInfo::labeled(Role::Label, true, format!("Found {shown}")));
            let requested = format_bytes(bytes);
            response
                .on_hover_text(format!("{shown}\nThe conditions match {count}, with {requested} requested in total"));
        }
    }
}

impl Computed for Search {
    fn is_busy(&self) -> bool {
        self.pending().is_some() || self.is_stale || self.completions.is_busy()
    }

    fn wait(&mut self) {
        self.completions.wait();
        self.query.wait();
        self.keep();
    }

    #[cfg(test)]
    fn queries(&self) -> usize {
        self.completions.queries() + self.query.queries()
    }
}

fn explained() -> String {
    format!(
        "Shows only blocks that meet every condition, in all views.\n\
         Keys: {}.\n\
         Operators: = != ~ (contains) !~ < <= > >=. Several values: category=gradient,activation",
        key_names().join(", ")
    )
}

/// For each recording, the condition for highlighted blocks.
pub(crate) type LightKey = Vec<(Identity<Recording>, Filter)>;

pub(crate) type Light = Query<LightKey, Vec<Arc<Matches>>>;

pub(crate) fn light() -> Light {
    Query::new("highwater-light", |key: &LightKey, _| {
        let of = |(recording, filter): &(Identity<Recording>, Filter)| {
            Some(Arc::new(Matches::of(&recording.get()?.trace, filter)))
        };
        key.par_iter().map(of).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_notation::trace_from_text;

    fn recording() -> Arc<Recording> {
        let text = "alloc a 10 activation\nalloc g 20 gradient\nalloc h 30 gradient";
        Arc::new(Recording::new("test", None, trace_from_text(text).unwrap()))
    }

    #[test]
    fn the_valid_conditions_of_those_typed_are_applied() {
        let recording = recording();
        let (mut search, ctx) = (Search::new(&recording), Context::default());
        assert_eq!(search.matches().blocks(), 3);
        search.set(&ctx, &recording, "category=gradient");
        assert!(search.filter().is_empty(), "it is not known yet who meets them");
        search.wait();
        assert_eq!((search.matches().blocks(), search.matches().contains(BlockId(0))), (2, false));
        for invalid in ["size>=abc", "\"g", "category=act"] {
            search.set(&ctx, &recording, &format!("category=gradient {invalid}"));
            search.wait();
            assert!(search.error.is_some() && search.matches().blocks() == 2, "{invalid}");
            search.set(&ctx, &recording, invalid);
            search.wait();
            assert!(search.error.is_some() && search.matches().is_all(), "{invalid}");
        }
        search.set(&ctx, &recording, "");
        assert!(search.error.is_none() && search.matches().is_all());
    }

    #[test]
    fn blocks_are_counted_at_the_moment_and_on_the_whole_device() {
        let text =
            "alloc a 10 gradient\nalloc b 20 activation\nfree a\nalloc c 30 gradient\nalloc d 5 gradient device=1";
        let recording = Arc::new(Recording::new("test", None, trace_from_text(text).unwrap()));
        let (mut search, ctx) = (Search::new(&recording), Context::default());
        search.set(&ctx, &recording, "category=gradient");
        search.wait();
        let at = |search: &mut Search, position: usize| {
            let place = SearchPlace { device: 0, metric: Metric::Requested, position };
            search.count(&recording, place).unwrap().text(&recording, 0)
        };
        assert_eq!(at(&mut search, 2), "1 of 2 live blocks; 2 of 3 in the recording on device 0");
        assert_eq!(at(&mut search, 3), "0 of 1 live block; 2 of 3 in the recording on device 0");
    }

    #[test]
    fn conditions_are_added_once() {
        let recording = recording();
        let (mut search, ctx) = (Search::new(&recording), Context::default());
        for condition in ["category=gradient", "size>=30", "category=gradient"] {
            search.add(&ctx, &recording, condition);
            search.wait();
        }
        assert_eq!(search.text(), "category=gradient size>=30");
        assert_eq!(search.matches().blocks(), 1);
    }
}
