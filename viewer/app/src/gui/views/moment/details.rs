//! Actions for the selected node, and a list of its blocks, largest first.

use eframe::egui::{Align, FontId, Label, Layout, RichText, Ui};
use highwater_analysis::bytes_of;
use highwater_snapshots::{BlockId, format_bytes, format_count};

use super::job::{Answer, Chosen};
use super::names;
use crate::gui::widgets::{Cell, ShownColumn, ShownTable, TableState, fit, table_ui, theme, title};
use crate::report::{Column, column_of};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ask {
    Block(BlockId),
    Filter,
    Close,
}

/// Width of the figures in points, of the number of blocks with the size of each, and minimum width of a table with it.
const FIGURES_WIDTH: f32 = 98.0;
const BLOCKS_WIDTHS: [f32; 2] = [48.0, 116.0];
const MIN_WITH_EACH: f32 = 340.0;
/// Maximum length of the number of blocks with the size of each; longer ones would lose digits.
const MAX_PRODUCT: usize = 16;
/// Part of the remaining width that names take if they and the lines are wider than it.
const NAME_PART: f32 = 0.6;

pub(super) fn details_ui(ui: &mut Ui, answer: &Answer, state: &mut TableState) -> Option<Ask> {
    let source = &answer.request.source;
    let (recording, trace, blocks) = (&source.recording, &source.recording.trace, &answer.blocks);
    let ask = answer.chosen.as_ref().and_then(|chosen| chosen_ui(ui, answer, chosen));
    let size = |row: usize| bytes_of(trace, source.metric, blocks[row].0);
    // Screen readers and copies have the category too.
    let name = |row: usize| match trace.tables.op_name(trace.blocks.get(blocks[row].0).op) {
        "" => title(recording, blocks[row].0),
        op => op.to_owned(),
    };
    let whole = |row: usize| Some(title(recording, blocks[row].0));
    let maker = |row: usize| names::maker(trace, blocks[row].0);
    let (rows, font) = (0..blocks.len().min(50), FontId::proportional(13.0));
    let widest = [fit::widest(ui, rows.clone().map(name), &font), fit::widest(ui, rows.map(maker), &font)];
    let [name_width, maker_width] = [widest[0] + theme::SWATCH + 20.0, widest[1] + 14.0];
    let has_each = ui.available_width() >= MIN_WITH_EACH;
    let blocks_width = BLOCKS_WIDTHS[usize::from(has_each)];
    let each = column_of((0..blocks.len().min(500)).map(size));
    let count = |row: usize, count: String| match blocks[row].1 {
        2.. if has_each => {
            let product = format!("{count} × {}", each(size(row)));
            if product.chars().count() <= MAX_PRODUCT { product } else { count }
        }
        _ => count,
    };
    let room = ui.available_width() - FIGURES_WIDTH - blocks_width;
    let columns = [
        Column::text("block", "largest blocks", name)
            .wide(
                name_width.min((room - maker_width).max(room * NAME_PART)),
                "Operation or category of the block. A click selects it.",
            )
            .look(|row, cell| Cell { swatch: answer.colour(blocks[row].0), whole: whole(row), ..cell })
            .tip(whole),
        Column::text("allocated_by", "allocated by", maker)
            .wide(0.0, "Source line that allocated the block, or its module.")
            .look(|_, cell| Cell { is_faint: true, ..cell }),
        Column::count("blocks", "blocks", |row| blocks[row].1)
            .wide(blocks_width, "Number of blocks of this kind and size, and the size of each.")
            .look(|row, cell| Cell { is_faint: true, text: count(row, cell.text), ..cell })
            .tip(|row| (blocks[row].1 > 1).then(|| format!("{} B each", format_count(size(row))))),
        Column::bytes("bytes", "bytes", |row| size(row) * blocks[row].1).wide(82.0, "Sum of the bytes."),
    ];
    let touched =
        table_ui(ui, "Largest blocks", &ShownTable::new(blocks.len(), columns.map(ShownColumn::fixed)), state);
    let block = touched.chosen.or(touched.opened).and_then(|row| blocks.get(row));
    block.map(|(block, _)| Ask::Block(*block)).or(ask)
}

fn chosen_ui(ui: &mut Ui, answer: &Answer, chosen: &Chosen) -> Option<Ask> {
    let recording = &answer.request.source.recording;
    let mut ask = None;
    let node = answer.tree.node(chosen.node);
    ui.horizontal(|ui| {
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            if ui.small_button("Close").on_hover_text("Clear the selection.").clicked() {
                ask = Some(Ask::Close);
            }
            let nodes = answer.nodes(&chosen.node);
            ui.strong(format_bytes(node.bytes * nodes.len() as u64));
            ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                let own = answer.labels.get(&chosen.node).cloned();
                let name = own.unwrap_or_else(|| names::label(recording, &answer.tree, chosen.node));
                ui.add(Label::new(RichText::new(name).strong()).truncate()).on_hover_text(answer.in_full(chosen.node));
            });
        });
    });
    ui.horizontal(|ui| {
        let only = eframe::egui::Button::new("Only these").small();
        let button = ui.add_enabled(chosen.condition.is_some(), only);
        let button = button.on_disabled_hover_text("No search condition selects exactly these blocks.");
        let why = chosen
            .condition
            .as_ref()
            .map_or_else(String::new, |text| format!("Add the condition {text} to the search"));
        if button.on_hover_text(why).clicked() {
            ask = Some(Ask::Filter);
        }
        if let Some(stack) = chosen.stack
            && ui.small_button("Copy stack").on_hover_text("Copy one of its stacks as text.").clicked()
        {
            ui.ctx().copy_text(recording.trace.tables.stack_text(stack).join("\n"));
        }
    });
    ask
}
