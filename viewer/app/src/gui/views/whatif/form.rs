//! The form for a what-if change, with text fields and common values. Errors are shown next to their fields.

use eframe::egui::{Align, ComboBox, Key, Label, Layout, RichText, Role, TextEdit, Ui, WidgetInfo, vec2};
use highwater_analysis::Filter;
use highwater_snapshots::{DeviceId, ScopePattern, Trace, parse_bytes};

use crate::answers::prediction::{Change, DEVICE_SIZES, SizePart, in_words};
use crate::answers::recomputation::check_patterns;
use crate::answers::replays::check_settings;
use crate::gui::widgets::{Shades, theme, value_menu_ui};

highwater_snapshots::vocabulary!(
    /// The fields for a what-if change.
    Field {
        Settings = "Settings",
        Capacity = "Device size",
        Checkpoint = "Recompute",
        Without = "Without",
        UntilLastUse = "Until last use",
        Scale = "Scale to",
    }
);

/// A suggested value for a field, and its tooltip.
type Choice = (&'static str, &'static str);

const SETTINGS: [Choice; 5] = [
    ("expandable_segments:True", "Segments grow page by page, so that free memory is contiguous."),
    (
        "max_split_size_mb:128",
        "Blocks larger than 128 MiB are not split and are reused only for requests of about their size.",
    ),
    (
        "roundup_power2_divisions:8",
        "Sizes are rounded up to eighths between powers of two, so that more blocks can be reused.",
    ),
    ("garbage_collection_threshold:0.8", "Unused segments are freed once 80% of the device memory is reserved."),
    ("default", "The defaults, without the recorded settings."),
];
const FILTERS: [Choice; 5] = [
    ("category=gradient", "Gradients."),
    ("category=activation", "Activations kept for backward."),
    ("category=optimizer_state", "Optimizer state, such as momentum."),
    ("category=temporary", "Intermediate results."),
    ("category=workspace", "Workspaces of libraries such as cuBLAS."),
];
const PARTS: [SizePart; 2] = [SizePart { numerator: 1, denominator: 2 }, SizePart { numerator: 1, denominator: 4 }];

