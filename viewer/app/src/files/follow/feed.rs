//! Follows a recording whose bytes arrive in pieces, such as from a server.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use highwater_snapshots::format::Follower;

use super::{Followed, recording};
use crate::background::{Lane, Urgency};

type Wake = Arc<dyn Fn() + Send + Sync>;

pub(super) struct Feed {
    path: PathBuf,
    lane: Lane,
    follower: Arc<Mutex<Follower>>,
    /// Number of pieces waiting to be read.
    waiting: Arc<AtomicUsize>,
    outbox: Sender<Followed>,
    wake: Wake,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Feed {
    pub(super) fn new(path: PathBuf, outbox: Sender<Followed>, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let lane = Lane::new("highwater-feed", Urgency::Other);
        Self { path, lane, follower: Arc::default(), waiting: Arc::default(), outbox, wake: Arc::new(wake) }
    }

    /// Reads the next bytes in the background. A recording is built only after the last waiting piece.
    pub(super) fn take(&mut self, bytes: Vec<u8>) {
        let (path, follower) = (self.path.clone(), Arc::clone(&self.follower));
        let waiting = Arc::clone(&self.waiting);
        waiting.fetch_add(1, Ordering::Relaxed);
        let (outbox, wake) = (self.outbox.clone(), Arc::clone(&self.wake));
        let job = move || {
            let mut follower = follower.lock().unwrap_or_else(PoisonError::into_inner);
            let is_last = waiting.fetch_sub(1, Ordering::Relaxed) == 1;
            let news = match follower.feed(&bytes) {
                Err(why) => Followed::Lost(format!("stopped following {}: {why}", path.display())),
                Ok(_) if follower.is_whole() => Followed::Finished(Box::new(recording(&path, &follower))),
                Ok(_) if !is_last || follower.events() == 0 => return,
                Ok(_) => Followed::Grown(Box::new(recording(&path, &follower))),
            };
            // The receiver may have been dropped.
            let _ = outbox.send(news);
            wake();
        };
        self.post(job);
    }

    /// Reports, once all pieces are read, that no more bytes will arrive although the recording is unfinished.
    pub(super) fn end(&mut self) {
        let (follower, outbox, wake) = (Arc::clone(&self.follower), self.outbox.clone(), Arc::clone(&self.wake));
        let job = move || {
            if !follower.lock().unwrap_or_else(PoisonError::into_inner).is_whole() {
                let _ = outbox.send(Followed::Abandoned);
                wake();
            }
        };
        self.post(job);
    }

    fn post(&mut self, job: impl FnOnce() + Send + 'static) {
        if let Err(why) = self.lane.post(job) {
            let why = format!("cannot follow {}: {why}", self.path.display());
            let _ = self.outbox.send(Followed::Lost(why));
        }
    }
}
