//! The program and the shared libraries of the current process, and a lookup of modules by address.

use std::ops::Range;

use super::loader;
pub use super::loader::Module;
use crate::reentrancy;

/// The location of a call, as a module and an address in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModuleOffset {
    /// Index in [`Modules::list`].
    pub module: usize,
    /// The return address minus one, which is within the call, minus the module's load bias.
    pub address: u64,
}

/// The modules of the process at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    list: Vec<Module>,
    /// Address ranges with the index of their module, sorted by address.
    ranges: Vec<(Range<u64>, usize)>,
}

impl Modules {
    fn new(list: Vec<Module>) -> Self {
        let ranges_of = |(index, module): (usize, &Module)| -> Vec<_> {
            module.ranges.iter().map(|range| (range.clone(), index)).collect()
        };
        let mut ranges: Vec<_> = list.iter().enumerate().flat_map(ranges_of).collect();
        ranges.sort_by_key(|(range, _)| range.start);
        Self { list, ranges }
    }

    /// Returns the modules in load order, the program first. To find a module in a later list, compare path and load
    /// bias, not the index.
    pub fn list(&self) -> &[Module] {
        &self.list
    }

    /// Returns the location of the call with this return address; `None` outside all modules, as in JIT code.
    pub fn locate(&self, return_address: u64) -> Option<ModuleOffset> {
        let call = return_address.checked_sub(1)?;
        let after = self.ranges.partition_point(|(range, _)| range.start <= call);
        let (range, module) = self.ranges.get(after.checked_sub(1)?)?;
        let address = call.wrapping_sub(self.list.get(*module)?.load_bias);
        range.contains(&call).then_some(ModuleOffset { module: *module, address })
    }
}

/// Returns the current modules on Linux. On other systems, returns an empty list, so that recordings keep bare
/// addresses. Takes well under a microsecond per module.
pub fn modules() -> Modules {
    let _guard = reentrancy::enter();
    Modules::new(loader::modules())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn module(load_bias: u64, ranges: &[Range<u64>]) -> Module {
        Module { path: PathBuf::from("m"), build_id: Vec::new(), load_bias, ranges: ranges.to_vec() }
    }

    #[test]
    fn a_return_address_belongs_to_the_module_of_its_call() {
        let modules = Modules::new(vec![
            module(0x9000, &[0x9000..0x9100, 0x9200..0x9300]),
            module(0x100, &[0x400..0x500, 0x600..0x700]),
        ]);
        let at = |address| modules.locate(address).map(|place| (place.module, place.address));
        assert_eq!(at(0x9210), Some((0, 0x20f)));
        assert_eq!(at(0x9300), Some((0, 0x2ff)), "a call may be the last instruction of a segment");
        assert_eq!(at(0x9200), None, "the call before this address lies in the gap");
        assert_eq!(at(0x401), Some((1, 0x300)));
        assert_eq!(at(0), None);
    }
}
