//! A watched recording: a file, or the files of a rotation in order. Each update reads only new data.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use highwater_analysis::Source;
use highwater_app::files::growing::{GrowingFile, Lost};
use highwater_pytorch::open::FileKind;
use highwater_snapshots::format::{Follower, MAGIC, write_trace};
use highwater_snapshots::live_state::LiveState;
use highwater_snapshots::stage::Stage;
use highwater_snapshots::trace::{Start, Trace};
use highwater_snapshots::{DeviceId, Header, RotatedFiles};

use super::running::Running;
use crate::args::CategoryChoice;
use crate::input::reader;

/// Number of bytes to read at a time, before decompression.
const PORTION: usize = 1 << 18;

/// Time without growth after which a file is reported as idle.
const IDLE: Duration = Duration::from_secs(10);

/// The start of the note of a recording that its program saved, and may save again.
const SAVED: &str = "saved while the program was running";

/// Whether a recording is expected to grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The recording has no events yet.
    Waiting,
    /// A program is still writing the recording.
    Growing,
    /// The program has finished the recording, or the file is a snapshot.
    Complete,
    /// The program saved the recording this long ago while it was running, and may replace the file again.
    Saved(Duration),
    /// Nothing was written for some time, although the recording is unfinished.
    Idle(Duration),
    /// The file cannot be read; the sentence states the reason.
    Failed(String),
}

impl State {
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Self::Complete | Self::Saved(_))
    }
}

/// A recording that is watched.
#[derive(Debug)]
pub struct Watched {
    /// The recording's path.
    pub path: PathBuf,
    /// The name in a list.
    pub name: String,
    reading: Option<GrowingFile>,
    follower: Follower,
    /// The recording read up to now.
    pub running: Running,
    /// Identifies the run of the program that wrote the file: its start time, process and machine.
    run: Option<(u64, u32, String)>,
    /// The live blocks at peaks in earlier files of a rotation.
    earlier: BTreeMap<(DeviceId, u64), Source<'static>>,
    part: Option<u32>,
    /// Whether more data is expected.
    pub state: State,
    /// Number of times the recording began anew, because its file was replaced, truncated or overwritten, or a later file
    /// is of another run.
    pub restarts: u64,
    /// The reason nothing more is read at present, as a sentence. Earlier data stays.
    trouble: Option<String>,
    note: Option<String>,
}

impl Watched {
    /// Starts watching the file at `path`, or the rotated recording at that path.
    pub fn new(path: &Path, name: &str) -> Self {
        Self {
            path: path.to_owned(),
            name: name.to_owned(),
            reading: None,
            follower: Follower::passing(),
            running: Running::default(),
            run: None,
            earlier: BTreeMap::new(),
            part: None,
            state: State::Waiting,
            restarts: 0,
            trouble: None,
            note: None,
        }
    }

    /// A value that changes whenever the displayed answer has to change.
    pub fn version(&self) -> (u64, u64, State, Option<String>) {
        (self.restarts, self.running.events, self.state.clone(), self.note().map(str::to_owned))
    }

    /// A note if the file has changed or cannot be read.
    pub fn note(&self) -> Option<&str> {
        self.trouble.as_deref().or(self.note.as_deref())
    }

    /// The rank of the recorded process, if it was recorded.
    pub fn rank(&self) -> Option<u32> {
        self.follower.header().rank
    }

    /// The recording in its present state, without its events.
    pub fn now(&mut self) -> Trace {
        let running = &self.running;
        window(&mut self.follower, running, &running.live(), running.events, running.stage)
    }

