//! The keys pressed while a widget has the keyboard focus.

use eframe::egui::{EventFilter, Key, Modifiers, Response, Ui};

/// Returns a function that takes the presses of a key and counts them; `None` without the keyboard focus. Arrows of
/// these directions, horizontal and vertical, do not move the focus elsewhere.
pub(crate) fn pressed_keys<'a>(
    ui: &'a Ui,
    response: &Response,
    [horizontal_arrows, vertical_arrows]: [bool; 2],
) -> Option<impl Fn(Key) -> i64 + 'a> {
    if !response.has_focus() {
        return None;
    }
    let filter = EventFilter { tab: false, horizontal_arrows, vertical_arrows, escape: false };
    ui.memory_mut(|memory| memory.set_focus_lock_filter(response.id, filter));
    Some(|key| ui.input_mut(|input| input.count_and_consume_key(Modifiers::NONE, key)) as i64)
}
