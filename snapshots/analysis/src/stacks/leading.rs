//! Chooses the frame that represents a call stack: the innermost frame of the user's own code, identified by its line,
//! or by its address if the line is unknown.

use highwater_snapshots::ids::{FrameId, StackId};
use highwater_snapshots::tables::{SourceLine, Tables};

use super::owners::{LineOwner, bare_name, is_of_recorder, is_pool, is_python, is_runtime, owner_of_module};

/// Functions that record or allocate memory for their callers. They never represent a stack, even without other lines.
const ALLOCATING: &[&str] =
    &["torch::unwind::", "torch::CapturedTraceback::", "torch::cuda::", "c10::", "at::detail::empty_"];

/// Prefix of a line of code that torch.fx generated. The line names the node and the model's source line.
const GENERATED: &str = "torch.fx: ";

/// A line of a stack, or the address of a frame without lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeadingFrame {
    /// A source line.
    Line(SourceLine),
    /// A frame with only an address, because its binary was not symbolized.
    Address(FrameId),
}

impl LeadingFrame {
    /// The text for tables, such as `train.py:7 step`, or `0x1f2e in /home/me/train`.
    pub fn text(self, tables: &Tables) -> String {
        match self {
            Self::Line(line) => tables.line_text(&line),
            Self::Address(frame) => tables.address_text(frame),
        }
    }

    /// The source line; `None` if only the address is known.
    pub fn line(self) -> Option<SourceLine> {
        match self {
            Self::Line(line) => Some(line),
            Self::Address(_) => None,
        }
    }

    /// Returns the name of the function; empty if unknown.
    fn function(self, tables: &Tables) -> &str {
        self.line().map_or("", |line| tables.string(line.function))
    }

    /// Returns whether the line has a file and line number, or names a node of generated code.
    fn is_placed(self, tables: &Tables) -> bool {
        self.line().is_some_and(|line| line.line > 0) || self.function(tables).starts_with(GENERATED)
    }

    /// Returns whether the line belongs to the recorder, which the allocator calls.
    pub(crate) fn is_recorder(self, tables: &Tables) -> bool {
        self.line().is_some_and(|line| is_of_recorder(tables.string(line.function), tables.string(line.file)))
    }

    /// The owner of this line of `frame`. Code in system libraries is never the user's, regardless of its name.
    pub(crate) fn owner(self, tables: &Tables, frame: FrameId) -> LineOwner {
        if !tables.skipped.is_empty() {
            let text = self.text(tables);
            if tables.skipped.iter().any(|pattern| text.contains(pattern.as_str())) {
                return LineOwner::Framework;
            }
        }
        match (self, module_path(tables, frame)) {
            (Self::Address(_), path) => path.map_or(LineOwner::Framework, owner_of_module),
            (Self::Line(line), Some(path))
                if owner_of_module(path) == LineOwner::Framework && !is_python(tables.string(line.file)) =>
            {
                LineOwner::Framework
            }
            (Self::Line(line), _) => LineOwner::of(tables, &line),
        }
    }
}

fn module_path(tables: &Tables, frame: FrameId) -> Option<&str> {
    let frame = frame.index().and_then(|index| tables.frames.get(index))?;
    let module = frame.module.index().and_then(|index| tables.modules.get(index))?;
    Some(tables.string(module.path))
}

/// The lines of a frame, innermost first, or its address if it has no lines.
pub(crate) fn entries_of(tables: &Tables, frame: FrameId) -> impl Iterator<Item = LeadingFrame> {
    let lines = tables.frame_lines(frame);
    let address = lines.is_empty().then_some(LeadingFrame::Address(frame));
    lines.iter().map(|line| LeadingFrame::Line(*line)).chain(address)
}

/// The lines and addresses of a stack with their frames, innermost first.
pub(crate) fn entries(tables: &Tables, stack: StackId) -> impl Iterator<Item = (FrameId, LeadingFrame)> {
    tables.stack_frames(stack).flat_map(move |frame| entries_of(tables, frame).map(move |entry| (frame, entry)))
}

/// The user's own allocator in a stack: the function that called the recorder, the other methods of its type, and the
/// calls within its module up to the outermost method of any type, unless the module is the whole crate.
#[derive(Clone, Debug)]
struct Allocator<'a> {
    caller: LeadingFrame,
    implementor: Option<&'a str>,
    /// The calls in the allocator's module.
    wrappers: Vec<LeadingFrame>,
}

