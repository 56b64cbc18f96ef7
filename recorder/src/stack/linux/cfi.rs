//! Reads call frame information from a module's `.eh_frame`, and converts it into unwind rules.

#![expect(unsafe_code, reason = "unwind tables are read where the loader mapped them")]

use std::ffi::{CStr, CString};
use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, NativeEndian, ParsedEhFrameHdr, Pointer, RegisterRule,
    UnwindContext, UnwindSection, UnwindTableRow, X86_64,
};

use super::rule::{Kind, Rule};
use crate::stack::loader::{self, Changes, Loaded};

type Bytes = EndianSlice<'static, NativeEndian>;

struct Unwindable {
    name: CString,
    load_bias: u64,
    ranges: Vec<Range<u64>>,
    /// Whether the loader keeps the module for the rest of the process.
    kept: bool,
    tables: Option<Tables>,
}

struct Tables {
    index: ParsedEhFrameHdr<Bytes>,
    frames: EhFrame<Bytes>,
    bases: BaseAddresses,
}

pub(super) struct UnwindTables {
    modules: Vec<Unwindable>,
    changes: Changes,
    context: UnwindContext<usize>,
}

impl UnwindTables {
    pub(super) fn load() -> Self {
        // The counters are read first, so that modules loaded in between cause another reload and are never missed.
        let changes = loader::changes();
        let modules = loader::loaded().into_iter().map(Unwindable::new).collect();
        Self { modules, changes, context: UnwindContext::new() }
    }

    /// Creates an empty list, which is older than any counters of the loader.
    pub(super) fn none() -> Self {
        Self { modules: Vec::new(), changes: Changes::default(), context: UnwindContext::new() }
    }

    /// Returns the loader's counters as of the time when these tables were read.
    pub(super) fn changes(&self) -> Changes {
        self.changes
    }

    /// Replaces the tables with later ones. Never calls the loader, since a thread that holds its lock may be waiting
    /// for the lock of this crate.
    pub(super) fn renew(&mut self, later: Self) {
        let former = std::mem::replace(self, later);
        for module in former.modules.iter().filter(|module| module.kept) {
            if let Some(same) = self.find(&module.name, module.load_bias) {
                same.kept = true;
            }
        }
    }

    fn find(&mut self, name: &CStr, load_bias: u64) -> Option<&mut Unwindable> {
        self.modules.iter_mut().find(|module| *module.name == *name && module.load_bias == load_bias)
    }

    pub(super) fn mark_kept(&mut self, name: &CStr) {
        for module in self.modules.iter_mut().filter(|module| *module.name == *name) {
            module.kept = true;
        }
    }

    /// Returns the rule of a return address. Also returns the name of its module if that must first be passed to
    /// `loader::keep_loaded`. Before that, the rule must not be stored.
    pub(super) fn rule(&mut self, return_address: u64) -> (Rule, Option<CString>) {
        let call = return_address.wrapping_sub(1);
        // Code outside all modules is generated at run time, and may change.
        let Some(module) = self.modules.iter().find(|module| module.ranges.iter().any(|range| range.contains(&call)))
        else {
            return (Rule::FOREIGN, None);
        };
        let rule = module.tables.as_ref().map_or(Rule::FOREIGN, |tables| tables.rule(call, &mut self.context));
        (rule, (!module.kept).then(|| module.name.clone()))
    }
}

impl Unwindable {
    fn new(loaded: Loaded) -> Self {
        let tables = loaded.unwind_index.and_then(|index| Tables::find(index, &loaded.module.ranges));
        let Loaded { module, name, .. } = loaded;
        Self { name, load_bias: module.load_bias, ranges: module.ranges, kept: false, tables }
    }
}

impl Tables {
    fn find(index: Range<u64>, segments: &[Range<u64>]) -> Option<Self> {
        let bases = BaseAddresses::default().set_eh_frame_hdr(index.start);
        // SAFETY: the loader's list has this range within a readable segment; see `bytes` for its lifetime.
        let header = EhFrameHdr::from(unsafe { bytes(&index) });
        let index = header.parse(&bases, size_of::<usize>() as u8).ok()?;
        let Pointer::Direct(start) = index.eh_frame_ptr() else {
            return None;
        };
        let segment = segments.iter().find(|segment| segment.contains(&start))?;
        // SAFETY: from an address within a loaded segment to that segment's end; the linker puts `.eh_frame` next to
        // its index, in a readable segment.
        let frames = EhFrame::from(unsafe { bytes(&(start..segment.end)) });
        Some(Self { index, frames, bases: bases.set_eh_frame(start) })
    }

    fn rule(&self, call: u64, context: &mut UnwindContext<usize>) -> Rule {
        let Some(search) = self.index.table() else {
            return Rule::FOREIGN;
        };
        let entry = match search.fde_for_address(&self.frames, &self.bases, call, EhFrame::cie_from_offset) {
            Ok(entry) => entry,
            // Code without unwind information ends the stack, for every unwinder.
            Err(gimli::Error::NoUnwindInfoForAddress) => return Rule::OUTERMOST,
            Err(_) => return Rule::FOREIGN,
        };
        if entry.is_signal_trampoline() {
            return Rule::FOREIGN;
        }
        match entry.unwind_info_for_address(&self.frames, &self.bases, context, call) {
            Ok(row) => rule_of(row),
            Err(_) => Rule::FOREIGN,
        }
    }
}

/// Returns the memory of a module as a byte slice with static lifetime.
///
/// # Safety
/// The range must be readable, and the bytes may be used only while the module stays loaded. This holds for rules of an
/// address on a current stack, because its module is in use, and the list of modules is reloaded after an unload.
unsafe fn bytes(range: &Range<u64>) -> Bytes {
    // SAFETY: as the caller promises.
    let slice = unsafe { std::slice::from_raw_parts(range.start as *const u8, (range.end - range.start) as usize) };
    EndianSlice::new(slice, NativeEndian)
}

fn rule_of(row: &UnwindTableRow<usize>) -> Rule {
    match row.register(X86_64::RA) {
        Some(RegisterRule::Offset(-8)) => {}
        Some(RegisterRule::Undefined) => return Rule::OUTERMOST,
        _ => return Rule::FOREIGN,
    }
    let saved_base = match row.register(X86_64::RBP) {
        Some(RegisterRule::Offset(offset)) => Some(offset),
        None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => None,
        _ => return Rule::FOREIGN,
    };
    match *row.cfa() {
        CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => Rule::step(Kind::FromStack, offset, saved_base),
        CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => Rule::step(Kind::FromBase, offset, saved_base),
        _ => Rule::FOREIGN,
    }
}
