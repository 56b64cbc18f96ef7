//! Looks up source lines for the frames of a recording that lack them, and reports the result for each module.

use std::collections::HashMap;

use super::finding::{Found, Missing};
use super::line::{Binary, Line, Request};
use super::symbolizer::Symbolizer;
use crate::format::Symbols;
use crate::ids::{FrameId, ModuleId, StringId};
use crate::tables::{Frame, SourceLine, Tables};

/// The selection of frames to look up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    /// Frames without source lines.
    #[default]
    Bare,
    /// Frames without source lines, and frames with a function name but without file and line.
    BareAndNamed,
}

/// The result of a look-up. [`apply`](Self::apply) adds it to the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookUp {
    /// Texts to append to the string table.
    pub strings: Vec<String>,
    /// The new source lines, one entry for each frame with symbols.
    pub symbols: Vec<Symbols>,
    /// The result for each module with frames, in the order of the modules.
    pub modules: Vec<ModuleOutcome>,
    /// Number of frames without lines that are outside of all modules, such as code generated at run time.
    pub outside: u64,
    /// Number of frames that have lines but no module, such as imported frames.
    pub imported: u64,
}

/// The result for the frames of one module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleOutcome {
    /// The module whose frames were looked up.
    pub module: ModuleId,
    /// The path at the time of the recording.
    pub path: String,
    /// Number of distinct frames in the module.
    pub frames: u64,
    /// Number of frames looked up.
    pub asked: u64,
    /// Number of these frames whose file and line are now known.
    pub with_lines: u64,
    /// Number of these frames with only a function name.
    pub with_names: u64,
    /// The file that was read, or the reason there is none; `None` if no frame was looked up.
    pub finding: Option<Result<Found, Missing>>,
}

impl ModuleOutcome {
    /// Returns the number of frames looked up without a result.
    pub fn unresolved(&self) -> u64 {
        self.asked - self.with_lines - self.with_names
    }
}

impl LookUp {
    /// Returns the number of frames looked up.
    pub fn asked(&self) -> u64 {
        self.modules.iter().map(|module| module.asked).sum()
    }

    /// Returns the number of frames for which symbols were found.
    pub fn resolved(&self) -> u64 {
        self.modules.iter().map(|module| module.with_lines + module.with_names).sum()
    }

    /// Adds the result to `tables`, which must be the tables of the look-up.
    pub fn apply(&self, tables: &mut Tables) {
        tables.strings.extend_from_slice(&self.strings);
        for found in &self.symbols {
            let first_line = tables.lines.len() as u32;
            let frame = &mut tables.frames[found.frame.0 as usize];
            (frame.first_line, frame.line_count) = (first_line, found.lines.len() as u32);
            tables.lines.extend_from_slice(&found.lines);
        }
    }
}

/// Looks up the frames of `tables` selected by `asked`. Modules are read in parallel.
pub fn look_up(tables: &Tables, asked: Asked, symbolizer: &mut Symbolizer) -> LookUp {
    let mut modules: Vec<ModuleOutcome> = tables.modules.iter().enumerate().map(|row| outcome(tables, row)).collect();
    let mut found = LookUp::default();
    let mut frames: Vec<Vec<FrameId>> = vec![Vec::new(); modules.len()];
    for (row, frame) in tables.frames.iter().enumerate() {
        let id = FrameId::from_index(row);
        let state = State::of(tables, id);
        let Some(module) = frame.module.index().filter(|module| *module < modules.len()) else {
            match state {
                State::Bare => found.outside += 1,
                State::Named | State::Lined => found.imported += 1,
            }
            continue;
        };
        modules[module].frames += 1;
        if state == State::Bare || (state == State::Named && asked == Asked::BareAndNamed) {
            modules[module].asked += 1;
            frames[module].push(id);
        }
    }
    let requests: Vec<Request> =
        modules.iter().zip(&frames).map(|(module, ids)| request(tables, module, ids)).collect();
    let (requests, modules_asked): (Vec<Request>, Vec<usize>) =
        requests.into_iter().zip(0..).filter(|(request, _)| !request.addresses.is_empty()).unzip();
    let answers = symbolizer.resolve(&requests);
    let mut texts = Texts::new(tables);
    for ((request, module), answers) in requests.iter().zip(modules_asked).zip(answers) {
        let outcome = &mut modules[module];
        for (&frame, lines) in frames[module].iter().zip(answers) {
            let has_files = lines.iter().any(|line| line.file.is_some());
            match (lines.is_empty(), has_files) {
                (true, _) => continue,
                (false, true) => outcome.with_lines += 1,
                (false, false) => outcome.with_names += 1,
            }
            // Names alone add nothing to a frame that already has them.
            if has_files || State::of(tables, frame) == State::Bare {
                found
                    .symbols
                    .push(Symbols { frame, lines: lines.iter().map(|line| texts.source_line(line)).collect() });
            }
        }
        let finding = symbolizer.finding(&request.binary);
        outcome.finding = finding.map(|finding| finding.cloned().map_err(Clone::clone));
    }
    found.strings = texts.new;
    modules.retain(|module| module.frames > 0);
    found.modules = modules;
    found
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The frame has no symbols.
    Bare,
    /// Functions, but neither files nor lines.
    Named,
    /// Functions, files and lines.
    Lined,
}

impl State {
    fn of(tables: &Tables, frame: FrameId) -> Self {
        let lines = tables.frame_lines(frame);
        match lines.iter().any(|line| !tables.string(line.file).is_empty()) {
            true => Self::Lined,
            false if lines.is_empty() => Self::Bare,
            false => Self::Named,
        }
    }
}

fn outcome(tables: &Tables, (row, module): (usize, &crate::tables::Module)) -> ModuleOutcome {
    ModuleOutcome {
        module: ModuleId::from_index(row),
        path: tables.string(module.path).to_owned(),
        frames: 0,
        asked: 0,
        with_lines: 0,
        with_names: 0,
        finding: None,
    }
}

fn request(tables: &Tables, module: &ModuleOutcome, frames: &[FrameId]) -> Request {
    let build_id = tables.modules[module.module.0 as usize].build_id.clone();
    let frame = |id: &FrameId| -> &Frame { &tables.frames[id.0 as usize] };
    let addresses = frames.iter().map(|id| frame(id).address).collect();
    Request { binary: Binary { path: module.path.clone().into(), build_id }, addresses }
}

struct Texts<'a> {
    known: HashMap<&'a str, StringId>,
    /// Number of texts in the table before the look-up.
    count: usize,
    new: Vec<String>,
    new_rows: HashMap<String, StringId>,
}

impl<'a> Texts<'a> {
    fn new(tables: &'a Tables) -> Self {
        let rows = tables.strings.iter().enumerate();
        let known = rows.map(|(row, text)| (text.as_str(), StringId::from_index(row))).collect();
        Self { known, count: tables.strings.len(), new: Vec::new(), new_rows: HashMap::new() }
    }

    fn row(&mut self, text: &str) -> StringId {
        if let Some(row) = self.known.get(text).or_else(|| self.new_rows.get(text)) {
            return *row;
        }
        let row = StringId::from_index(self.count + self.new.len());
        self.new.push(text.to_owned());
        self.new_rows.insert(text.to_owned(), row);
        row
    }

    fn source_line(&mut self, line: &Line) -> SourceLine {
        let file = line.file.as_deref().map_or(StringId::NONE, |file| self.row(file));
        SourceLine { function: self.row(&line.function), file, line: line.line }
    }
}
