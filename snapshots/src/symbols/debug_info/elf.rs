//! Reads debug information of ELF files. Sections are read from the mapped file without a copy unless they are
//! compressed, which needs the feature `compressed-symbols`.

use std::borrow::Cow;
use std::error::Error;
use std::ops::Range;
use std::path::Path;

use addr2line::Context;
use addr2line::gimli::{AbbreviationsCacheStrategy, Dwarf, EndianReader, RunTimeEndian, SectionId};
use object::{Object, ObjectSection};

use crate::mapped::SharedBytes;
use crate::symbols::line::Line;

type SectionReader = EndianReader<RunTimeEndian, SharedBytes>;

pub(super) struct DebugFile {
    bytes: SharedBytes,
    context: Context<SectionReader>,
    /// Symbols of functions and variables, ordered by address.
    symbols: Vec<Symbol>,
}

struct Symbol {
    address: u64,
    /// Size in bytes; 0 if unknown.
    size: u64,
    /// The byte range of its name in the file.
    name: Range<usize>,
}

impl DebugFile {
    pub(super) fn open(path: &Path) -> Result<Self, Box<dyn Error>> {
        let bytes = SharedBytes::map(path)?;
        let object = object::File::parse(&*bytes)?;
        let endian = if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        let section = |id: SectionId| -> Result<SectionReader, Box<dyn Error>> {
            let Some(section) = object.section_by_name(id.name()) else {
                return Ok(EndianReader::new(SharedBytes::default(), endian));
            };
            Ok(match section.uncompressed_data() {
                Ok(Cow::Borrowed(data)) => match range_of(&bytes, data) {
                    Some(range) => EndianReader::new(bytes.clone(), endian).range(range),
                    None => EndianReader::new(SharedBytes::from(data.to_vec()), endian),
                },
                Ok(Cow::Owned(data)) => EndianReader::new(SharedBytes::from(data), endian),
                // Damaged, or compressed in a build that cannot read that: names of functions remain.
                Err(_) => EndianReader::new(SharedBytes::default(), endian),
            })
        };
        let mut dwarf = Dwarf::load(section)?;
        dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        let context = Context::from_dwarf(dwarf)?;
        let map = object.symbol_map();
        let symbol = |symbol: &object::SymbolMapName<'_>| {
            let name = range_of(&bytes, symbol.name().as_bytes())?;
            Some(Symbol { address: symbol.address(), size: symbol.size(), name })
        };
        let symbols = map.symbols().iter().filter_map(symbol).collect();
        Ok(Self { context, symbols, bytes: bytes.clone() })
    }

    /// Returns the source lines of an address, and whether the function name of the last one includes its path. Split
    /// debug information in separate files is not read.
    pub(super) fn frames(&self, address: u64) -> (Vec<Line>, bool) {
        match self.context.find_frames(address).skip_all_loads() {
            Ok(frames) => super::lines_of(frames),
            Err(_) => (Vec::new(), false),
        }
    }

    pub(super) fn symbol(&self, address: u64) -> Option<&str> {
        let after = self.symbols.partition_point(|symbol| symbol.address <= address);
        let symbol = &self.symbols[after.checked_sub(1)?];
        let is_within = symbol.size == 0 || address - symbol.address < symbol.size;
        let name = self.bytes.get(symbol.name.clone()).filter(|_| is_within)?;
        std::str::from_utf8(name).ok()
    }
}

/// Returns the range of `part` within `whole`; `None` if `part` is not inside `whole`.
fn range_of(whole: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    let end = start.checked_add(part.len())?;
    (end <= whole.len()).then_some(start..end)
}
