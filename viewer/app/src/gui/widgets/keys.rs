//! Converts key names of the command list to egui's shortcuts and to the texts in menus.

use eframe::egui::{self, Key, KeyboardShortcut, Modifiers};

use crate::command::Command;
use crate::files::HAS_PATHS;

/// Keys that operate the focused widget, and leave it.
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

/// Keys that text fields leave alone while Ctrl is held.
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

/// The commands whose keys were pressed since the last frame. While a text field has the keyboard, only keys that it
/// does not use count, with Ctrl held; while another widget has it or a menu is open, none of the bare keys that these
/// take.
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
    ctx.input_mut(|input| {
        shortcuts.iter().filter(|(shortcut, _)| input.consume_shortcut(shortcut)).map(|(_, command)| *command).collect()
    })
}

/// The shortcut spelt `text`; `None` if a part of it is unknown.
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

/// Keys that browsers keep to themselves.
const OF_BROWSERS: [&str; 6] = ["Ctrl+W", "Ctrl+Tab", "Ctrl+Shift+Tab", "Ctrl+PageDown", "Ctrl+PageUp", "Ctrl+R"];

/// The keys of `command` that reach the app, as menus show them.
pub(crate) fn shown_keys(command: Command) -> impl Iterator<Item = String> {
    command.keys().iter().filter(|key| HAS_PATHS || !OF_BROWSERS.contains(key)).map(|key| shown(key))
}

/// The first key of `command` as a menu shows it, or nothing.
pub fn first(command: Command) -> String {
    shown_keys(command).next().unwrap_or_default()
}

/// The key as a menu shows it.
pub fn shown(text: &str) -> String {
    // Arrows are spelt out: the built-in fonts lack the symbols.
    let names = [("Arrow", ""), ("Plus", "+"), ("Minus", "-"), ("Period", "."), ("Comma", ","), ("Slash", "/")];
    let names = names.into_iter().chain([("Questionmark", "?")]);
    let names = names.chain([("OpenBracket", "["), ("CloseBracket", "]"), ("Page", "Page ")]);
    names.fold(text.to_owned(), |text, (name, sign)| text.replace(name, sign))
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
    fn the_guide_lists_every_command_with_its_keys_as_menus_show_them() {
        let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/app.md")).unwrap();
        let table = guide.split_once("<!-- keys -->\n").unwrap().1.split_once("<!-- /keys -->").unwrap().0;
        let keys = |command: Command| command.keys().iter().map(|key| shown(key)).collect::<Vec<_>>().join(" or ");
        let row = |command: &Command| format!("| {} | {} | {} |", command.name(), keys(*command), command.tooltip());
        let expected: Vec<String> = Command::ALL.iter().map(row).collect();
        assert_eq!(table.lines().skip(2).collect::<Vec<_>>(), expected);
    }
}
