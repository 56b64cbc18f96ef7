//! Symbolizer: keeps the files open that it reads lines from, and reads several side by side.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;

use addr2line::Loader;
use rayon::prelude::*;

use super::line::{Binary, Line, Problem, Request};
use super::search::open;

/// Reads symbols, and keeps the files open that it read them from: later look-ups in the same module cost microseconds.
#[derive(Default)]
pub struct Symbolizer {
    debug_folders: Vec<PathBuf>,
    modules: HashMap<Binary, Option<Loader>>,
    problems: Vec<Problem>,
}

impl fmt::Debug for Symbolizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symbolizer")
            .field("debug_folders", &self.debug_folders)
            .field("modules", &self.modules.keys())
            .field("problems", &self.problems)
            .finish()
    }
}

impl Symbolizer {
    /// Looks for separate debug files in these folders, as `.build-id/ab/cdef.debug` and by debug link. A debug link
    /// is also followed beside the binary and in a folder `.debug` there.
    pub fn new(debug_folders: Vec<PathBuf>) -> Self {
        Self { debug_folders, ..Self::default() }
    }

    /// For each request, for each address, the source lines there: the innermost inlined function first, the function
    /// that the machine was in last. No lines where nothing is known. Modules are read in parallel.
    pub fn resolve(&mut self, requests: &[Request]) -> Vec<Vec<Vec<Line>>> {
        let mut jobs: Vec<Job<'_>> = requests.iter().map(|request| self.job(request)).collect();
        jobs.par_iter_mut().with_max_len(1).for_each(|job| job.run(&self.debug_folders));
        let mut lines = Vec::with_capacity(jobs.len());
        for job in jobs {
            self.problems.extend(job.problem.filter(|problem| !self.problems.contains(problem)));
            self.modules.insert(job.request.binary.clone(), job.loader.flatten());
            lines.push(job.lines);
        }
        lines
    }

    /// What went wrong so far, each module once.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    fn job<'a>(&mut self, request: &'a Request) -> Job<'a> {
        Job { request, loader: self.modules.remove(&request.binary), lines: Vec::new(), problem: None }
    }
}

/// One module's part of the work.
struct Job<'a> {
    request: &'a Request,
    /// `None` until the module was looked for; then `None` within if it was not found.
    loader: Option<Option<Loader>>,
    lines: Vec<Vec<Line>>,
    problem: Option<Problem>,
}

impl Job<'_> {
    fn run(&mut self, debug_folders: &[PathBuf]) {
        let Request { binary, addresses } = self.request;
        let is_new = self.loader.is_none();
        let problem = &mut self.problem;
        let loader = self.loader.get_or_insert_with(|| match open(binary, debug_folders) {
            Ok(loader) => Some(loader),
            Err(what) => {
                *problem = Some(Problem { path: binary.path.clone(), what });
                None
            }
        });
        self.lines = addresses
            .iter()
            .map(|&address| loader.as_ref().map_or_else(Vec::new, |loader| lines(loader, address)))
            .collect();
        if is_new && loader.is_some() && !addresses.is_empty() && self.lines.iter().all(Vec::is_empty) {
            let what = "the file is stripped, and no debug file was found; build with debug = \"line-tables-only\" and keep the symbols".to_owned();
            self.problem = Some(Problem { path: binary.path.clone(), what });
        }
    }
}

fn lines(loader: &Loader, address: u64) -> Vec<Line> {
    let mut out = Vec::new();
    let mut full_name = false;
    if let Ok(mut frames) = loader.find_frames(address) {
        // Damaged debug information ends the list early.
        while let Ok(Some(frame)) = frames.next() {
            let raw = frame.function.as_ref().and_then(|name| name.raw_name().ok());
            full_name = raw.is_some_and(|raw| is_mangled(&raw));
            let function = frame.function.and_then(|name| Some(name.demangle().ok()?.into_owned()));
            let file = frame.location.as_ref().and_then(|place| place.file).map(str::to_owned);
            let line = frame.location.as_ref().and_then(|place| place.line).unwrap_or(0);
            out.push(Line { function: function.unwrap_or_default(), file, line });
        }
    }
    let symbol = loader.find_symbol(address);
    let name = symbol.map(|symbol| addr2line::demangle_auto(symbol.into(), None).into_owned());
    match (out.last_mut(), name) {
        // Line tables alone have a function's last name only; the symbol of the machine's function has its path too.
        (Some(outermost), Some(name))
            if !full_name && (outermost.function.is_empty() || symbol.is_some_and(is_mangled)) =>
        {
            outermost.function = name;
        }
        (None, Some(function)) => out.push(Line { function, file: None, line: 0 }),
        _ => {}
    }
    out.retain(|line| !line.function.is_empty() || line.file.is_some());
    out
}

/// Whether a symbol is a Rust or C++ name with its path.
fn is_mangled(symbol: &str) -> bool {
    symbol.starts_with("_R") || symbol.starts_with("_Z")
}
