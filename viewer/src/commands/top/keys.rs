//! Maps keys to actions.

use highwater_analysis::{GroupKey, Metric};
use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};

use super::answer::Choice;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Quit,
    Show(Choice),
}

pub(super) const HELP: [(&str, &str); 5] =
    [("q", "quit"), ("m", "total"), ("g", "grouping"), ("d", "device"), ("↑↓ Tab", "recording")];

/// Returns the action for `event`, given the current `choice` and the number of recordings.
pub(super) fn act(event: &Event, choice: Choice, rows: usize) -> Option<Act> {
    let Event::Key(key) = event else { return None };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    let moved = |by: usize| Some(Act::Show(Choice { row: (choice.row + by) % rows.max(1), device: 0, ..choice }));
    match key.code {
        KeyCode::Char('c' | 'd') if is_control => Some(Act::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Act::Quit),
        KeyCode::Char('m') => Some(Act::Show(Choice { metric: next(&Metric::ALL, choice.metric), ..choice })),
        KeyCode::Char('g') => Some(Act::Show(Choice { key: next(&groupings(), choice.key), ..choice })),
        KeyCode::Char('d') => Some(Act::Show(Choice { device: choice.device + 1, ..choice })),
        KeyCode::Down | KeyCode::Right | KeyCode::Tab | KeyCode::Char('j') => moved(1),
        KeyCode::Up | KeyCode::Left | KeyCode::BackTab | KeyCode::Char('k') => moved(rows.max(1) - 1),
        _ => None,
    }
}

/// The available grouping keys; the lifetime of a block is unknown before its end.
pub(super) fn groupings() -> Vec<GroupKey> {
    GroupKey::ALL.iter().copied().filter(|key| *key != GroupKey::Lifetime).collect()
}

/// Returns the element after `now`, or the first one.
fn next<T: Copy + PartialEq>(all: &[T], now: T) -> T {
    let at = all.iter().position(|one| *one == now).map_or(0, |at| (at + 1) % all.len());
    all[at]
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyEvent;

    use super::*;

    const CHOICE: Choice = Choice { metric: Metric::Requested, key: GroupKey::Scope, row: 0, device: 0 };

    fn pressed(code: KeyCode, modifiers: KeyModifiers, choice: Choice, rows: usize) -> Option<Act> {
        act(&Event::Key(KeyEvent::new(code, modifiers)), choice, rows)
    }

    #[test]
    fn every_key_that_is_named_does_what_it_says() {
        let plain = |code, choice| pressed(code, KeyModifiers::NONE, choice, 3);
        for code in [KeyCode::Char('q'), KeyCode::Esc] {
            assert_eq!(plain(code, CHOICE), Some(Act::Quit));
        }
        assert_eq!(pressed(KeyCode::Char('c'), KeyModifiers::CONTROL, CHOICE, 3), Some(Act::Quit));
        assert_eq!(plain(KeyCode::Char('c'), CHOICE), None);
        assert_eq!(plain(KeyCode::Up, CHOICE), Some(Act::Show(Choice { row: 2, ..CHOICE })));
        assert_eq!(plain(KeyCode::Tab, Choice { row: 2, ..CHOICE }), Some(Act::Show(CHOICE)));
        assert_eq!(pressed(KeyCode::Down, KeyModifiers::NONE, CHOICE, 0), Some(Act::Show(CHOICE)), "no recordings");
    }

    #[test]
    fn all_totals_and_all_groupings_come_in_turn() {
        let mut choice = CHOICE;
        let mut seen = Vec::new();
        for _ in 0..groupings().len() * Metric::ALL.len() {
            for key in ['g', 'm'] {
                let Some(Act::Show(next)) = pressed(KeyCode::Char(key), KeyModifiers::NONE, choice, 1) else {
                    panic!()
                };
                choice = next;
            }
            seen.push((choice.metric, choice.key));
        }
        assert_eq!(choice, CHOICE);
        assert!(Metric::ALL.iter().all(|metric| seen.iter().any(|(other, _)| other == metric)));
        assert!(groupings().iter().all(|key| seen.iter().any(|(_, other)| other == key)));
        assert!(!groupings().contains(&GroupKey::Lifetime));
    }
}