impl<'a> Allocator<'a> {
    /// Finds the allocator that called the recorder. `caller` is the calling function, which is entry `row` of a stack.
    fn of(tables: &'a Tables, stack: StackId, row: usize, caller: LeadingFrame) -> Self {
        let function = caller.function(tables);
        let mut wrappers = Vec::new();
        if let Some(module) = module_of(function) {
            let own = entries(tables, stack).skip(row + 1).filter(|(frame, entry)| {
                // Closures and iterators lie between.
                entry.owner(tables, *frame) == LineOwner::Program
            });
            wrappers.extend(
                own.map(|(_, entry)| entry).take_while(|entry| module_of(entry.function(tables)) == Some(module)),
            );
            let outermost = wrappers.iter().rposition(|entry| implementor(entry.function(tables)).is_some());
            wrappers.truncate(outermost.map_or(0, |at| at + 1));
        }
        Self { caller, implementor: implementor(function), wrappers }
    }

    fn has(&self, tables: &Tables, entry: LeadingFrame) -> bool {
        entry == self.caller
            || self.wrappers.contains(&entry)
            || (self.implementor.is_some() && implementor(entry.function(tables)) == self.implementor)
    }
}

/// The path of a function without generic arguments and closures.
fn path_of(function: &str) -> &str {
    let bare = bare_name(function);
    let end = bare.find(['<', '>', '(', '{', ' ']).unwrap_or(bare.len());
    bare[..end].trim_end_matches("::")
}

/// Returns the module of a function or method, such as `app::pool` for `app::pool::take` and for
/// `app::pool::Arena::alloc`. `None` if it is in the root of the crate.
fn module_of(function: &str) -> Option<&str> {
    let path = path_of(function);
    let item = path.match_indices("::").find(|(at, _)| path[at + 2..].starts_with(|c: char| c.is_ascii_uppercase()));
    let (at, _) = item.or_else(|| path.rmatch_indices("::").next())?;
    path[..at].contains("::").then_some(&path[..at])
}

/// Returns the type of a method, such as `app::Arena` for `app::Arena::alloc` and for `<app::Arena<T> as Pool>::alloc`.
fn implementor(function: &str) -> Option<&str> {
    let path = path_of(function);
    let is_type = |part: &str| part.starts_with(|c: char| c.is_ascii_uppercase());
    let mut at = 0;
    let mut found = None;
    for part in path.split("::") {
        at += part.len();
        if is_type(part) {
            found = Some(&path[..at]);
        }
        at += 2;
    }
    found
}

/// Changes the owner of the lines of the user's own allocator to `Framework` if the stack also has lines of the
/// allocator's caller. `owners` contains the owners of the stack's lines, innermost first.
pub(crate) fn set_allocator_apart(tables: &Tables, stack: StackId, owners: &mut [LineOwner]) {
    let mut lines = entries(tables, stack).map(|(_, entry)| entry).zip(owners.iter()).enumerate();
    let mut has_recorder = false;
    let caller = lines.find(|(_, (entry, _))| {
        let is_recorder = entry.is_recorder(tables);
        has_recorder |= is_recorder;
        !is_recorder
    });
    let Some((row, (caller, LineOwner::Program))) = caller.filter(|_| has_recorder) else { return };
    let allocator = Allocator::of(tables, stack, row, caller);
    if lines.any(|(_, (entry, owner))| *owner == LineOwner::Program && !allocator.has(tables, entry)) {
        for ((_, entry), owner) in entries(tables, stack).zip(owners) {
            if allocator.has(tables, entry) {
                *owner = LineOwner::Framework;
            }
        }
    }
}

