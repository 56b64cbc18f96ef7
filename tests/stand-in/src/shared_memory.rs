//! Finds the variables of a shared object that represent a kernel's shared memory.
//!
//! On the host, these are static variables of functions, which the linker initializes to zero. On a GPU, they contain
//! values of an earlier block. The stand-in therefore fills them with NaN for each block, for which it needs their
//! addresses.

use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};

use crate::failure::{Code, Result, fail};

/// A symbol that every shared object of kernels exports: `launch.h` defines it.
pub(crate) const MARK: &str = "highwater_mark";

/// The distance in bytes from [`MARK`] to a variable, and the variable's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) distance: i64,
    pub(crate) bytes: u64,
}

/// The variables that blocks share.
pub(crate) fn shared_variables(image: &[u8]) -> Result<Vec<Variable>> {
    let file = match object::File::parse(image) {
        Ok(file) => file,
        Err(why) => return fail(Code::InvalidImage, format!("the kernels' shared object: {why}")),
    };
    let Some(mark) = file.symbols().find(|symbol| symbol.name() == Ok(MARK)) else {
        return fail(Code::InvalidImage, format!("the kernels' shared object has no symbol {MARK}"));
    };
    let is_zeroed = |symbol: &object::Symbol<'_, '_>| {
        let section = symbol.section_index().and_then(|index| file.section_by_index(index).ok());
        section.is_some_and(|section| section.kind() == SectionKind::UninitializedData)
    };
    // A static variable of a function, by how C++ writes its name; those of the shim's own functions are not shared.
    let is_shared = |name: &str| name.starts_with("_ZZ") && !name.starts_with("_ZZN3cpu");
    let variables = file
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Data && symbol.name().is_ok_and(is_shared) && is_zeroed(symbol));
    let place = |symbol: object::Symbol<'_, '_>| Variable {
        distance: symbol.address().wrapping_sub(mark.address()) as i64,
        bytes: symbol.size(),
    };
    Ok(variables.map(place).collect())
}
