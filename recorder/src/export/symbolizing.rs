//! Symbolizes the stacks of a recording when it ends.

use highwater_snapshots::format::Symbols;
use highwater_snapshots::symbols::{Binary, Line, Request, SYSTEM_DEBUG_FOLDER, SymbolProblem, Symbolizer};
use highwater_snapshots::tables::{Module, SourceLine};
use highwater_snapshots::trace::NOTE;
use highwater_snapshots::{FrameId, StringId};

use super::Exporter;
use crate::reentrancy;

impl Exporter {
    /// Symbolizes every frame. Also returns notes on modules without debug information.
    pub(crate) fn resolve(&mut self) -> (Vec<Symbols>, Vec<(String, String)>) {
        let strings = self.strings.rows();
        let binary = |module: &Module| Binary {
            path: strings[module.path.0 as usize].clone().into(),
            build_id: module.build_id.clone(),
        };
        let request = |module: &Module| Request { binary: binary(module), addresses: Vec::new() };
        let mut requests: Vec<Request> = self.modules.iter().map(request).collect();
        let mut asked: Vec<Vec<FrameId>> = vec![Vec::new(); requests.len()];
        for (row, frame) in self.frames.iter().enumerate() {
            if let Some(module) = frame.module.index() {
                requests[module].addresses.push(frame.address);
                asked[module].push(FrameId::from_index(row));
            }
        }
        let symbolizer = Symbolizer::new(vec![SYSTEM_DEBUG_FOLDER.into()]);
        let mut symbolizer = symbolizer.with_threads_that_begin_by(reentrancy::own_this_thread);
        let found = resolve_apart(&mut symbolizer, &requests);
        let mut symbols = Vec::with_capacity(self.frames.len());
        for (frame, sources) in asked.into_iter().flatten().zip(found.into_iter().flatten()) {
            let lines = sources.iter().map(|source| self.source_line(source)).collect();
            symbols.push(Symbols { frame, lines });
        }
        // A module without debug information is no failure: its frames stay addresses.
        let note = |problem: &SymbolProblem| (NOTE.to_owned(), problem.to_string());
        (symbols, symbolizer.problems().iter().map(note).collect())
    }

    fn source_line(&mut self, source: &Line) -> SourceLine {
        let function = self.text(&source.function);
        let file = source.file.as_deref().map_or(StringId::NONE, |file| self.text(file));
        SourceLine { function, file, line: source.line }
    }
}

/// Symbolizes addresses on a thread outside of rayon's pool. A pool thread that waits may run other work of the
/// program, which may need a lock that the thread already holds.
fn resolve_apart(symbolizer: &mut Symbolizer, requests: &[Request]) -> Vec<Vec<Vec<Line>>> {
    let apart = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("symbols".to_owned());
        let work = || {
            reentrancy::own_this_thread();
            symbolizer.resolve(requests)
        };
        let thread = thread.spawn_scoped(scope, work).ok()?;
        // If damaged debug information causes a panic, addresses are left as they are, and the program goes on.
        Some(thread.join().unwrap_or_default())
    });
    apart.unwrap_or_else(|| symbolizer.resolve(requests))
}