/// Returns the frame that represents a stack: the innermost line of the user's own code outside of their allocator that
/// has a number, since below Python code there are libraries whose source is unknown. Otherwise, the first one of these
/// that exists: the line of the user's allocator that called the recorder, an address in the user's own binary, the
/// innermost line of a library, of a layer, the line that names an autograd node, a line without a number outside of
/// frameworks, a Python line, a line outside of allocators and runtimes, such as the function that a thread pool runs,
/// a line of the pool, a line outside of allocators, the innermost line. `None` for an empty stack.
pub fn leading_frame(tables: &Tables, stack: StackId) -> Option<LeadingFrame> {
    let lines = || entries(tables, stack).map(|(_, entry)| entry);
    let mut best: Option<(LineOwner, LeadingFrame)> = None;
    let (mut unplaced, mut address, mut allocator) = (None, None, None);
    let mut calls_recorder = false;
    for (row, (frame, entry)) in entries(tables, stack).enumerate() {
        if (row == 0 || calls_recorder) && entry.is_recorder(tables) {
            calls_recorder = true;
            continue;
        }
        let is_caller = std::mem::take(&mut calls_recorder);
        match entry.owner(tables, frame) {
            LineOwner::Framework => {}
            LineOwner::Program if is_caller && entry.line().is_some() => {
                allocator = Some(Allocator::of(tables, stack, row, entry));
            }
            LineOwner::Program if allocator.as_ref().is_some_and(|known: &Allocator<'_>| known.has(tables, entry)) => {}
            LineOwner::Program if entry.is_placed(tables) => return Some(entry),
            LineOwner::Program if entry.line().is_none() => address = address.or(Some(entry)),
            owner if entry.is_placed(tables) || entry.line().is_none() => {
                best = best.filter(|(known, _)| *known <= owner).or(Some((owner, entry)));
            }
            _ => unplaced = unplaced.or(Some(entry)),
        }
    }
    let is_node = |entry: &LeadingFrame| {
        let function = entry.function(tables);
        function.contains("Backward") && function.contains("::apply(")
    };
    let is_allocating =
        |entry: &LeadingFrame| ALLOCATING.iter().any(|prefix| entry.function(tables).starts_with(prefix));
    let is_line = |entry: &LeadingFrame, holds: fn(&str, &str) -> bool| {
        entry.line().is_some_and(|line| holds(tables.string(line.function), tables.string(line.file)))
    };
    let runs = |entry: &LeadingFrame| !is_allocating(entry) && is_line(entry, |name, file| !is_runtime(name, file));
    allocator
        .map(|allocator| allocator.caller)
        .or(address)
        .or(best.map(|(_, entry)| entry))
        .or_else(|| lines().find(is_node))
        .or(unplaced)
        .or_else(|| lines().find(|entry| entry.line().is_some_and(|line| is_python(tables.string(line.file)))))
        .or_else(|| lines().find(runs))
        .or_else(|| lines().find(|entry| is_line(entry, is_pool)))
        .or_else(|| lines().find(|entry| !is_allocating(entry)))
        .or_else(|| lines().next())
}

/// Returns the user's patterns of lines to skip that match no line of the recording.
pub fn unmatched_skips(tables: &Tables) -> Vec<&str> {
    let mut unmatched: Vec<&str> = tables.skipped.iter().map(String::as_str).collect();
    let frames = (0..tables.frames.len()).map(FrameId::from_index);
    for entry in frames.flat_map(|frame| entries_of(tables, frame)) {
        if unmatched.is_empty() {
            break;
        }
        let text = entry.text(tables);
        unmatched.retain(|pattern| !text.contains(pattern));
    }
    unmatched
}

/// The source line of [`leading_frame`]; `None` if only its address is known, or if the stack is empty.
pub fn user_line(tables: &Tables, stack: StackId) -> Option<SourceLine> {
    leading_frame(tables, stack)?.line()
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_snapshots::ids::{ModuleId, StringId};
    use highwater_snapshots::tables::{Frame, Module, Stack};

    /// A frame: function, file and line, or none of them where only the address is known; and its module.
    type Made<'a> = (Option<(&'a str, &'a str, u32)>, &'a str);

    /// A stack of `frames`, innermost first.
    fn stack_of(frames: &[Made<'_>]) -> (Tables, StackId) {
        let mut tables = Tables::default();
        let mut parent = StackId::NONE;
        let intern = |tables: &mut Tables, text: &str| {
            tables.strings.push(text.to_owned());
            StringId(tables.strings.len() as u32 - 1)
        };
        for (row, (line, module)) in frames.iter().rev().enumerate() {
            let path = intern(&mut tables, module);
            tables.modules.push(Module { path, build_id: vec![1], load_bias: 0 });
            let first_line = tables.lines.len() as u32;
            if let Some((function, file, line)) = *line {
                let (function, file) = (intern(&mut tables, function), intern(&mut tables, file));
                tables.lines.push(SourceLine { function, file, line });
            }
            let (module, address) = (ModuleId::from_index(row), 0x1000 + row as u64);
            tables.frames.push(Frame { module, address, first_line, line_count: u32::from(line.is_some()) });
            tables.stacks.push(Stack { parent, frame: FrameId::from_index(row) });
            parent = StackId::from_index(row);
        }
        (tables, parent)
    }

    fn leading(frames: &[Made<'_>]) -> String {
        let (tables, stack) = stack_of(frames);
        leading_frame(&tables, stack).unwrap().text(&tables)
    }

    const PROGRAM: &str = "/home/me/train";
    const LIBC: Made<'_> = (Some(("__libc_start_call_main", "./csu/libc-start.c", 58)), "/lib/libc.so.6");
    const CLONE: Made<'_> =
        (Some(("__GI___clone3", "../sysdeps/unix/sysv/linux/x86_64/clone3.S", 78)), "/usr/lib/libc.so.6");
    const RECORDER: Made<'_> = (Some(("highwater_recorder::api::alloc", "recorder/src/api.rs", 7)), PROGRAM);

    #[test]
    fn an_address_in_the_users_binary_leads_where_only_libraries_have_lines() {
        assert_eq!(leading(&[(None, PROGRAM), (None, PROGRAM), LIBC]), "0x1002 in /home/me/train");
        assert_eq!(leading(&[(None, "/usr/lib/libcudart.so.12"), (None, PROGRAM), LIBC]), "0x1001 in /home/me/train");
        let line = (Some(("train::step", "src/main.rs", 7)), PROGRAM);
        assert_eq!(leading(&[(None, PROGRAM), line, LIBC]), "src/main.rs:7 train::step", "what is known says more");
        let (tables, stack) = stack_of(&[(None, PROGRAM), LIBC]);
        assert_eq!(user_line(&tables, stack), None, "a line of libc is not taken for the user's");
        assert_eq!(leading(&[(None, "/opt/bin/highwater"), LIBC]), "0x1001 in /opt/bin/highwater");
    }

    #[test]
    fn a_line_of_a_system_library_is_never_the_users() {
        let layer = (Some(("candle_nn::linear::Linear::forward", "/candle-nn/src/linear.rs", 9)), PROGRAM);
        assert_eq!(leading(&[layer, CLONE]), "/candle-nn/src/linear.rs:9 candle_nn::linear::Linear::forward");
    }

    #[test]
    fn what_a_thread_pool_runs_leads_rather_than_the_pool_or_the_start_of_the_thread() {
        let line = |function, file| (Some((function, file, 3)), PROGRAM);
        let registry = "/home/me/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f";
        let (pool, product) =
            (format!("{registry}/rayon-core-1.13.0/src/job.rs"), format!("{registry}/gemm-common-0.19.0/src/gemm.rs"));
        let buffer = format!("{registry}/dyn-stack-0.13.0/src/mem.rs");
        let stack = [
            line("__rustc::__rust_alloc", "src/main.rs"),
            line("alloc::alloc::alloc", "/rustc/59807616e1fa/library/alloc/src/alloc.rs"),
            line("try_new_uninit", &buffer),
            line("gemm_common::gemm::gemm_basic_generic::{{closure}}", &product),
            line("call_mut", "/rustc/59807616e1fa/library/core/src/ops/function.rs"),
            line("<rayon_core::job::HeapJob<_> as rayon_core::job::Job>::execute", &pool),
            line("std::sys::thread::unix::Thread::new::thread_start", "/rustc/59807616e1fa/library/std/src/sys.rs"),
            (Some(("start_thread", "./nptl/pthread_create.c", 447)), "/lib/x86_64-linux-gnu/libc.so.6"),
            CLONE,
        ];
        assert_eq!(leading(&stack), format!("{product}:3 gemm_common::gemm::gemm_basic_generic"));
        let idle = [stack[4], stack[5], stack[6], CLONE];
        assert_eq!(leading(&idle), format!("{pool}:3 <rayon_core::job::HeapJob<_> as rayon_core::job::Job>::execute"));
    }

    #[test]
    fn the_caller_of_the_users_own_allocator_leads() {
        let line = |function, number| (Some((function, "src/main.rs", number)), PROGRAM);
        let (grow, alloc, step) =
            (line("app::Arena::grow", 5), line("<app::Arena as app::Pool>::alloc", 9), "app::step");
        assert_eq!(
            leading(&[RECORDER, grow, alloc, line(step, 20), line("app::main", 40), LIBC]),
            "src/main.rs:20 app::step"
        );
        assert_eq!(leading(&[RECORDER, line("app::take", 5), line(step, 20)]), "src/main.rs:20 app::step");
        assert_eq!(leading(&[RECORDER, grow, alloc, LIBC]), "src/main.rs:5 app::Arena::grow", "nothing else is known");
        assert_eq!(leading(&[grow, line(step, 20)]), "src/main.rs:5 app::Arena::grow", "no recorder was called");
        let (tables, stack) = stack_of(&[RECORDER, grow, alloc, line(step, 20)]);
        let shown: Vec<bool> =
            crate::stacks::frames::stack_lines(&tables, stack).iter().map(|line| line.is_program).collect();
        assert_eq!(shown, [false, false, false, true]);
    }

    #[test]
    fn the_caller_of_an_allocator_that_reports_through_a_function_or_wraps_another_type_leads() {
        let line = |function, number| (Some((function, "src/main.rs", number)), PROGRAM);
        let (tell, carve) = (line("app::slab::tell_alloc", 5), line("app::slab::Slab::carve", 9));
        let (take, build) = (line("app::slab::SlabPool::take", 12), line("app::build_index", 17));
        let closure = (Some(("core::ops::FnOnce::call_once", "/rustc/1/library/core/src/ops.rs", 1)), PROGRAM);
        assert_eq!(leading(&[RECORDER, tell, carve, closure, take, build, LIBC]), "src/main.rs:17 app::build_index");
        assert_eq!(leading(&[RECORDER, carve, take, build]), "src/main.rs:17 app::build_index");
        assert_eq!(leading(&[RECORDER, tell, line("app::slab::step", 20), build]), "src/main.rs:20 app::slab::step");
        let inner = line("app::slab::record", 4);
        assert_eq!(leading(&[RECORDER, inner, tell, carve, build]), "src/main.rs:17 app::build_index");
        let (root, step) = (line("app::tell", 5), line("app::Net::step", 20));
        assert_eq!(leading(&[RECORDER, root, step, build]), "src/main.rs:20 app::Net::step", "the crate is no module");
    }

    #[test]
    fn lines_that_are_to_be_skipped_do_not_lead() {
        let line = |function, number| (Some((function, "src/main.rs", number)), PROGRAM);
        let (mut tables, stack) = stack_of(&[line("app::Tensor::zeros", 5), line("app::step", 20)]);
        let leading = |tables: &Tables| leading_frame(tables, stack).unwrap().text(tables);
        assert_eq!(leading(&tables), "src/main.rs:5 app::Tensor::zeros");
        tables.skipped = vec!["Tensor::".to_owned()];
        assert_eq!(leading(&tables), "src/main.rs:20 app::step");
        assert_eq!(unmatched_skips(&tables), [""; 0]);
        tables.skipped = vec!["app::".to_owned(), "Tensr::".to_owned()];
        assert_eq!(unmatched_skips(&tables), ["Tensr::"]);
        assert_eq!(leading(&tables), "src/main.rs:5 app::Tensor::zeros", "all are skipped, and the innermost is left");
    }

    #[test]
    fn the_type_of_a_method_is_the_last_part_of_its_path_in_camel_case() {
        for (function, expected) in [
            ("app::Arena::alloc", Some("app::Arena")),
            ("<app::pool::Arena<T> as app::Pool>::alloc::{{closure}}", Some("app::pool::Arena")),
            ("app::Arena<T>::alloc", Some("app::Arena")),
            ("Arena::alloc(unsigned long)", Some("Arena")),
            ("app::alloc", None),
            ("alloc", None),
            ("", None),
        ] {
            assert_eq!(implementor(function), expected, "{function}");
        }
    }
}
