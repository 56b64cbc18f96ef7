//! Runs work on background threads. In browsers, `background_web.rs` replaces this file, because they have no threads.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// Starts `work` on a thread called `name`.
///
/// # Errors
/// Fails if the system cannot start another thread.
pub fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// Sleeps while other threads work.
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// The priority of a job on platforms with a single thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Pictures that the user waits for while moving the view.
    Picture,
    /// All other work.
    Other,
}

/// Runs jobs one after another on a thread. The thread starts with the first job, and ends when the lane is dropped.
#[derive(Debug)]
pub struct Lane {
    name: &'static str,
    jobs: Option<Sender<Job>>,
}

impl Lane {
    /// Creates a lane with a thread called `name`. The urgency is ignored, since each lane has its own thread.
    pub fn new(name: &'static str, _urgency: Urgency) -> Self {
        Self { name, jobs: None }
    }

    /// Adds a job, which must not panic.
    ///
    /// # Errors
    /// Fails if the system cannot start another thread.
    pub(crate) fn post(&mut self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let jobs = match &self.jobs {
            Some(jobs) => jobs,
            None => {
                let (jobs, inbox) = channel::<Job>();
                start(self.name, move || inbox.into_iter().for_each(|job| job()))?;
                self.jobs.insert(jobs)
            }
        };
        jobs.send(Box::new(job)).map_err(|_| io::Error::other("the thread has ended"))
    }
}
