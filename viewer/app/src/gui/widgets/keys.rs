//! Keyboard shortcuts: detects pressed commands, and formats keys for menus.

use eframe::egui::{self, Event, EventFilter, Key, KeyboardShortcut, Modifiers, Response, Ui};

use crate::Command;
use crate::files::HAS_PATHS;

/// Keys that operate the widget with the focus, or move the focus.
const OF_WIDGETS: [Key; 15] = [
    Key::ArrowLeft,
    Key::ArrowRight,
    Key::ArrowUp,
    Key::ArrowDown,
    Key::PageUp,
    Key::PageDown,
    Key::Home,
    Key::End,
    Key::Enter,
    Key::Space,
    Key::Escape,
    Key::Backspace,
    Key::Plus,
    Key::Equals,
    Key::Minus,
];

/// Keys that text fields do not use in combination with Ctrl.
const WITH_CTRL_IN_TEXT: [Key; 16] = [
    Key::Num0,
    Key::Num1,
    Key::Num2,
    Key::Num3,
    Key::Num4,
    Key::Num5,
    Key::Num6,
    Key::Num7,
    Key::Num8,
    Key::Num9,
    Key::O,
    Key::S,
    Key::Q,
    Key::L,
    Key::B,
    Key::P,
];

/// Returns the commands whose keys were pressed since the last frame, in order. While a text field has the focus, only
/// Ctrl combinations that it does not use count. While another widget has the focus or a menu is open, keys that the
/// widget or menu uses do not count.
pub fn pressed(ctx: &egui::Context) -> Vec<Command> {
    let is_typing = ctx.text_edit_focused();
    let is_taken = ctx.egui_wants_keyboard_input() || egui::Popup::is_any_open(ctx);
    let mut shortcuts: Vec<(KeyboardShortcut, Command)> = Command::ALL
        .iter()
        .flat_map(|&command| command.keys().iter().filter_map(move |key| Some((shortcut(key)?, command))))
        .filter(|(shortcut, _)| {
            let is_bare = shortcut.modifiers.is_none() && OF_WIDGETS.contains(&shortcut.logical_key);
            let is_left = shortcut.modifiers.command && WITH_CTRL_IN_TEXT.contains(&shortcut.logical_key);
            !(is_taken && is_bare) && (is_left || !is_typing)
        })
        .collect();
    // A bare key would also match with modifiers held, so shortcuts with more modifiers come first.
    shortcuts.sort_by_key(|(shortcut, _)| {
        let Modifiers { alt, ctrl, shift, command, .. } = shortcut.modifiers;
        std::cmp::Reverse([alt, ctrl, shift, command].into_iter().filter(|pressed| *pressed).count())
    });
    let mut commands = Vec::new();
    ctx.input_mut(|input| {
        input.events.retain(|event| {
            let Event::Key { key, modifiers, pressed: true, .. } = event else { return true };
            let is_this = |shortcut: &KeyboardShortcut| {
                shortcut.logical_key == *key && modifiers.matches_logically(shortcut.modifiers)
            };
            let found = shortcuts.iter().find(|(shortcut, _)| is_this(shortcut));
            commands.extend(found.map(|(_, command)| *command));
            found.is_none()
        });
    });
    commands
}

/// Returns the menu that a key opens. F10 opens the first menu. Alt and a letter open the first menu whose name
/// contains the letter, except letters used for an earlier menu. While a menu is open, left and right open its
/// neighbours.
pub(crate) fn opened_menu(ctx: &egui::Context, names: &[&str]) -> Option<usize> {
    let shown = ctx.data(|data| data.get_temp::<usize>(shown_menu()));
    let mut letters: Vec<char> = Vec::new();
    for name in names {
        letters.extend(name.to_uppercase().chars().find(|letter| !letters.contains(letter)));
    }
    ctx.input_mut(|input| {
        if let Some(shown) = shown {
            for (key, by) in [(Key::ArrowLeft, names.len() - 1), (Key::ArrowRight, 1)] {
                if input.consume_key(Modifiers::NONE, key) {
                    return Some((shown + by) % names.len());
                }
            }
        }
        if input.consume_key(Modifiers::NONE, Key::F10) {
            return Some(0);
        }
        let is_pressed = |letter: &char| {
            let key = Key::from_name(&letter.to_string());
            key.is_some_and(|key| input.consume_key(Modifiers::ALT, key))
        };
        letters.iter().position(is_pressed)
    })
}