    /// Returns the recording at a peak of `device`, without its events; `None` if that state is no longer in memory.
    pub fn at_peak(&mut self, device: DeviceId, position: u64) -> Option<Source<'static>> {
        if let Some(source) = self.earlier.get(&(device, position)) {
            return Some(source.clone());
        }
        let then = self.running.live_at(device, position)?;
        let live = [(device, &then.live)];
        Some(Source::in_memory(window(&mut self.follower, &self.running, &live, position, then.stage)))
    }

    /// Reads new data for about the time `most`. Returns whether there is more.
    pub fn look(&mut self, most: Duration) -> bool {
        let begun = Instant::now();
        self.trouble = None;
        let why = loop {
            match self.read_portion() {
                Ok(true) if begun.elapsed() < most => {}
                Ok(has_more) => return has_more,
                Err(why) => break why,
            }
        };
        // Data that was read before is still shown.
        if self.running.events > 0 {
            self.trouble = Some(why);
        } else {
            self.state = State::Failed(why);
        }
        false
    }

    /// Reads a portion. Returns whether there may be more data; the error is a sentence.
    fn read_portion(&mut self) -> Result<bool, String> {
        if self.reading.is_none() {
            return self.open();
        }
        let Some(reading) = &mut self.reading else { return Ok(false) };
        let fed = self.follower.bytes_fed();
        let read = reading.facts(fed).and_then(|facts| {
            if facts.len() == fed {
                return Ok((facts, Vec::new()));
            }
            reading.recognize()?;
            Ok((facts, reading.read(fed, PORTION)?))
        });
        let portion = match read {
            Ok((facts, portion)) if portion.is_empty() => {
                self.note_age(&facts);
                // While its program writes a file, there is no later one.
                let may_have_next = self.part.is_some() && self.state != State::Growing;
                return if may_have_next && self.next_part().is_some() { self.open_next() } else { Ok(false) };
            }
            Ok((_, portion)) => portion,
            Err(Lost::Missing) if self.part.is_some() && self.next_part().is_some() => return self.open_next(),
            Err(Lost::Missing) => {
                return Err("the file is missing: it was moved or deleted; showing what was read before".to_owned());
            }
            Err(Lost::Replaced) => {
                self.restart("another recording has replaced the previous one; showing the new one");
                return Ok(true);
            }
            Err(Lost::Truncated(_)) => {
                self.restart("the file was truncated; reading it again");
                return Ok(true);
            }
            Err(Lost::Overwritten) => {
                self.restart("the file was overwritten with another recording; showing the new one");
                return Ok(true);
            }
            Err(Lost::Unreadable(why)) => return Err(format!("cannot read the file: {why}")),
        };
        self.feed(&portion)?;
        Ok(true)
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.follower.feed(bytes).map_err(|why| why.to_string())?;
        let passed = self.follower.take_passed();
        let Header { started_unix_us, pid, host, .. } = self.follower.header();
        if *started_unix_us > 0
            && self.run.as_ref().is_none_or(|run| (run.0, run.1, &run.2) != (*started_unix_us, *pid, host))
        {
            if self.run.is_some() {
                // The files before are of an earlier run.
                (self.running, self.earlier) = Default::default();
                self.restarts += 1;
            }
            self.run = Some((*started_unix_us, *pid, host.clone()));
        }
        self.running.take(&passed);
        self.state = match self.running.events {
            _ if self.follower.is_finished() && self.follower.header().notes().any(|note| note.starts_with(SAVED)) => {
                // Each save replaces the file.
                self.note = None;
                State::Saved(Duration::ZERO)
            }
            _ if self.follower.is_finished() => State::Complete,
            0 => State::Waiting,
            _ => State::Growing,
        };
        Ok(())
    }

    fn note_age(&mut self, facts: &Metadata) {
        let age = facts.modified().ok().and_then(|time| time.elapsed().ok()).unwrap_or_default();
        match self.state {
            State::Growing | State::Idle(_) if age >= IDLE => {
                self.state = State::Idle(Duration::from_secs(age.as_secs()));
            }
            State::Saved(_) => self.state = State::Saved(Duration::from_secs(age.as_secs())),
            _ => {}
        }
    }

    fn open(&mut self) -> Result<bool, String> {
        if matches!(self.state, State::Saved(_))
            && let Ok(facts) = std::fs::metadata(&self.path)
        {
            self.note_age(&facts);
        }
        if (self.state.is_whole() || matches!(self.state, State::Failed(_))) && !is_snap_or_empty(&self.path) {
            return Ok(false);
        }
        let rotated = RotatedFiles::find(&self.path).and_then(|rotated| rotated.files.into_iter().next());
        let path = match rotated {
            Some((number, path)) => {
                self.part = Some(number);
                path
            }
            None => self.path.clone(),
        };
        if !is_snap_or_empty(&path) {
            return self.read_whole(&path).map(|()| false);
        }
        self.begin(&path).map(|()| true)
    }

    fn begin(&mut self, path: &Path) -> Result<(), String> {
        self.reading = Some(GrowingFile::open(path).map_err(|why| format!("cannot open the file: {why}"))?);
        Ok(())
    }

    /// Reads a file that does not grow, such as a PyTorch snapshot.
    fn read_whole(&mut self, path: &Path) -> Result<(), String> {
        let choice = CategoryChoice::default();
        let read = reader(&choice).map_err(|why| why.to_string())?;
        let opened = read(path).map_err(|why| why.to_string())?;
        let is_snap = opened.format.kind == FileKind::Snap;
        let unfinished = opened.trace.trust.unfinished && is_snap;
        let bytes = write_trace(Vec::new(), &opened.trace).map_err(|why| why.to_string())?;
        drop(opened);
        for portion in bytes.chunks(PORTION) {
            self.feed(portion)?;
        }
        if !unfinished && !self.state.is_whole() {
            self.state = State::Complete;
        }
        Ok(())
    }

    fn next_part(&self) -> Option<(u32, PathBuf)> {
        let part = self.part?;
        let files = RotatedFiles::find(&self.path)?.files;
        files.into_iter().find(|(number, _)| *number > part)
    }

    fn open_next(&mut self) -> Result<bool, String> {
        let Some((number, path)) = self.next_part() else { return Ok(false) };
        let follower = &mut self.follower;
        // The peaks refer to the tables of the file that is left.
        for ((device, position), then) in self.running.at_peaks() {
            let live = [(device, &then.live)];
            let trace = window(follower, &self.running, &live, position, then.stage);
            self.earlier.entry((device, position)).or_insert_with(|| Source::in_memory(trace));
        }
        let is_peak = |(device, position): &(DeviceId, u64)| {
            let device = self.running.device(*device);
            device.is_some_and(|device| device.peaks.iter().any(|peak| peak.position == *position))
        };
        self.earlier.retain(|key, _| is_peak(key));
        self.running.begin_file();
        *follower = Follower::passing();
        self.part = Some(number);
        self.begin(&path).map(|()| true)
    }

    /// Reads the recording from its start again; `note` states why.
    fn restart(&mut self, note: &str) {
        let fresh = Self::new(&self.path, &self.name);
        *self = Self { note: Some(note.to_owned()), restarts: self.restarts + 1, ..fresh };
    }
}

/// Returns the recording at a moment, without its events.
fn window(
    follower: &mut Follower,
    running: &Running,
    live: &[(DeviceId, &LiveState)],
    events: u64,
    stage: Stage,
) -> Trace {
    let (all_events, has_stages) = (Some(running.events), running.has_stages());
    follower.window(live, Start { events, all_events, stage, has_stages, ..Start::default() }, &running.uses())
}

/// Whether a file is a `.snap`, or an empty file that may become one; true also if it cannot be read.
fn is_snap_or_empty(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut start));
    read.is_err() || MAGIC.starts_with(&start) || start == MAGIC
}
