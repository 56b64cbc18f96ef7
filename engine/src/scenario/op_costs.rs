//! The work of each operation, added to a finished recording as attributes of events.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use highwater_recorder::snapshots::format::{read_file, write_trace};
use highwater_recorder::snapshots::trace::{Attribute, Owner, TraceParts};
use highwater_recorder::snapshots::{OpId, StringId, Trace};
use highwater_recorder::{Error, scope};

use crate::backend::cost::{Cost, Costs};

/// The names of the attributes for floating-point operations and for bytes read or written.
const NAMES: [&str; 2] = ["op_flops", "op_bytes_moved"];

#[derive(Debug, Default)]
pub(crate) struct OpCosts {
    /// The id of the first operation of the recording.
    first: OpId,
    by_op: BTreeMap<OpId, Cost>,
}

impl OpCosts {
    /// Prepares counting, with operations of the running recording numbered from here on.
    pub(crate) fn begin() -> Self {
        let _op = scope::op("record");
        Self { first: scope::current_op(), by_op: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, costs: &Costs) {
        for (op, cost) in &costs.by_op {
            *self.by_op.entry(*op).or_default() += *cost;
        }
    }

    /// Writes the work into the recording at `path`. The forward, recomputation and backward of each operation are
    /// added up and stored as attributes of its first allocation. An operation that allocates nothing gets none.
    pub(crate) fn write_into(&self, path: &Path) -> Result<(), Error> {
        let trace = self.added_to(read_file(path).map_err(Error::Snapshot)?);
        let changed = path.with_extension("snap.costs");
        let failed = |source| Error::Write { source, path: changed.clone() };
        let file = File::create(&changed).map_err(failed)?;
        write_trace(BufWriter::new(file), &trace).map_err(Error::Snapshot)?;
        std::fs::rename(&changed, path).map_err(failed)
    }

    fn added_to(&self, trace: Trace) -> Trace {
        let mut ids: HashMap<String, StringId> = HashMap::new();
        let mut seen = HashSet::new();
        trace.edited(|TraceParts { blocks, tables, attributes, .. }| {
            for block in blocks.ids().map(|id| blocks.get(id)).filter(|block| !block.is_baseline()) {
                let counted = block.op.index().and_then(|op| self.by_op.get(&OpId(self.first.0 + op as u32)));
                let Some(cost) = counted.filter(|_| seen.insert(block.op)) else { continue };
                let strings = &mut tables.strings;
                let mut id = |text: String| {
                    *ids.entry(text).or_insert_with_key(|text| {
                        strings.push(text.clone());
                        StringId::from_index(strings.len() - 1)
                    })
                };
                let owner = Owner::Event(block.alloc);
                for (name, value) in NAMES.into_iter().zip([cost.flops, cost.bytes]) {
                    attributes.push(Attribute { owner, name: id(name.to_owned()), value: id(value.to_string()) });
                }
            }
        })
    }
}
