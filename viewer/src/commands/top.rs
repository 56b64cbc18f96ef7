//! `highwater top`: shows in a terminal how memory grows while a program writes its recording.

mod curve;
mod running;
mod watched;
mod target;
mod answer;
mod keys;
mod draw;
mod report;

pub use answer::{Answer, Choice, Computed};
pub use draw::draw;
pub use watched::{State, Watched};

use std::io::{self, IsTerminal as _};
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use highwater_analysis::{GroupKey, Metric};
use ratatui::crossterm::event;

use self::keys::{Act, act};
use self::target::Target;
use crate::output::{Failure, Page, Status};

/// Arguments of `highwater top`.
#[derive(Clone, Debug, Args)]
pub struct TopArguments {
    /// A recording, a folder with one for each rank, or the id of a process that writes recordings
    #[arg(value_name = "FILE|FOLDER|PID")]
    pub target: PathBuf,
    /// Initial memory total
    #[arg(long, default_value = "requested", value_parser = crate::args::values::metric_parser())]
    pub metric: Metric,
    /// Initial grouping key
    #[arg(long, value_name = "KEY", default_value = "scope", value_parser = key)]
    pub by: GroupKey,
}

const REFRESH: Duration = Duration::from_millis(500);

/// The time between two searches for new files.
const LIST: Duration = Duration::from_secs(2);

/// The time spent reading between two refreshes, for all recordings together; keys are handled in between.
const READING: Duration = Duration::from_millis(200);

fn key(text: &str) -> Result<GroupKey, String> {
    match GroupKey::parse_list(text)?.as_slice() {
        [GroupKey::Lifetime] => {
            Err("lifetimes are known only when the recording ends: use highwater peak --by lifetime".into())
        }
        [key] => Ok(*key),
        _ => Err("expected one key".to_owned()),
    }
}

/// Shows the recordings until the user quits. Without a terminal, prints them once.
pub fn run(arguments: &TopArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let target = Target::of(&arguments.target)?;
    let choice = Choice { metric: arguments.metric, key: arguments.by, row: 0, device: 0 };
    let mut view = View { target, watched: Vec::new(), computed: Computed::default(), choice, listed: None };
    view.list()?;
    if !io::stdout().is_terminal() {
        while view.look(READING) {}
        return report::print(&mut view, page);
    }
    let stop = stop_requested()?;
    let mut terminal = ManuallyDrop::new(ratatui::try_init().inspect_err(|_| ratatui::restore())?);
    let shown = show(&mut view, &mut terminal, &stop);
    // A terminal that is gone cannot be restored.
    if matches!(shown, Ok(false)) {
        return Ok(Status::Fine);
    }
    drop(ManuallyDrop::into_inner(terminal));
    ratatui::try_restore()?;
    shown.map(|_| Status::Fine)
}

#[derive(Debug)]
struct View {
    target: Target,
    watched: Vec<Watched>,
    computed: Computed,
    choice: Choice,
    listed: Option<Instant>,
}

impl View {
    fn list(&mut self) -> Result<(), Failure> {
        self.listed = Some(Instant::now());
        for (path, name) in self.target.recordings()? {
            if self.watched.iter().all(|one| one.path != path) {
                self.watched.push(Watched::new(&path, &name));
            }
        }
        Ok(())
    }

    /// Reads new data for about the time `most`. Returns whether there is more.
    fn look(&mut self, most: Duration) -> bool {
        if !matches!(self.target, Target::File(_)) && self.listed.is_none_or(|at| at.elapsed() >= LIST) {
            // If a folder was deleted or a process ended, the recordings already read stay.
            drop(self.list());
        }
        let each = most / u32::try_from(self.watched.len().max(1)).unwrap_or(1);
        self.watched.iter_mut().fold(false, |more, one| one.look(each) | more)
    }
}

/// Draws the view repeatedly until a key or a signal ends it. Returns whether the terminal still exists.
fn show(view: &mut View, terminal: &mut ratatui::DefaultTerminal, stop: &AtomicBool) -> Result<bool, Failure> {
    let mut drawn = None;
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let has_more = view.look(READING);
        let now = view.watched.iter().map(Watched::version).collect::<Vec<_>>();
        if drawn.as_ref() != Some(&now) {
            let answer = view.computed.answer(&mut view.watched, view.choice);
            terminal.draw(|frame| draw(&answer, frame))?;
            drawn = Some(now);
        }
        // While a long recording is read for the first time, the next update follows without a pause.
        let wait = if has_more { Duration::ZERO } else { REFRESH.saturating_sub(begun.elapsed()) };
        if is_hung_up(wait)? {
            return Ok(false);
        }
        // Keys that came together are read together.
        while event::poll(Duration::ZERO)? {
            // Another choice, or another size of the terminal.
            drawn = None;
            match act(&event::read()?, view.choice, view.watched.len()) {
                Some(Act::Quit) => return Ok(true),
                Some(Act::Show(choice)) => view.choice = choice,
                None => {}
            }
        }
    }
    Ok(true)
}

/// Waits at most `most` for a key. Returns whether the terminal was closed, in which case further waiting would never
/// end.
#[cfg(unix)]
fn is_hung_up(most: Duration) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let stdin = io::stdin();
    // Otherwise keys are read from the controlling terminal, whose end is a signal.
    if !stdin.is_terminal() {
        return Ok(event::poll(most).is_err());
    }
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
    match poll(&mut polled, Some(&most)) {
        // A signal, which may be another size of the terminal.
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(why) => Err(why.into()),
        Ok(_) => Ok(polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)),
    }
}

/// Waits for a key for at most `most`; terminals are not closed on this system.
#[cfg(not(unix))]
fn is_hung_up(most: Duration) -> io::Result<bool> {
    event::poll(most).map(|_| false)
}

/// Returns a flag that SIGTERM and SIGINT set, so that the terminal can be restored. After SIGHUP, there is no terminal
/// to restore.
fn stop_requested() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    #[cfg(unix)]
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
