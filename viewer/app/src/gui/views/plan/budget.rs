//! The fields for the budget, and its default for a recording.

use eframe::egui::{TextEdit, Ui};
use highwater_analysis::final_oom::final_oom;
use highwater_analysis::{DeviceSummary, Metric};
use highwater_snapshots::{format_exact_bytes, parse_bytes, parse_size};

use crate::answers::prediction::DEVICE_SIZES;
use crate::answers::replays::used_outside;
use crate::figures::planned::Budget;
use crate::gui::views::view::ViewContext;
use crate::gui::widgets::{theme, value_menu_ui, warning_ui};

/// Share of its memory that the recording must need for a device to be the default budget, unless a request failed on
/// it.
const NEAR: [u64; 2] = [9, 10];
const FIELD_WIDTH: f32 = 84.0;

/// Returns the default budget and its source: a memory limit or the device's memory, if a request failed there or the
/// recording needs nearly all of it; otherwise the largest common device size between half of the peak of reserved
/// memory and that peak, or nine tenths of it.
pub(super) fn default_budget(context: &ViewContext<'_>) -> (u64, &'static str) {
    let (trace, index) = (&context.recording.trace, context.index());
    let DeviceSummary { capacity_bytes: capacity, capacity_is_inferred, oom_events, .. } = index.summary;
    let [allocated, reserved] = [Metric::Allocated, Metric::Reserved].map(|metric| index.peak(trace, metric).bytes);
    let peak = allocated.max(reserved);
    let nearly_all = |of: u64| of / NEAR[1] * NEAR[0];
    // Reading a recording in memory cannot fail.
    let limit = context.recording.source.memory_limit(index.device).ok().flatten();
    if let Some(limit) = limit {
        return (limit, "the maximum of reserved memory before a request failed at a limit below the device's memory");
    }
    if capacity_is_inferred {
        return (capacity, "the memory that the allocator could use when a request failed");
    }
    if capacity > 0 && (oom_events > 0 || final_oom(trace).is_some() || peak >= nearly_all(capacity)) {
        return (capacity, "the device's memory");
    }
    let sizes = DEVICE_SIZES.iter().filter_map(|(size, _)| parse_bytes(size).ok());
    match sizes.filter(|size| (peak / 2..peak).contains(size)).max() {
        Some(size) => (size, "the largest common device size below the peak of reserved memory"),
        None => (rounded_down(nearly_all(peak)).max(1), "nine tenths of the peak of reserved memory"),
    }
}

/// Returns the default for the part of the budget used by other processes, from the samples of device memory, as in
/// what-if predictions; 0 if the budget `is_suggested` and is already the memory that a failed request found available
/// to the allocator.
pub(super) fn default_reserve(context: &ViewContext<'_>, is_suggested: bool) -> u64 {
    let index = context.index();
    // Reading a recording in memory cannot fail.
    let is_limited = context.recording.source.memory_limit(index.device).ok().flatten().is_some();
    if is_suggested && (is_limited || index.summary.capacity_is_inferred) {
        return 0;
    }
    used_outside(&context.recording.source, index.device).unwrap_or(0)
}

/// Rounds `bytes` down to a multiple of 256 MiB if it is at least 1 GiB, or of 1 MiB if it is at least 4 MiB, so that
/// the size can be written exactly.
fn rounded_down(bytes: u64) -> u64 {
    let whole = |shift: u32| Some(bytes >> shift << shift).filter(|whole| *whole >= 4 << shift);
    whole(28).or_else(|| whole(20)).unwrap_or(bytes)
}

pub(super) fn next_device(bytes: u64, is_larger: bool) -> Option<u64> {
    let mut sizes = DEVICE_SIZES.iter().filter_map(|(size, _)| parse_bytes(size).ok());
    if is_larger { sizes.find(|size| *size > bytes) } else { sizes.rfind(|size| *size < bytes) }
}

#[derive(Clone, Debug, Default)]
pub(super) struct BudgetForm {
    budget: String,
    reserve: String,
    /// The error in the text of a field, if any.
    mistake: Option<String>,
    wants_focus: bool,
}

impl BudgetForm {
    pub(super) fn set(&mut self, budget: Budget) {
        self.budget = format_exact_bytes(budget.bytes);
        self.reserve = format_exact_bytes(budget.reserve);
        self.mistake = None;
    }

    pub(super) fn focus(&mut self) {
        self.wants_focus = true;
    }

    /// Shows the fields. Returns the budget, if it is valid, when the user leaves a field or selects a value, changed
    /// or not.
    pub(super) fn budget_ui(&mut self, ui: &mut Ui) -> Option<Budget> {
        let mut is_entered = false;
        let label = ui.label("Budget");
        let tooltip = "Device memory, such as 24GiB. Or drag the handle on the chart's axis.";
        let field = TextEdit::singleline(&mut self.budget).hint_text(theme::placeholder(ui, "24GiB"));
        let field = ui.add(field.desired_width(FIELD_WIDTH)).labelled_by(label.id).on_hover_text(tooltip);
        if std::mem::take(&mut self.wants_focus) {
            field.request_focus();
        }
        is_entered |= field.lost_focus();
        if let Some(size) = value_menu_ui(ui, "Budget", &DEVICE_SIZES) {
            size.clone_into(&mut self.budget);
            is_entered = true;
        }
        let label = ui.label("Keep free");
        let tooltip = "Part of the budget for memory outside the allocator, such as the CUDA context and \
                       communication buffers.";
        let field = TextEdit::singleline(&mut self.reserve).hint_text(theme::placeholder(ui, "0"));
        let field = ui.add(field.desired_width(FIELD_WIDTH)).labelled_by(label.id).on_hover_text(tooltip);
        is_entered |= field.lost_focus();
        is_entered.then(|| self.read()).flatten()
    }

    pub(super) fn mistake_ui(&self, ui: &mut Ui) {
        if let Some(why) = &self.mistake {
            warning_ui(ui, why);
        }
    }

    /// Parses the budget in the fields; if it is invalid, returns `None` and stores the error.
    fn read(&mut self) -> Option<Budget> {
        let reserve = if self.reserve.trim().is_empty() { Ok(0) } else { parse_size(&self.reserve) };
        let read = parse_size(&self.budget).and_then(|bytes| {
            let budget = Budget { bytes, reserve: reserve? };
            if budget.capacity() == 0 {
                return Err("nothing of the budget is left; keep less of it free".to_owned());
            }
            Ok(budget)
        });
        match read {
            Ok(budget) => {
                self.mistake = None;
                Some(budget)
            }
            Err(why) => {
                self.mistake = Some(why);
                None
            }
        }
    }
}
