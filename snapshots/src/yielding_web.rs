//! Lets long computations yield to the page's frames, since a browser runs all of a page on one thread. Work in
//! [`in_slices`] is suspended after each slice by WebAssembly's promise integration (JSPI), and resumed once the page
//! has handled input and drawn a frame if one is due. Without JSPI the work runs without interruption.

#![allow(deprecated, reason = "wasm-bindgen marks its support of JSPI as experimental in this way")]

use std::cell::Cell;

use wasm_bindgen::prelude::wasm_bindgen;

/// The length of a slice in milliseconds. A frame at 60 Hz takes 16 ms, a third of which the window needs.
const SLICE_MS: f64 = 10.0;

#[wasm_bindgen]
extern "C" {
    /// Returns the milliseconds since the page was opened.
    #[wasm_bindgen(js_namespace = performance)]
    fn now() -> f64;

    /// Suspends the work until the page has handled its events.
    #[wasm_bindgen(js_namespace = highwater, suspending)]
    fn next_turn();
}

/// Number of ticks between two reads of the clock.
const TICKS_A_LOOK: u32 = 512;

thread_local! {
    static TICKS: Cell<u32> = const { Cell::new(0) };
    /// The time at which the current slice ends; `None` outside of work that can be suspended.
    static SLICE_END: Cell<Option<f64>> = const { Cell::new(None) };
}

/// Runs `work` so that [`yield_if_due`] can suspend it. Must be called from an exported function that may be suspended.
pub fn in_slices(work: impl FnOnce()) {
    let outer = SLICE_END.replace(Some(now() + SLICE_MS));
    work();
    SLICE_END.set(outer);
}

/// Whether the caller runs within [`in_slices`].
pub fn is_in_slices() -> bool {
    SLICE_END.get().is_some()
}

/// Counts work of at most a microsecond, such as one event. Every few hundred calls, yields like [`yield_if_due`].
#[inline]
pub fn tick() {
    let count = TICKS.get().wrapping_add(1);
    TICKS.set(count);
    if count.is_multiple_of(TICKS_A_LOOK) {
        yield_if_due();
    }
}

/// Yields if the current time slice is over. Call it before each piece of work of 0.1 ms or more.
pub fn yield_if_due() {
    if SLICE_END.get().is_some_and(|end| now() >= end) {
        // Frames run meanwhile, and must not be suspended.
        SLICE_END.set(None);
        next_turn();
        SLICE_END.set(Some(now() + SLICE_MS));
    }
}
