//! The columns of the list of events.

use std::cell::RefCell;
use std::collections::HashMap;

use eframe::egui::Color32;
use highwater_analysis::{GroupKey, leading_frame};
use highwater_snapshots::{EventId, StackId, Trace, format_count};

use super::list::Listed;
use super::search::Found;
use super::words;
use crate::figures::events::EventFacts;
use crate::gui::colouring::short_line;
use crate::gui::views::view::ViewContext;
use crate::gui::widgets::{Cell, ShownColumn, ShownTable, phase, theme};
use crate::report::Column;

/// The line of user code of each stack that has been displayed.
pub(super) type Sites = RefCell<HashMap<StackId, String>>;

/// Returns the rows of the listed events; operation, module and phase have columns only if the recording has any.
/// Events that are not in `found` are faint, and the pinned one is marked in the colour `mark`.
pub(super) fn rows<'a>(
    context: &ViewContext<'a>,
    listed: &'a Listed,
    found: Option<&'a Found>,
    sites: &'a Sites,
    mark: Color32,
) -> ShownTable<'a> {
    let recording = context.recording;
    let trace = &recording.trace;
    let of = move |row: usize| {
        let id = listed.event(row)?;
        Some((id, EventFacts::of(trace, id)?))
    };
    let is_out = move |row: usize| found.is_some_and(|found| !found.contains(row));
    let faint = move |row: usize, cell: Cell| Cell { is_faint: is_out(row), ..cell };
    let column = |title: &'static str, text: fn(&Trace, EventId, &EventFacts) -> String| {
        Column::text(title, title, move |row| of(row).map(|(id, facts)| text(trace, id, &facts)))
    };
    let figure = |title: &'static str, text: fn(&Trace, EventId) -> String| {
        Column::shown_alone(title, true, move |row| listed.event(row).map(|id| text(trace, id)).unwrap_or_default())
    };
    let pinned = context.selection.pin.and_then(|pin| super::event_of(pin.moment));
    let peak = context.index().peak(trace, context.selection.metric).event;
    let is_there = |key: GroupKey| recording.absent.reason(key).is_none();
    let site = move |row: usize| {
        let Some((id, _)) = of(row) else { return String::new() };
        let stack = trace.events.stack[id.0 as usize];
        let note = words::note(trace, id);
        let mut sites = sites.borrow_mut();
        let site = sites.entry(stack).or_insert_with(|| {
            let frame = leading_frame(&trace.tables, stack);
            frame.map(|frame| short_line(&frame.text(&trace.tables))).unwrap_or_default()
        });
        if note.is_empty() || site.is_empty() { note + site } else { format!("{note}; {site}") }
    };
    let mut columns = vec![
        figure("event", |trace, id| format_count(trace.number(id))).wide(92.0, "Index of the event, from 0.").look(
            move |row, cell| {
                let is_pinned = pinned.is_some() && pinned == listed.event(row);
                Cell { swatch: is_pinned.then_some(mark), ..faint(row, cell) }
            },
        ),
        figure("seconds", |trace, id| trace.time_of(id).map(words::seconds).unwrap_or_default())
            .wide(92.0, "Time since the start of the recording.")
            .look(faint)
            .tip(move |row| Some(format!("{} ns", format_count(trace.time_of(listed.event(row)?)?)))),
        column("kind", |trace, id, _| words::kind_name(trace.events.kind[id.0 as usize]))
            .wide(126.0, "What happened, such as an allocation, a free or a failed request.")
            .look(move |row, mut cell| {
                if peak.is_some() && peak == listed.event(row) {
                    cell.text += ", the peak";
                }
                faint(row, cell)
            }),
        Column::bytes("size", "size", move |row| of(row)?.1.size)
            .wide(84.0, "The requested bytes, the size of a segment, or the bytes in use on the device.")
            .look(faint),
        column("block", |_, _, facts| match (facts.block, facts.segment) {
            (Some(block), _) => format!("b{}", block.0),
            (None, Some(segment)) => format!("s{}", segment.0),
            (None, None) => String::new(),
        })
        .wide(78.0, "The block (b) or segment (s).")
        .look(faint)
        .tip(move |row| Some(format!("at {:#x}", of(row)?.1.address?))),
        column("category", |_, _, facts| facts.category.map(|category| category.name().to_owned()).unwrap_or_default())
            .wide(132.0, "The category of the block.")
            .look(move |row, cell| {
                let category = of(row).and_then(|(_, facts)| facts.category);
                Cell { swatch: category.map(theme::category), ..faint(row, cell) }
            }),
        Column::text("called_by", "called by", site)
            .wide(0.0, "The innermost line of your program; for a mark, its text.")
            .look(faint)
            .tip(move |row| {
                let stack = trace.events.stack[listed.event(row)?.0 as usize];
                Some(leading_frame(&trace.tables, stack)?.text(&trace.tables))
            }),
    ];
    if is_there(GroupKey::Op) {
        let op = column("operation", |trace, _, facts| trace.tables.op_name(facts.op).to_owned());
        columns.push(op.wide(120.0, "The operation that requested the block.").look(faint));
    }
    if is_there(GroupKey::Scope) {
        let scope = column("module", |trace, _, facts| trace.tables.scope_path(facts.scope));
        columns.push(scope.wide(150.0, "The module that requested the block.").look(faint));
    }
    if !trace.spans.rows().is_empty() {
        let span = column("step, phase", |trace, id, _| phase(trace, id).unwrap_or_default());
        columns.push(span.wide(132.0, "The phase of the training step.").look(faint));
    }
    ShownTable::new(listed.len(), columns.into_iter().map(ShownColumn::fixed))
}