impl Field {
    const fn hint(self) -> &'static str {
        match self {
            Self::Settings => "expandable_segments:True",
            Self::Capacity => "24GiB",
            Self::Checkpoint => "layers.*",
            Self::Without | Self::UntilLastUse => "category=gradient",
            Self::Scale => "category=activation",
        }
    }

    const fn tooltip(self) -> &'static str {
        match self {
            Self::Settings => {
                "Allocator settings as in PYTORCH_CUDA_ALLOC_CONF; they override the recorded ones, or the defaults if \
                 they begin with 'default'."
            }
            Self::Capacity => {
                "Device memory: whether the run fits, and if not, where it fails. Drivers reserve a little of it."
            }
            Self::Checkpoint => {
                "Modules to recompute in backward (activation checkpointing), by path: layers.3, layers.*.mlp, \
                 layers.{0-9}; several with spaces."
            }
            Self::Without => "Blocks to leave out, as search conditions.",
            Self::UntilLastUse => "Blocks to free right after their last use.",
            Self::Scale => "Blocks to scale in size; 1/2 turns f32 into bf16.",
        }
    }

    const fn choices(self) -> &'static [Choice] {
        match self {
            Self::Settings => &SETTINGS,
            Self::Capacity => &DEVICE_SIZES,
            Self::Checkpoint => &[],
            Self::Without | Self::UntilLastUse | Self::Scale => &FILTERS,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Applied {
    /// The change; its device is set when the change is replayed.
    pub(super) change: Change,
    pub(super) words: String,
}

impl Applied {
    /// Returns whether the change affects only some blocks.
    pub(super) fn is_of_blocks(&self) -> bool {
        !(self.change.without.is_empty() && self.change.until_last_use.is_empty() && self.change.scale.is_empty())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Apply,
    Reset,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Form {
    /// The field that requests the keyboard focus.
    wants_focus: Option<Field>,
    texts: [String; Field::ALL.len()],
    mistakes: [Option<String>; Field::ALL.len()],
    /// The index of the selected scale factor.
    part: usize,
}

impl Form {
    pub(super) fn set(&mut self, field: Field, text: &str) {
        text.clone_into(&mut self.texts[field as usize]);
        self.mistakes[field as usize] = None;
    }

    pub(super) fn focus(&mut self) {
        self.wants_focus = Some(Field::ALL[0]);
    }

    pub(super) fn has_mistakes(&self) -> bool {
        self.mistakes.iter().any(Option::is_some)
    }

    /// Whether both forms have the same texts, ignoring white space around them, and the same scale factor if it is
    /// used.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let has_parts = self.text(Field::Scale).is_some();
        Field::ALL.iter().copied().all(|field| self.text(field) == other.text(field))
            && (!has_parts || self.part == other.part)
    }

    #[cfg(test)]
    pub(super) fn mistake(&self, name: &str) -> Option<&str> {
        let field = Field::ALL.iter().copied().find(|field| field.name() == name)?;
        self.mistakes[field as usize].as_deref()
    }

    /// The content of `field`; `None` if it is empty.
    fn text(&self, field: Field) -> Option<&str> {
        Some(self.texts[field as usize].trim()).filter(|text| !text.is_empty())
    }

    /// Returns the requested change on `device`. If a field is invalid, returns `None`, sets the field's error and
    /// requests the keyboard focus for it.
    pub(super) fn apply(&mut self, trace: &Trace, device: DeviceId, has_uses: bool) -> Option<Applied> {
        let mut mistakes: [Option<String>; Field::ALL.len()] = Default::default();
        let mut note = |field: Field, why: String| mistakes[field as usize] = Some(why);
        let settings = self.text(Field::Settings);
        if let Some(Err(why)) = settings.map(|text| check_settings(trace, device, text)) {
            note(Field::Settings, why);
        }
        let capacity = match self.text(Field::Capacity).map(parse_bytes) {
            Some(Err(why)) => {
                note(Field::Capacity, why);
                None
            }
            Some(Ok(bytes)) => Some(bytes),
            None => None,
        };
        let checkpoint = self.checkpoint(trace).unwrap_or_else(|why| {
            note(Field::Checkpoint, why);
            Vec::new()
        });
        let mut filter = |field: Field| -> Option<(&str, Filter)> {
            let text = self.text(field)?;
            match text.parse() {
                Ok(filter) => Some((text, filter)),
                Err(why) => {
                    note(field, why);
                    None
                }
            }
        };
        let without = filter(Field::Without);
        // A value that does not apply to this recording may be left from another one.
        let until_last_use = if has_uses { filter(Field::UntilLastUse) } else { None };
        let part = PARTS[self.part.min(PARTS.len() - 1)];
        let scale = filter(Field::Scale);
        let texts =
            |one: &Option<(&'_ str, Filter)>| one.iter().map(|(text, _)| (*text).to_owned()).collect::<Vec<_>>();
        let (removed, shortened) = (texts(&without), texts(&until_last_use));
        let [removed, shortened] = [&removed, &shortened].map(|all| all.iter().map(String::as_str).collect::<Vec<_>>());
        let scaled: Vec<(SizePart, &str)> = scale.iter().map(|(text, _)| (part, *text)).collect();
        let words = in_words(settings, capacity, &checkpoint, [&removed, &shortened], &scaled);
        let filters = |one: Option<(&str, Filter)>| one.into_iter().map(|(_, filter)| filter).collect::<Vec<_>>();
        let change = Change {
            device,
            alloc_conf: settings.map(str::to_owned),
            capacity,
            without: filters(without),
            until_last_use: filters(until_last_use),
            scale: filters(scale).into_iter().map(|filter| (part, filter)).collect(),
            checkpoint,
            note: None,
        };
        self.mistakes = mistakes;
        self.wants_focus = Field::ALL.iter().copied().find(|field| self.mistakes[*field as usize].is_some());
        self.mistakes.iter().all(Option::is_none).then_some(Applied { change, words })
    }

    /// Returns the patterns of the modules to recompute, after checking that each matches a module of `trace`.
    fn checkpoint(&self, trace: &Trace) -> Result<Vec<ScopePattern>, String> {
        let words = self.text(Field::Checkpoint).unwrap_or_default().split_whitespace();
        let patterns: Result<Vec<ScopePattern>, _> = words.map(str::parse).collect();
        let patterns = patterns.map_err(|why| why.to_string())?;
        if !patterns.is_empty() {
            check_patterns(trace, &patterns)?;
        }
        Ok(patterns)
    }

    /// Returns the user's action. `no_uses` is the reason shown if the recording has no use events.
    pub(super) fn form_ui(&mut self, ui: &mut Ui, no_uses: Option<&str>, is_busy: bool) -> Option<Act> {
        let mut act = None;
        for &field in Field::ALL {
            let problem = no_uses.filter(|_| field == Field::UntilLastUse);
            ui.horizontal(|ui| act = self.field_ui(ui, field, problem.is_none()).or(act));
            if let Some(problem) = problem {
                message_ui(ui, problem, Shades::in_ui(ui).faint);
            } else if let Some(why) = &self.mistakes[field as usize] {
                message_ui(ui, why, Shades::in_ui(ui).warning);
            }
        }
        ui.horizontal(|ui| {
            ui.add_space(theme::FORM_LABELS + ui.spacing().item_spacing.x);
            let button = ui.button("Apply").on_hover_text("Replay with the change (Enter in a field).");
            button.widget_info(|| WidgetInfo::labeled(Role::Button, true, "Replay with the change"));
            if button.clicked() {
                act = Some(Act::Apply);
            }
            if ui.button("Reset").on_hover_text("Remove all changes and try common settings.").clicked() {
                act = Some(Act::Reset);
            }
            if is_busy {
                ui.spinner();
                ui.weak("replaying…");
            }
        });
        act
    }

    fn field_ui(&mut self, ui: &mut Ui, field: Field, is_usable: bool) -> Option<Act> {
        let mut act = None;
        let room = vec2(theme::FORM_LABELS, ui.spacing().interact_size.y);
        let label = ui.allocate_ui_with_layout(room, Layout::left_to_right(Align::Center), |ui| {
            ui.set_min_size(room);
            let label = ui.label(field.name());
            if field == Field::Scale {
                self.part_ui(ui);
            }
            label
        });
        let choose = 62.0 + ui.spacing().item_spacing.x;
        ui.add_enabled_ui(is_usable, |ui| {
            let width = (ui.available_width() - choose).max(80.0);
            let edit =
                TextEdit::singleline(&mut self.texts[field as usize]).hint_text(theme::placeholder(ui, field.hint()));
            let edit = ui.add(edit.desired_width(width)).labelled_by(label.inner.id);
            if self.wants_focus == Some(field) {
                self.wants_focus = None;
                edit.request_focus();
            }
            if edit.changed() {
                self.mistakes[field as usize] = None;
            }
            if edit.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter)) {
                act = Some(Act::Apply);
            }
            edit.on_hover_text(field.tooltip());
            if field.choices().is_empty() {
                return;
            }
            if let Some(value) = value_menu_ui(ui, field.name(), field.choices()) {
                self.set(field, value);
                act = Some(Act::Apply);
            }
        });
        act
    }

    fn part_ui(&mut self, ui: &mut Ui) {
        let name = |row: usize| format!("{}/{}", PARTS[row].numerator, PARTS[row].denominator);
        let now = name(self.part.min(PARTS.len() - 1));
        let list = ComboBox::from_id_salt("part").selected_text(&now).width(0.0);
        let shown = list.show_ui(ui, |ui| {
            for row in 0..PARTS.len() {
                ui.selectable_value(&mut self.part, row, name(row));
            }
        });
        shown.response.widget_info(|| WidgetInfo::labeled(Role::ComboBox, true, format!("Part {now}")));
    }
}

fn message_ui(ui: &mut Ui, text: &str, colour: eframe::egui::Color32) {
    ui.horizontal(|ui| {
        ui.add_space(theme::FORM_LABELS + ui.spacing().item_spacing.x);
        ui.add(Label::new(RichText::new(text).size(12.0).color(colour)).wrap());
    });
}
