//! Runs background jobs in a browser, which has a single thread. Jobs wait in a queue, and run in slices between
//! frames. Jobs that draw pictures may interrupt other jobs.

#![allow(deprecated, reason = "wasm-bindgen marks its support of JSPI as experimental in this way")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use highwater_snapshots::yielding::{in_slices, is_in_slices, yield_if_due};
use wasm_bindgen::prelude::wasm_bindgen;

type Job = Box<dyn FnOnce()>;

/// The priority of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Pictures that the user waits for while moving the view.
    Picture,
    /// All other work.
    Other,
}

thread_local! {
    /// Waiting jobs, by urgency.
    static QUEUES: [RefCell<VecDeque<Job>>; 2] = const { [RefCell::new(VecDeque::new()), RefCell::new(VecDeque::new())] };
    /// Whether the running job draws a picture.
    static IS_DRAWING: Cell<bool> = const { Cell::new(false) };
    /// Whether [`run_jobs`] was scheduled and has not returned yet.
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
}

#[wasm_bindgen]
extern "C" {
    /// Calls [`run_jobs`] after the current frame.
    #[wasm_bindgen(js_namespace = highwater)]
    fn call_run_jobs();
}

/// Runs the waiting jobs: only pictures if it interrupts another job, and only one job if jobs cannot be suspended.
/// Returns whether it must be called again.
#[wasm_bindgen(jspi)]
pub fn run_jobs(is_interrupting: bool, is_single: bool) -> bool {
    in_slices(|| {
        while let Some((urgency, job)) = next(is_interrupting) {
            IS_DRAWING.set(urgency == Urgency::Picture);
            job();
            IS_DRAWING.set(false);
            if is_single {
                break;
            }
            yield_if_due();
        }
    });
    let is_empty = QUEUES.with(|queues| queues.iter().all(|queue| queue.borrow().is_empty()));
    if !is_interrupting {
        IS_RUNNING.set(!is_empty);
    }
    !is_empty
}

/// Returns whether a picture is waiting that may interrupt the running job. Pictures do not interrupt each other, since
/// they share a cache.
#[wasm_bindgen]
pub fn has_waiting_picture() -> bool {
    !IS_DRAWING.get() && QUEUES.with(|[pictures, _]| !pictures.borrow().is_empty())
}

fn next(is_picture: bool) -> Option<(Urgency, Job)> {
    QUEUES.with(|[pictures, others]| {
        let picture = pictures.borrow_mut().pop_front().map(|job| (Urgency::Picture, job));
        let other = || others.borrow_mut().pop_front().map(|job| (Urgency::Other, job));
        picture.or_else(|| if is_picture { None } else { other() })
    })
}

fn enqueue(urgency: Urgency, job: Job) {
    if is_in_slices() {
        // A job that starts another one waits for it.
        return job();
    }
    QUEUES.with(|queues| queues[urgency as usize].borrow_mut().push_back(job));
    if !IS_RUNNING.replace(true) {
        call_run_jobs();
    }
}

/// Runs `work` when the page is idle. The name is not used in browsers.
///
/// # Errors
/// Never fails in browsers; the version with threads can.
pub fn start(_name: &str, work: impl FnOnce() + 'static) -> io::Result<()> {
    enqueue(Urgency::Other, Box::new(work));
    Ok(())
}

/// Does nothing, because the caller runs jobs itself while it polls them.
pub fn pause(_time: Duration) {}

/// Runs jobs one after another.
#[derive(Debug)]
pub struct Lane {
    urgency: Urgency,
}

impl Lane {
    /// Creates a lane with this urgency. The name is not used in browsers.
    pub fn new(_name: &'static str, urgency: Urgency) -> Self {
        Self { urgency }
    }

    /// Adds a job.
    ///
    /// # Errors
    /// Never fails in browsers; the version with threads can.
    pub(crate) fn post(&mut self, job: impl FnOnce() + 'static) -> io::Result<()> {
        enqueue(self.urgency, Box::new(job));
        Ok(())
    }
}
