//! Runs background work on threads. `background_web.rs` replaces it in a browser, which has none.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// A job and everything that it uses.
type Job = Box<dyn FnOnce() + Send>;

/// Starts `work` on a thread called `name`.
///
/// # Errors
///
/// Fails if the system starts no more threads.
pub fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// Waits while other threads work.
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// The priority of a job where there is only one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Pictures that the user waits for while moving the view.
    Picture,
    /// Everything else.
    Other,
}

/// Runs jobs one after another on a thread, which starts with the first job and ends when this is dropped.
#[derive(Debug)]
pub struct Lane {
    name: &'static str,
    jobs: Option<Sender<Job>>,
}

impl Lane {
    /// A lane whose thread is called `name`. With threads, all are equally urgent.
    pub fn new(name: &'static str, _urgency: Urgency) -> Self {
        Self { name, jobs: None }
    }

    /// Adds a job, which must not panic.
    ///
    /// # Errors
    ///
    /// Fails if the system starts no more threads.
    pub fn post(&mut self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
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
