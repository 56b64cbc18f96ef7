//! The block panel: stacks with source code, facts, and other blocks of the same origin.

use std::collections::HashMap;

use eframe::egui::{Grid, Label, RichText, Role, ScrollArea, Ui, WidgetInfo, vec2};
use highwater_analysis::{Filter, Matches, Metric};
use highwater_snapshots::{BlockId, format_bytes, format_count};

use super::facts::{Facts, Origin};
use super::stack::{Place, Sources, StackRows};
use crate::Recording;
use crate::gui::identity::Identity;
use crate::gui::views::source;
use crate::gui::views::view::{Action, RecordingView, ViewContext, WriteTable};
use crate::gui::widgets::{Query, computed};

/// A recording, and the search conditions for which matching blocks are counted.
type Conditions = (Identity<Recording>, Vec<String>);

/// For each condition, the number of matching blocks and their requested bytes.
type Counts = Vec<(String, (u64, u64))>;

const FACT_NAMES: f32 = 130.0;
/// Maximum number of source locations read for one block, and cached for all blocks.
const MAX_PLACES: usize = 64;
const MAX_KNOWN: usize = 4096;

/// The state of the Block view: the displayed block, and the counts and source excerpts cached for others.
#[derive(Debug)]
pub struct BlockPanel {
    shown: Option<Shown>,
    counter: Query<Conditions, Counts>,
    counts: HashMap<String, (u64, u64)>,
    reader: Query<Vec<Place>, Sources>,
    sources: Sources,
}

#[derive(Debug)]
struct Shown {
    of: Identity<Recording>,
    id: BlockId,
    metric: Metric,
    facts: Facts,
    stacks: Vec<StackRows>,
}

computed!(BlockPanel: counter, reader);

impl Default for BlockPanel {
    fn default() -> Self {
        Self {
            shown: None,
            counter: Query::new("highwater-origins", |(recording, conditions): &Conditions, cancel| {
                let recording = recording.get()?;
                let count = |condition: &String| {
                    let filter: Filter = condition.parse().ok().filter(|_| !cancel.is_cancelled())?;
                    let matches = Matches::of(&recording.trace, &filter);
                    Some((condition.clone(), (matches.blocks(), matches.requested())))
                };
                conditions.iter().map(count).collect()
            }),
            counts: HashMap::new(),
            reader: Query::new("highwater-source", |places: &Vec<Place>, _| {
                let read = |place: &Place| (place.clone(), source::excerpt(&place.0, place.1));
                Some(places.iter().map(read).collect())
            }),
            sources: HashMap::new(),
        }
    }
}

impl RecordingView for BlockPanel {
    fn view_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) -> Vec<Action> {
        let Some(block) = context.selection.pin.and_then(|pin| pin.block) else {
            ui.weak(
                "No block is pinned. Click a band of the timeline, or press G for the largest block of the moment.",
            );
            return Vec::new();
        };
        // Each block begins at its top.
        let scroll = ScrollArea::vertical().id_salt(block.0).auto_shrink([false, false]);
        scroll.show(ui, |ui| self.block_ui(ui, context, block)).inner
    }

    fn table(&mut self, _: &ViewContext<'_>) -> Result<WriteTable, String> {
        Err("Block has no table to copy. Its stacks have Copy buttons.".to_owned())
    }
}

