//! Keeps files with debug information open, and reads them in parallel.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::SystemTime;

use super::copies::Copies;
use super::debug_info::DebugInfo;
use super::finding::{Found, Missing};
use super::line::{Binary, Line, Request, SymbolProblem};
use super::search::Places;

/// Reads symbols and keeps the files open, so that later look-ups in the same module take microseconds.
#[derive(Default)]
pub struct Symbolizer {
    places: Places,
    modules: HashMap<Binary, Opened>,
    problems: Vec<SymbolProblem>,
    at_start: Option<fn()>,
}

type Opened = Result<(DebugInfo, Found), Missing>;

impl fmt::Debug for Symbolizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symbolizer")
            .field("places", &self.places)
            .field("modules", &self.modules.keys())
            .field("problems", &self.problems)
            .finish()
    }
}

impl Symbolizer {
    /// Creates a symbolizer that searches these folders for separate debug files, by names such as
    /// `.build-id/ab/cdef.debug` and by debug link. Files of debug links are also searched in the binary's folder and
    /// its subfolder `.debug`.
    pub fn new(debug_folders: Vec<PathBuf>) -> Self {
        Self { places: Places { debug_folders, ..Places::default() }, ..Self::default() }
    }

    /// Also searches these folders, two levels deep, for binaries and debug files of any name, identified by build id.
    pub fn with_copies_in(mut self, folders: Vec<PathBuf>) -> Self {
        self.places.copies = Copies::new(folders);
        self
    }

    /// Rejects files without a build id that were changed since `began`, the start of the recording.
    pub fn for_recording(mut self, began: SystemTime) -> Self {
        self.places.began = Some(began);
        self
    }

    /// Sets a function that each worker thread calls before it starts to work.
    pub fn with_threads_that_begin_by(mut self, first: fn()) -> Self {
        self.at_start = Some(first);
        self
    }

    /// Returns the source lines for each address of each request, from the innermost inlined function to the function
    /// that contains it; empty without symbols. Reads modules in parallel on separate threads, since the program's
    /// thread pool may wait for a lock that the caller holds.
    pub fn resolve(&mut self, requests: &[Request]) -> Vec<Vec<Vec<Line>>> {
        let mut jobs: Vec<Job<'_>> = requests.iter().map(|request| self.job(request)).collect();
        let places = &self.places;
        let done = side_by_side(&mut jobs, self.at_start, |job| job.run(places));
        let mut lines = Vec::with_capacity(done.len());
        for (job, (opened, found)) in jobs.iter().zip(done) {
            let what = match &opened {
                Err(missing) => Some(missing.what.clone()),
                Ok(_) if job.is_new && !found.is_empty() && found.iter().all(Vec::is_empty) => {
                    let name = job.request.binary.path.file_name().unwrap_or_default().to_string_lossy();
                    let advice = match name.ends_with(".so") || name.contains(".so.") {
                        true => "",
                        false => "; build with debug = \"line-tables-only\" (-g in C) and keep the symbols",
                    };
                    Some(format!("the file is stripped, and no debug file was found{advice}"))
                }
                Ok(_) => None,
            };
            let problem = what.map(|what| SymbolProblem { path: job.request.binary.path.clone(), what });
            self.problems.extend(problem.filter(|problem| !self.problems.contains(problem)));
            self.modules.insert(job.request.binary.clone(), opened);
            lines.push(found);
        }
        lines
    }

    /// Returns the problems found up to now, one per module.
    pub fn problems(&self) -> &[SymbolProblem] {
        &self.problems
    }

    /// Returns the file with the symbols of `binary`, or the reason that there is none; `None` if it was not looked up.
    pub fn finding(&self, binary: &Binary) -> Option<Result<&Found, &Missing>> {
        self.modules.get(binary).map(|opened| opened.as_ref().map(|(_, found)| found))
    }

    fn job<'a>(&mut self, request: &'a Request) -> Job<'a> {
        let opened = self.modules.remove(&request.binary);
        Job { request, is_new: opened.is_none(), opened }
    }
}

struct Job<'a> {
    request: &'a Request,
    is_new: bool,
    /// The opened file; `None` until the module's file has been searched for.
    opened: Option<Opened>,
}

impl Job<'_> {
    /// Opens the module's file unless it is already open, and looks up the addresses.
    fn run(&mut self, places: &Places) -> (Opened, Vec<Vec<Line>>) {
        let opened = self.opened.take().unwrap_or_else(|| places.open(&self.request.binary));
        let at = |address: &u64| opened.as_ref().map_or_else(|_| Vec::new(), |(info, _)| info.lines(*address));
        let found = self.request.addresses.iter().map(at).collect();
        (opened, found)
    }
}

/// Applies `work` to each job on several threads, or on this thread if no others can be started.
fn side_by_side<J: Send, T: Send>(jobs: &mut [J], at_start: Option<fn()>, work: impl Fn(&mut J) -> T + Sync) -> Vec<T> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    let mut done = Vec::with_capacity(jobs.len());
    let (queue, results) = (Mutex::new(jobs.iter_mut().enumerate()), Mutex::new(&mut done));
    let work_through = || {
        while let Some((row, job)) = { lock(&queue).next() } {
            let result = work(job);
            lock(&results).push((row, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            let worker = || {
                at_start.into_iter().for_each(|first| first());
                work_through();
            };
            // If no thread can be started, this one does the work.
            let _ = thread::Builder::new().name("symbols".to_owned()).spawn_scoped(scope, worker);
        }
        work_through();
    });
    done.sort_unstable_by_key(|(row, _)| *row);
    done.into_iter().map(|(_, result)| result).collect()
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
