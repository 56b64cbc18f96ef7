//! Widgets and helpers shared by several views: colours, tables, keys, background work.

pub(crate) mod theme;
pub(crate) mod words;
pub mod keys;
pub(crate) mod fit;
pub(crate) mod choice;
pub(crate) mod tile;
pub(crate) mod flame;
pub(crate) mod note;
pub(crate) mod layout;
pub(crate) mod table;
pub(crate) mod query;

pub(crate) use choice::{ChoiceEntry, choice_ui, entries_ui, next_of, tabs_ui, value_menu_ui};
pub(crate) use fit::fitted;
pub(crate) use keys::pressed_keys;
pub(crate) use layout::{exact_height_ui, least_height_ui, place_ui, scrolling_ui, split_ui};
pub(crate) use note::{answer_ui, assumption_ui, labelled_button_ui, note_ui, quiet_ui, warning_ui};
pub(crate) use query::{Cancel, Computed, Memo, Query, computed};
pub(crate) use table::{Cell, ShownColumn, ShownTable, SortedTable, TableState, Touched, table_ui};
pub(crate) use theme::{Shades, swatch_ui};
pub(crate) use words::{
    MEANING_OF_NONE, before, capital, doubts, event_text, failed_requests, has_losses, life, moment_text, name_of_none,
    outside, phase, span_text, step_and_phase, title, when,
};
