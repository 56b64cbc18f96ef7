//! The collector, the recorder's background thread, which reads the messages of the program's threads and stores those
//! that belong in the recording, in memory, in the file or in both.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use highwater_snapshots::Trace;
use highwater_snapshots::format::read_file;
use highwater_snapshots::trace::Header;

use crate::clock::Clock;
use crate::control::Control;
use crate::error::{Error, Result};
use crate::history_copy::{HistoryCopy, write_file};
use crate::intake::Intake;
use crate::level::{self, Wanted};
use crate::merge::{Item, Merge};
use crate::options::{HistoryOptions, Symbols};
use crate::order;
use crate::rotation::Files;
use crate::warn::warn;
use crate::{control, file, flush, message, queue, sender, signals};

/// Number of events after which a batch is written before it is due.
const BATCH_EVENTS: usize = 16_384;
/// Interval at which the queues are read. They are read earlier if [`sender::wake`] is called.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The interval at the start of a recording. Until they reach the usual lengths, the intervals between reads and
/// between writes are as long as the recording so far, so that a program that is killed early leaves something.
const FIRST_LOOK: Duration = Duration::from_micros(100);
/// Maximum number of events kept in memory only for out-of-memory dumps, while all events are written to a file.
const DUMPED_EVENTS: usize = 1_000_000;

#[derive(Debug)]
pub(crate) struct Collected {
    /// The recording, if the sink includes memory.
    pub(crate) trace: Option<Trace>,
    /// Path of the file; `None` if the sink has none, or if nothing could be written.
    pub(crate) file: Option<PathBuf>,
    /// The reason that the recording is incomplete, if it is.
    pub(crate) problem: Option<Error>,
    pub(crate) events: u64,
    pub(crate) events_lost: u64,
    pub(crate) events_unregistered: u64,
    pub(crate) small_blocks: u64,
}

#[derive(Debug)]
pub(crate) struct Handle {
    thread: JoinHandle<Collected>,
    pid: u32,
}

struct Collector {
    options: Arc<HistoryOptions>,
    header: Header,
    clock: Clock,
    /// `None` after the recording has ended.
    merge: Option<Merge>,
    intake: Intake,
    /// `None` if events are not written as they happen, or if the file has failed.
    files: Option<Files>,
    /// The locked file that is written at the end, if there is one.
    at_end: Option<(File, PathBuf)>,
    /// The file that failed, and the error.
    failed: Option<(Option<PathBuf>, Error)>,
    /// Events lost before this recording began.
    lost_before: u64,
    /// Events lost during this recording, set at its end.
    lost: u64,
    /// Events of the batch that could not be written to the file.
    lost_to_file: u64,
    /// Number of events when the file failed. It lacks all later events.
    events_until_failure: Option<u64>,
    /// The time at which the recording began, or at which the collector was last woken before the first event.
    began: Instant,
    last_write: Option<Instant>,
}

/// Starts the collector thread for a recording to `path`, if any. All later messages belong to the recording.
pub(crate) fn start(
    options: Arc<HistoryOptions>,
    path: Option<PathBuf>,
    header: Header,
    clock: Clock,
) -> Result<Handle> {
    queue::limit(options.queue_bytes);
    sender::set_waiting(options.when_behind == crate::options::WhenBehind::Wait);
    let (first, first_op) = order::take_before_op();
    let mut intake = Intake::new(options.smallest_bytes, first_op);
    let is_for_dumps = options.dump_on_oom.is_some();
    let holds = options.sink.is_in_memory() || !options.streams();
    if holds || is_for_dumps {
        // Events that are kept only for dumps are limited in number, even if the file contains all events.
        intake.hold(options.ring_events.or((!holds).then_some(DUMPED_EVENTS)));
    }
    let (mut files, mut at_end) = (None, None);
    match path {
        Some(path) if options.streams() => {
            let with_symbols = options.symbols == Symbols::AtEnd;
            files = Some(Files::create(&path, header.clone(), first_op, options.rotation, with_symbols)?);
            intake.stream(options.rotation.is_some());
        }
        // Claimed now, to fail before the training rather than after it; an existing file is kept until it is replaced.
        Some(path) => at_end = Some((file::claim(&path)?, path)),
        None => {}
    }
    let collector = Collector {
        header,
        clock,
        merge: Some(Merge::new(first.next())),
        intake,
        files,
        at_end,
        failed: None,
        lost_before: sender::lost(),
        lost: 0,
        lost_to_file: 0,
        events_until_failure: None,
        began: Instant::now(),
        last_write: None,
        options,
    };
    if collector.files.is_some() {
        flush::begin(first.next());
    }
    let thread = signals::spawn("highwater", move || collector.run()).map_err(|why| {
        flush::end();
        Error::Thread(why)
    })?;
    Ok(Handle { thread, pid: std::process::id() })
}

