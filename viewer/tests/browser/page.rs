//! The operations on the page that work in any browser.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::connection::PATIENCE;

/// A browser that shows the app.
pub(crate) trait Page {
    /// Opens `url`.
    fn open(&mut self, url: &str);

    /// The value of a script's expression, which may be a promise.
    fn value(&mut self, expression: &str) -> Value;

    /// Errors and warnings in the console, uncaught exceptions, and in Chromium also requests that failed.
    fn complaints(&mut self) -> Vec<String>;

    /// What the app shows, once `is_reached` holds of it.
    fn state(&mut self, is_reached: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let state = self.value("typeof highwater === 'undefined' ? null : highwater.state()");
            if !state.is_null() && is_reached(&state) {
                return state;
            }
            let text = self.value("document.getElementById('status')?.textContent");
            assert!(begun.elapsed() < PATIENCE, "not reached: {state}; the page says {text}; {:?}", self.complaints());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The same, once all that is shown is complete.
    fn rested(&mut self) -> Value {
        self.state(|state| {
            state["is_busy"] == false && (state["front"]["has_picture"] == true || state["is_comparing"] == true)
        })
    }

    /// The same, once `count` recordings are open.
    fn rested_with(&mut self, count: usize) -> Value {
        let has_all = |state: &Value| state["recordings"].as_array().is_some_and(|all| all.len() == count);
        self.state(|state| has_all(state) && state["is_busy"] == false && state["front"]["has_picture"] == true)
    }

    /// The table of a view, as CSV, once it is complete.
    fn table(&mut self, view: &str) -> String {
        let begun = Instant::now();
        let expression = format!("(() => {{ try {{ return highwater.table('{view}') }} catch {{ return null }} }})()");
        loop {
            if let Some(table) = self.value(&expression).as_str() {
                return table.to_owned();
            }
            assert!(begun.elapsed() < PATIENCE, "no table of {view}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
