//! Symbols: turns addresses in a module's file into functions, files and lines, with inlined functions expanded.
//!
//! Needs no running process: a module is named by its path and build id, and is read here or on another machine. A file
//! whose build id is not the recorded one is never used: it was rebuilt, and would give wrong lines. Release builds of Rust
//! keep what is needed with `[profile.release] debug = "line-tables-only"`.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use addr2line::Loader;
use object::Object;

/// A binary or shared library to look symbols up in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Binary {
    /// Where it was when it ran.
    pub path: PathBuf,
    /// Its build id; empty if it has none.
    pub build_id: Vec<u8>,
}

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Line {
    /// Demangled name of the function; empty if unknown.
    pub function: String,
    /// Path of the source file, as the compiler was given it.
    pub file: Option<String>,
    /// From 1; 0 if unknown.
    pub line: u32,
}

/// A module without symbols, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The module's path.
    pub path: PathBuf,
    /// What was tried, what came of it, and what would help.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no symbols for {}: {}", self.path.display(), self.what)
    }
}

/// Addresses to look up in one module: each lies within a call, and is relative to the module's load bias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The module.
    pub binary: Binary,
    /// As [`Place::address`](crate::stack::Place::address) gives them.
    pub addresses: Vec<u64>,
}

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

/// Where distributions put separate debug files.
pub const SYSTEM_DEBUG_FOLDER: &str = "/usr/lib/debug";

impl Symbolizer {
    /// Looks for separate debug files in these folders, as `.build-id/ab/cdef.debug` and by debug link. A debug link
    /// is also followed beside the binary and in a folder `.debug` there.
    pub fn new(debug_folders: Vec<PathBuf>) -> Self {
        Self { debug_folders, ..Self::default() }
    }

    /// For each request, for each address, the source lines there: the innermost inlined function first, the function
    /// that the machine was in last. No lines where nothing is known. Modules are read in parallel.
    pub fn resolve(&mut self, requests: &[Request]) -> Vec<Vec<Vec<Line>>> {
        let jobs: Vec<Mutex<Job<'_>>> = requests.iter().map(|request| Mutex::new(self.job(request))).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                job.lock().unwrap_or_else(PoisonError::into_inner).run(&self.debug_folders);
            }
        };
        let helpers = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len()).saturating_sub(1);
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                // Without the helper, the rest of this function does its work.
                let _ = std::thread::Builder::new().name("symbols".to_owned()).spawn_scoped(scope, work);
            }
            work();
        });
        let jobs = jobs.into_iter().map(|job| job.into_inner().unwrap_or_else(PoisonError::into_inner));
        jobs.map(|job| {
            self.problems.extend(job.problem.filter(|problem| !self.problems.contains(problem)));
            self.modules.insert(job.request.binary.clone(), job.loader.flatten());
            job.lines
        })
        .collect()
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

/// What a file says of itself.
struct Facts {
    build_id: Vec<u8>,
    has_lines: bool,
    /// The name of its separate debug file, and that file's checksum.
    debug_link: Option<(PathBuf, u32)>,
}

fn inspect(path: &Path) -> Result<Facts, String> {
    let file = File::open(path).map_err(|error| format!("cannot open {}: {error}", path.display()))?;
    let cache = object::ReadCache::new(file);
    let read = || -> object::Result<Facts> {
        let object = object::File::parse(&cache)?;
        let link =
            object.gnu_debuglink()?.map(|(name, sum)| (PathBuf::from(String::from_utf8_lossy(name).into_owned()), sum));
        Ok(Facts {
            build_id: object.build_id()?.unwrap_or_default().to_vec(),
            has_lines: object.section_by_name(".debug_info").is_some(),
            debug_link: link,
        })
    };
    read().map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Opens the best file for `binary`, or says why there is none.
fn open(binary: &Binary, debug_folders: &[PathBuf]) -> Result<Loader, String> {
    let mut tried = Vec::new();
    let mut own = None;
    match inspect(&binary.path) {
        Ok(facts) if facts.build_id == binary.build_id => own = Some(facts),
        Ok(facts) => tried.push(format!(
            "the file there now has build id {}, the recorded one had {}: it was rebuilt",
            hex(&facts.build_id),
            hex(&binary.build_id)
        )),
        Err(why) => tried.push(why),
    }
    let has_lines = own.as_ref().is_some_and(|facts| facts.has_lines);
    let separate = if has_lines { None } else { separate_file(binary, own.as_ref(), debug_folders) };
    let path = separate.or_else(|| own.is_some().then(|| binary.path.clone()));
    let Some(path) = path else {
        if !binary.build_id.is_empty() {
            tried.push(format!("no debug file with build id {} in {debug_folders:?}", hex(&binary.build_id)));
        }
        return Err(tried.join("; "));
    };
    Loader::new(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// A debug file made for `binary`: by its build id, else by the name that the binary gives.
fn separate_file(binary: &Binary, own: Option<&Facts>, debug_folders: &[PathBuf]) -> Option<PathBuf> {
    let id = hex(&binary.build_id);
    let belongs =
        |path: &PathBuf| inspect(path).is_ok_and(|facts| facts.has_lines && facts.build_id == binary.build_id);
    if binary.build_id.len() > 1 {
        let name = format!(".build-id/{}/{}.debug", &id[..2], &id[2..]);
        if let Some(found) = debug_folders.iter().map(|folder| folder.join(&name)).find(belongs) {
            return Some(found);
        }
    }
    let (name, sum) = own?.debug_link.as_ref()?;
    let beside = binary.path.parent()?;
    let mut places = vec![beside.join(name), beside.join(".debug").join(name)];
    let below_root = beside.strip_prefix("/").unwrap_or(beside);
    places.extend(debug_folders.iter().map(|folder| folder.join(below_root).join(name)));
    // A file without a build id is known by its checksum.
    let matches = |path: &PathBuf| belongs(path) && (!binary.build_id.is_empty() || checksum(path) == Some(*sum));
    places.into_iter().find(matches)
}

fn checksum(path: &Path) -> Option<u32> {
    let mut file = File::open(path).ok()?;
    let mut sum = crc32fast::Hasher::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        match file.read(&mut piece).ok()? {
            0 => return Some(sum.finalize()),
            count => sum.update(&piece[..count]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "(none)".to_owned();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
