//! The recordings of served folders, to which more may be added: a summary of each rank, and the recordings by index.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use highwater_app::files::computed_cache::begins_as_snap;
use highwater_app::files::fleet::{Fleet, FollowedFleet};
use highwater_snapshots::RotatedFiles;
use highwater_snapshots::format::write_trace;

use super::Stop;
use super::part::{is_being_completed, is_being_written, is_fresh, is_named, send_part};
use super::request::Request;
use super::response::{Body, Response};
use crate::args::CategoryChoice;
use crate::input::{opener_up_to, read_with, resident_events};
use crate::output::Failure;

/// Recordings with more events are summarized in parts, since several are read at once and repeatedly.
const MAX_RESIDENT_EVENTS: u64 = 1 << 20;

/// The header field with the version of the summaries. The page compares it to detect changes.
const VERSION: &str = "Highwater-Version";

/// The header field that tells the page that it has received all of a rotated file, and that a later file exists.
const NEXT: &str = "Highwater-Next";

/// The recordings in the served folders. Recordings may grow, and more may be added.
#[derive(Debug)]
pub(super) struct Folder {
    categories: CategoryChoice,
    most_resident: u64,
    /// The folder for converted files. Only one client at a time converts files.
    converted: Mutex<PathBuf>,
    /// The folder's recordings, read for one client at a time; others get the previous result.
    followed: Mutex<FollowedFleet>,
    state: Mutex<State>,
    stop: Stop,
}

#[derive(Debug)]
struct State {
    /// The recordings in order of appearance.
    paths: Vec<PathBuf>,
    numbers: HashMap<PathBuf, usize>,
    /// The summaries as JSON, and the number of times they have changed.
    json: Vec<u8>,
    version: u64,
    due: Instant,
}

impl Folder {
    /// Summarizes the recordings among `paths`, and in the folders among them. Recordings in other formats than .snap
    /// are converted into `converted`. If the user stops the program, the rest is skipped.
    ///
    /// # Errors
    /// Fails if a folder cannot be listed.
    pub(super) fn open(
        paths: Vec<PathBuf>,
        choice: &CategoryChoice,
        converted: &Path,
        stop: &Stop,
    ) -> Result<Self, Failure> {
        let state =
            State { paths: Vec::new(), numbers: HashMap::new(), json: Vec::new(), version: 0, due: Instant::now() };
        let folder = Self {
            categories: choice.clone(),
            most_resident: resident_events()?.min(MAX_RESIDENT_EVENTS),
            converted: Mutex::new(converted.to_owned()),
            followed: Mutex::new(FollowedFleet::new(paths)),
            state: Mutex::new(state),
            stop: stop.clone(),
        };
        folder.look()?;
        Ok(folder)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the recordings that have changed, unless another client's request is doing so.
    fn look(&self) -> Result<(), Failure> {
        let mut followed = match self.followed.try_lock() {
            Ok(followed) => followed,
            Err(TryLockError::Poisoned(followed)) => followed.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        let watch = |_, _| match self.stop.is_requested() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let read = followed.read(opener_up_to(self.most_resident, &self.categories)?, watch)?;
        let mut state = self.state();
        if let Some(fleet) = read {
            state.json = serde_json::to_vec(&state.addressed(fleet)).map_err(io::Error::other)?;
            state.version += 1;
        }
        state.due = followed.due();
        Ok(())
    }

    /// Returns the summaries, or a recording: `ranks/VERSION` or `rank/NUMBER/NAME`.
    pub(super) fn find(&self, path: &str, request: &Request) -> Option<Response> {
        if let Some(known) = path.strip_prefix("ranks/") {
            return Some(self.ranks(known));
        }
        let number: usize = path.strip_prefix("rank/")?.split('/').next()?.parse().ok()?;
        let file = self.state().paths.get(number)?.clone();
        Some(self.send(&file, number, request).unwrap_or_else(|why| Response::failed(&why)))
    }

    /// Returns the summaries, or status 204 if the page already has this version.
    fn ranks(&self, known: &str) -> Response {
        let is_due = Instant::now() >= self.state().due;
        if is_due {
            // If the folder was deleted, the ranks already read stay.
            let _ = self.look();
        }
        let state = self.state();
        let version = state.version.to_string();
        if known == version {
            return Response::refusal(204);
        }
        Response::new(200, "application/json", Body::Bytes(state.json.clone())).with(VERSION, version)
    }

    /// Sends the bytes of a recording. For a rotation, starts with the file that the page already reads, or otherwise
    /// with the newest file, which starts with the live blocks; if no more data is expected then, sends all files as
    /// one recording.
    fn send(&self, path: &Path, number: usize, request: &Request) -> io::Result<Response> {
        let Some(rotated) = RotatedFiles::find(path) else {
            let is_as_stored = self.categories.categories.is_none() && begins_as_snap(path);
            if !is_as_stored {
                return send_part(&self.converted(path, path, number)?, false, request);
            }
            let is_growing = is_being_written(path);
            return send_part(path, is_growing, request);
        };
        let Some((newest, newest_file)) = rotated.files.last() else { return Ok(Response::refusal(404)) };
        let known = request.file.as_deref().filter(|known| !known.is_empty());
        // Files of PyTorch programs do not form one recording, nor do too many files.
        if known.is_none()
            && !is_fresh(newest_file)
            && let Ok(whole) = self.converted(path, newest_file, number)
        {
            return send_part(&whole, false, request);
        }
        let is_sent = |file: &Path| known.is_none_or(|known| is_named(file, known));
        match rotated.files.iter().rev().find(|(_, file)| is_sent(file)) {
            // Another one may follow when it is finished.
            Some((part, file)) if part == newest => send_part(file, is_fresh(file), request),
            Some((_, file)) if is_being_completed(file) => send_part(file, true, request),
            Some((_, file)) => Ok(send_part(file, false, request)?.with(NEXT, "yes")),
            // Removed to stay within a budget.
            None => Ok(Response::refusal(204).with(NEXT, "yes")),
        }
    }

    /// Converts a recording of another format, or of several files, to one .snap file; converts it again if `newest`,
    /// the last of its files, has changed.
    fn converted(&self, path: &Path, newest: &Path, number: usize) -> io::Result<PathBuf> {
        let folder = self.converted.lock().unwrap_or_else(PoisonError::into_inner);
        let converted = folder.join(format!("rank-{number}.snap"));
        let changed = |path: &Path| fs::metadata(path).and_then(|facts| facts.modified());
        let now = changed(newest)?;
        if changed(&converted).is_ok_and(|then| now <= then) {
            return Ok(converted);
        }
        let recording = read_with(path, &self.categories).map_err(|why| io::Error::other(why.to_string()))?;
        let written = folder.join("unfinished.snap");
        write_trace(File::create(&written)?, &recording.trace).map_err(io::Error::other)?;
        fs::rename(&written, &converted)?;
        Ok(converted)
    }
}

impl State {
    /// Replaces the paths of the ranks by URLs relative to the page's.
    fn addressed(&mut self, mut fleet: Fleet) -> Fleet {
        for rank in &mut fleet.ranks {
            let next = self.paths.len();
            let number = *self.numbers.entry(rank.path.clone()).or_insert(next);
            if number == next {
                self.paths.push(rank.path.clone());
            }
            rank.path = format!("rank/{number}/{}", rank.name).into();
        }
        for (path, _) in &mut fleet.unread {
            *path = path.to_string_lossy().into_owned().into();
        }
        fleet
    }
}
