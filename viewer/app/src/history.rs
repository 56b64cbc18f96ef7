//! The history of view states, for Undo and Redo.

/// Maximum number of earlier states.
const MOST: usize = 256;
/// Pause in seconds after which a movement by wheel, pointer or arrow keys counts as a new change.
const PAUSE: f64 = 0.7;

/// The current state of the view, and its earlier and later states.
#[derive(Clone, Debug)]
pub struct History<T> {
    back: Vec<T>,
    now: T,
    forward: Vec<T>,
    /// The time of the last movement; `None` if a further movement starts a new change.
    moved: Option<f64>,
}

impl<T: Clone + PartialEq> History<T> {
    /// Creates a history that begins with `now`.
    pub fn new(now: T) -> Self {
        Self { back: Vec::new(), now, forward: Vec::new(), moved: None }
    }

    /// Records the current state; `seconds` is the time on any clock. A continuous movement, which changes the state
    /// repeatedly without long pauses, counts as one change.
    pub fn note(&mut self, now: &T, is_movement: bool, seconds: f64) {
        if *now == self.now {
            return;
        }
        let goes_on = is_movement && self.moved.is_some_and(|moved| seconds - moved < PAUSE);
        let former = std::mem::replace(&mut self.now, now.clone());
        self.moved = is_movement.then_some(seconds);
        if !goes_on {
            self.back.push(former);
            let over = self.back.len().saturating_sub(MOST);
            self.back.drain(..over);
        }
        self.forward.clear();
    }

    /// Replaces the current state without adding an undoable change, such as after the recording has grown.
    pub fn amend(&mut self, now: T) {
        self.now = now;
        self.moved = None;
    }

    /// Returns to the previous state; `None` if there is none.
    pub fn back(&mut self) -> Option<T> {
        let before = self.back.pop()?;
        self.forward.push(std::mem::replace(&mut self.now, before));
        self.moved = None;
        Some(self.now.clone())
    }

    /// Returns to the state that [`Self::back`] left; `None` if there is none.
    pub fn forward(&mut self) -> Option<T> {
        let after = self.forward.pop()?;
        self.back.push(std::mem::replace(&mut self.now, after));
        self.moved = None;
        Some(self.now.clone())
    }

    pub(crate) fn can_go_back(&self) -> bool {
        !self.back.is_empty()
    }

    pub(crate) fn can_go_forward(&self) -> bool {
        !self.forward.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_undone_and_done_again_in_their_order() {
        let mut history = History::new(0);
        for state in [1, 2, 2, 3] {
            history.note(&state, false, 0.0);
        }
        assert_eq!((history.back(), history.back()), (Some(2), Some(1)));
        assert_eq!(history.forward(), Some(2));
        history.note(&9, false, 0.0);
        assert!(!history.can_go_forward(), "what was undone is gone once something new is done");
        assert_eq!([history.back(), history.back(), history.back(), history.back()], [Some(2), Some(1), Some(0), None]);
    }

    #[test]
    fn a_movement_is_one_change_until_it_pauses() {
        let mut history = History::new(0);
        for (state, seconds) in [(1, 0.0), (2, 0.1), (3, 0.7), (4, 2.0), (5, 2.1)] {
            history.note(&state, true, seconds);
        }
        assert_eq!([history.back(), history.back(), history.back()], [Some(3), Some(0), None]);
        assert_eq!(history.forward(), Some(3));
    }

    #[test]
    fn an_amended_state_is_no_change_of_its_own() {
        let mut history = History::new(0);
        history.note(&1, false, 0.0);
        history.amend(5);
        history.note(&5, false, 0.0);
        history.note(&6, false, 0.0);
        assert_eq!([history.back(), history.back(), history.back()], [Some(5), Some(0), None]);
    }

    #[test]
    fn it_does_not_grow_for_ever() {
        let mut history = History::new(0);
        (1..=2 * MOST).for_each(|state| history.note(&state, false, 0.0));
        assert_eq!(std::iter::from_fn(|| history.back()).count(), MOST);
    }
}