impl Handle {
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.pid == std::process::id()
    }

    /// [`Control::End`] must have been sent.
    pub(crate) fn join(self) -> Result<Collected> {
        if !self.is_of_this_process() {
            // The thread is the parent's and cannot be joined here.
            std::mem::forget(self.thread);
            return Err(Error::OfParent);
        }
        self.thread.join().map_err(|_| Error::Collector)
    }
}

impl Collector {
    fn run(mut self) -> Collected {
        let end = catch_unwind(AssertUnwindSafe(|| {
            loop {
                if let Some(end) = self.look() {
                    return end;
                }
                let is_woken = sender::wait(LOOK_EVERY.min(self.began.elapsed().max(FIRST_LOOK)));
                if is_woken && self.intake.events == 0 {
                    self.began = Instant::now();
                }
            }
        }));
        let end = end.unwrap_or_else(|_| {
            level::set(Wanted::default());
            // Nothing reads the queues any more, so threads must not wait for room.
            sender::set_waiting(false);
            self.fail(Error::Collector);
            loop {
                if let Some(Control::End(answer)) = control::skip_to_end() {
                    return answer;
                }
                sender::wait(LOOK_EVERY);
            }
        });
        // From here on the queues are free for the next recording, however long symbolizing takes.
        self.lost = self.lost();
        sender::set_waiting(false);
        drop(self.merge.take());
        flush::end();
        answer_with(&end, ());
        self.finish()
    }

    /// Reads the available messages, writes the batch if it is due, and answers control messages. Returns the reply
    /// channel of [`Control::End`] if the recording ends.
    fn look(&mut self) -> Option<Sender<()>> {
        let mut is_wanted = false;
        loop {
            self.clock.advance();
            is_wanted |= flush::is_wanted();
            let mut asked = None;
            let (intake, clock) = (&mut self.intake, &self.clock);
            let is_more = self.merge.as_mut()?.read(&mut |item| {
                match item {
                    Item::Message(words) => intake.message(&message::read(words), clock),
                    Item::Control(Control::Device(facts, state)) => intake.start_device(facts, state),
                    Item::Control(Control::Opened) => intake.opened(),
                    Item::Control(notice) => asked = Some(notice),
                }
                asked.is_none() && intake.pending() < BATCH_EVENTS
            });
            let is_full = self.intake.pending() >= BATCH_EVENTS;
            let is_due = self.last_write.is_none_or(|last| last.elapsed() >= self.until_next(last));
            if is_full || asked.is_some() || is_due || (is_wanted && !is_more) {
                self.write();
            }
            if let Some(merge) = self.merge.as_ref().filter(|_| !self.intake.has_pending()) {
                flush::set_written(merge.expected());
            }
            match asked {
                Some(Control::End(answer)) => return Some(answer),
                Some(Control::Copy(answer)) => answer_with(&answer, self.history_copy()),
                Some(Control::Device(..) | Control::Opened) => {}
                None if is_full || is_more => {}
                None => return None,
            }
        }
    }

    fn until_next(&self, last: Instant) -> Duration {
        self.options.flush_every.min(last.duration_since(self.began).max(FIRST_LOOK))
    }