pub(crate) fn note_menu(ctx: &egui::Context, row: usize, is_open: bool) {
    ctx.data_mut(|data| {
        if is_open {
            data.insert_temp(shown_menu(), row);
        } else if data.get_temp(shown_menu()) == Some(row) {
            data.remove_temp::<usize>(shown_menu());
        }
    });
}

fn shown_menu() -> egui::Id {
    egui::Id::unique("the open menu")
}

fn shortcut(text: &str) -> Option<KeyboardShortcut> {
    let mut modifiers = Modifiers::NONE;
    let mut parts = text.split('+').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return Some(KeyboardShortcut::new(modifiers, Key::from_name(part)?));
        }
        modifiers |= match part {
            "Ctrl" => Modifiers::COMMAND,
            "Shift" => Modifiers::SHIFT,
            "Alt" => Modifiers::ALT,
            _ => return None,
        };
    }
    None
}

/// Keys that browsers reserve for themselves.
const OF_BROWSERS: [&str; 6] = ["Ctrl+W", "Ctrl+Tab", "Ctrl+Shift+Tab", "Ctrl+PageDown", "Ctrl+PageUp", "Ctrl+R"];

/// The keys of `command` that are available to the app, formatted for menus.
pub(crate) fn shown_keys(command: Command) -> impl Iterator<Item = String> {
    command.keys().iter().filter(|key| HAS_PATHS || !OF_BROWSERS.contains(key)).map(|key| shown(key))
}

/// The first key of `command`, formatted for menus; empty if the command has none.
pub fn first(command: Command) -> String {
    shown_keys(command).next().unwrap_or_default()
}

/// A key, formatted for menus.
pub fn shown(text: &str) -> String {
    // Arrows are spelt out: the built-in fonts lack the symbols.
    let names = [("Arrow", ""), ("Plus", "+"), ("Minus", "-"), ("Period", "."), ("Comma", ","), ("Slash", "/")];
    let names = names.into_iter().chain([("Questionmark", "?")]);
    let names = names.chain([("OpenBracket", "["), ("CloseBracket", "]"), ("Page", "Page ")]);
    names.fold(text.to_owned(), |text, (name, sign)| text.replace(name, sign))
}

/// Returns a function that counts the presses of a key; `None` without the keyboard focus. Arrow keys of the given
/// directions (horizontal, vertical) then do not move the focus.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_every_command_is_one_that_keyboards_have() {
        for command in Command::ALL {
            for key in command.keys() {
                assert!(shortcut(key).is_some(), "{key} of {}", command.name());
            }
        }
        assert_eq!(shortcut("Hyper+X"), None);
        assert_eq!(shown("Shift+ArrowUp"), "Shift+Up");
    }

    #[test]
    fn keys_of_one_frame_are_carried_out_in_their_order() {
        let key = |key: Key, modifiers: Modifiers| Event::Key {
            key,
            physical_key: None,
            pressed: true,
            repeat: false,
            modifiers,
        };
        let ctx = egui::Context::default();
        for keys in [[Key::B, Key::Num4], [Key::Num4, Key::B]] {
            let events = keys.map(|one| key(one, Modifiers::COMMAND)).into_iter();
            let events = events.chain([key(Key::P, Modifiers::NONE), key(Key::P, Modifiers::NONE)]).collect();
            let mut found = Vec::new();
            let input = egui::RawInput { events, ..Default::default() };
            ctx.run_ui(input, |ui| found.extend(pressed(ui.ctx()))).textures_delta.clear();
            let of = |key: Key| if key == Key::B { Command::ShowPlan } else { Command::ShowSegments };
            assert_eq!(found, [of(keys[0]), of(keys[1]), Command::GoToPeak, Command::GoToPeak]);
        }
    }

    #[test]
    fn the_guide_lists_every_command_with_its_keys_as_menus_show_them() {
        let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/app.md")).unwrap();
        let table = guide.split_once("<!-- keys -->\n").unwrap().1.split_once("<!-- /keys -->").unwrap().0;
        let keys = |command: Command| command.keys().iter().map(|key| shown(key)).collect::<Vec<_>>().join(" or ");
        let row = |command: &Command| format!("| {} | {} | {} |", command.name(), keys(*command), command.tooltip());
        let expected: Vec<String> = Command::ALL.iter().map(row).collect();
        assert_eq!(table.lines().skip(2).collect::<Vec<_>>(), expected);
    }
}