impl BlockPanel {
    fn block_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>, id: BlockId) -> Vec<Action> {
        if id.index().is_none_or(|row| row >= context.recording.trace.blocks.len()) {
            ui.weak("unknown block");
            return Vec::new();
        }
        self.refresh(ui, context, id);
        let mut actions = Vec::new();
        let Some(Shown { facts, stacks, .. }) = &mut self.shown else { return actions };
        ui.label(RichText::new(&facts.title).size(15.0).strong());
        ui.weak(&facts.life);
        ui.horizontal_wrapped(|ui| {
            let mut button = |ui: &mut Ui, name: &str, tooltip: &str, action: Option<Action>| {
                let response = ui.add_enabled(action.is_some(), eframe::egui::Button::new(name).small());
                if response.on_hover_text(tooltip).clicked() {
                    actions.extend(action);
                }
            };
            let life = (!context.recording.trace.is_state()).then_some(Action::Life(id));
            button(ui, "Zoom to it", "Zoom to the lifetime of this block.", life);
            let [made, freed] = [facts.made, facts.freed].map(|moment| moment.map(Action::Moment));
            button(ui, "Go to its allocation", "Pin the moment right after it was allocated.", made);
            button(ui, "Go to its free", "Pin the moment right after its free was requested.", freed);
            if ui.small_button("Copy facts").on_hover_text("Copy these facts as text.").clicked() {
                ui.ctx().copy_text(facts.text());
            }
        });
        // The allocating code matters most; the freeing code matters less than the facts.
        let recorded_us = context.recording.trace.header.started_unix_us;
        let (freed, made) = stacks.split_last_mut().map_or((None, &mut [][..]), |(last, others)| (Some(last), others));
        for stack in made {
            stack.stack_ui(ui, &self.sources, recorded_us);
        }
        ui.add_space(8.0);
        let width = (ui.available_width() - FACT_NAMES).max(FACT_NAMES);
        Grid::new("block facts").num_columns(2).spacing(vec2(12.0, 3.0)).show(ui, |ui| {
            for (name, value) in &facts.rows {
                ui.weak(name);
                ui.scope(|ui| {
                    ui.set_width(width);
                    ui.add(Label::new(value).wrap());
                });
                ui.end_row();
            }
        });
        if !facts.origins.is_empty() {
            ui.add_space(8.0);
            ui.strong("Blocks of the same origin");
            for origin in &facts.origins {
                actions.extend(origin_ui(ui, origin, self.counts.get(&origin.condition).copied()));
            }
        }
        if let Some(stack) = freed {
            stack.stack_ui(ui, &self.sources, recorded_us);
        }
        actions
    }

    fn refresh(&mut self, ui: &Ui, context: &ViewContext<'_>, id: BlockId) {
        self.counts.extend(self.counter.take().into_iter().flatten());
        self.sources.extend(self.reader.take().into_iter().flatten());
        let metric = context.selection.metric;
        let is_of = self.shown.as_ref().is_some_and(|shown| shown.of.is(context.recording));
        let of = Identity::of(context.recording);
        if is_of && self.shown.as_ref().is_some_and(|shown| (shown.id, shown.metric) == (id, metric)) {
            return;
        }
        if !is_of {
            self.counts.clear();
        }
        if self.sources.len() > MAX_KNOWN || !is_of {
            self.sources.clear();
        }
        let trace = &context.recording.trace;
        let facts = Facts::of(context.recording, id, metric);
        let stacks: Vec<StackRows> =
            facts.stacks.iter().map(|(name, stack)| StackRows::new(trace, name, *stack)).collect();
        let conditions = facts.origins.iter().map(|origin| &origin.condition);
        let conditions: Vec<String> = conditions.filter(|known| !self.counts.contains_key(*known)).cloned().collect();
        if !conditions.is_empty() {
            self.counter.cancel();
            self.counter.ask(ui.ctx(), &(of.clone(), conditions));
        }
        let places = stacks.iter().flat_map(StackRows::places).filter(|place| !self.sources.contains_key(*place));
        let mut places: Vec<Place> = places.take(MAX_PLACES).cloned().collect();
        places.sort_unstable();
        places.dedup();
        // Source lines stored in the recording show the code at the time of the recording.
        places.retain(|place| {
            let excerpt = trace.source(&place.0).and_then(|text| source::excerpt_from(text.as_bytes(), place.1));
            excerpt.map(|excerpt| self.sources.insert(place.clone(), Some(excerpt))).is_none()
        });
        if !places.is_empty() {
            self.reader.cancel();
            self.reader.ask(ui.ctx(), &places);
        }
        self.shown = Some(Shown { of, id, metric, facts, stacks });
    }
}

/// Shows an origin and the number of blocks that have it; a click adds its condition to the search.
fn origin_ui(ui: &mut Ui, origin: &Origin, count: Option<(u64, u64)>) -> Option<Action> {
    let mut action = None;
    ui.horizontal(|ui| {
        let button = ui.small_button("Only these");
        let label = format!("Only blocks of this {}", origin.kind);
        button.widget_info(|| WidgetInfo::labeled(Role::Button, true, &label));
        let text = format!("Show only blocks that meet {}", origin.condition);
        if button.on_hover_text(text).clicked() {
            action = Some(Action::Where(origin.condition.clone()));
        }
        let count = match count {
            Some((1, bytes)) => format!("only this one, {}", format_bytes(bytes)),
            Some((blocks, bytes)) => format!("{} blocks, {} in all", format_count(blocks), format_bytes(bytes)),
            None => "counting …".to_owned(),
        };
        let text = format!("same {}: {count}", origin.kind);
        ui.add(Label::new(text).wrap()).on_hover_text(&origin.name);
    });
    action
}

#[cfg(test)]
mod tests;