    /// Returns the number of events of this recording that never reached the intake, counting each skipped sequence
    /// number as one event.
    fn lost(&self) -> u64 {
        let Some(merge) = &self.merge else { return self.lost };
        sender::lost() - self.lost_before + merge.given_up()
    }

    fn history_copy(&self) -> Option<HistoryCopy> {
        HistoryCopy::of(&self.intake, &self.header, self.lost(), self.options.symbols == Symbols::AtEnd)
    }

    fn write(&mut self) {
        if !self.intake.has_pending() {
            return;
        }
        self.last_write = Some(Instant::now());
        let lost = self.lost();
        let Some(files) = &mut self.files else { return };
        let mut batch = self.intake.take_batch();
        let mut written = files.write(&mut batch);
        if written.is_err() {
            self.lost_to_file += batch.events.len() as u64;
        } else {
            written = files.turn_over_if_full(&mut self.intake, lost);
        }
        if let Err(why) = written {
            let file = files.path().display();
            warn(format!(
                "recording to the file stopped, and the program continues: {why}; the part recorded before can be \
                 opened: {file}"
            ));
            self.fail(why);
        }
        self.intake.return_batch(batch);
    }

    /// Stops writing the file. Recording in memory continues.
    fn fail(&mut self, why: Error) {
        let path = self.files.take().map(|files| files.path().to_owned());
        self.failed = Some((path, why));
        self.events_until_failure = Some(self.intake.events);
        self.intake.stop_streaming();
        flush::end();
    }

    fn finish(mut self) -> Collected {
        let lost = self.lost();
        self.intake.unregistered().for_each(warn);
        let (mut file, mut problem) = match (self.failed.take(), self.files.take()) {
            (Some((path, why)), _) => (path, Some(why)),
            (None, Some(files)) => {
                let path = files.path().to_owned();
                let problem = files.complete(lost, &self.intake.facts_at_end()).err();
                problem.iter().for_each(|why| warn_of(why, false));
                (Some(path), problem)
            }
            (None, None) => (None, None),
        };
        let is_wanted = self.options.sink.is_in_memory();
        let mut trace = None;
        if is_wanted || self.at_end.is_some() {
            trace = HistoryCopy::of(&self.intake, &self.header, lost, self.options.symbols == Symbols::AtEnd)
                .map(HistoryCopy::into_trace);
        }
        if let (None, Some((at_end, path)), Some(trace)) = (&problem, &self.at_end, &trace) {
            let written = write_file(at_end, path, trace);
            if written.is_ok() || can_be_opened(path) {
                file = Some(path.clone());
            }
            let is_nothing_left = file.is_none();
            problem = written.err().inspect(|why| warn_of(why, is_nothing_left));
        }
        let is_ring = self.options.ring_events.is_some();
        let unregistered = self.intake.unregistered_events();
        let after_failure = self.events_until_failure.map_or(0, |until| self.intake.events - until);
        let evicted = self.intake.history.as_ref().map_or(0, |history| history.evicted());
        Collected {
            trace: trace.filter(|_| is_wanted),
            file,
            problem,
            events: self.intake.events + lost + unregistered,
            events_lost: lost + self.lost_to_file + after_failure + if is_ring { evicted } else { 0 },
            events_unregistered: unregistered,
            small_blocks: self.intake.small_blocks,
        }
    }
}

/// Prints a warning about a recording that could not be completed, since the program may not check the result.
fn warn_of(why: &Error, is_nothing_left: bool) {
    warn(match is_nothing_left {
        true => format!("no part of the recording was saved: {why}"),
        false => format!("the recording is incomplete: {why}; the part written before can be opened"),
    });
}

/// Returns whether the incomplete file can be read and contains a block.
fn can_be_opened(path: &Path) -> bool {
    path.is_file() && read_file(path).is_ok_and(|trace| !trace.blocks.is_empty())
}

fn answer_with<T>(answer: &Sender<T>, with: T) {
    // The requester may have stopped waiting.
    drop(answer.send(with));
}
