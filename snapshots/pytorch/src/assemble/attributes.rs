//! Stores properties of a snapshot's events and segments that have no column in a trace as attributes.
//!
//! | name | value |
//! |---|---|
//! | `action` | PyTorch's name of the event, if the trace's event kind has another name |
//! | `size` | `size` in decimal, for marks and for frees of unknown blocks |
//! | `addr` | `addr` in hexadecimal with `0x`, for marks and for frees of unknown blocks |
//! | `pool_id` | `(1, 0)`, if the pool is private |
//! | `references` | references to a block, from the Python package: see [`highwater_snapshots::references`] |
//! | `shape` | shape and dtype of the tensor, as `[32, 1024] float32`: see [`shapes`](super::shapes) |
//! | `compile_context`, `user_metadata`, `internal_metadata` | as in the snapshot |

use hashbrown::HashMap;

use super::super::raw::{Extras, RawEvent};
use crate::rows::Rows;
use highwater_snapshots::TraceBuilder;
use highwater_snapshots::ids::StringId;
use highwater_snapshots::tables::Tables;
use highwater_snapshots::trace::{Attribute, Owner};

/// String ids of the attributes' names and of recurring values.
#[derive(Clone, Debug)]
pub(super) struct Attributes {
    action: StringId,
    size: StringId,
    addr: StringId,
    pool_id: StringId,
    compile_context: StringId,
    user_metadata: StringId,
    internal_metadata: StringId,
    pools: HashMap<(u64, u64), StringId>,
}

impl Attributes {
    pub(super) fn new(tables: &mut Tables, rows: &mut Rows) -> Self {
        let mut name = |text| rows.text(tables, text);
        Self {
            action: name("action"),
            size: name("size"),
            addr: name("addr"),
            pool_id: name("pool_id"),
            compile_context: name("compile_context"),
            user_metadata: name("user_metadata"),
            internal_metadata: name("internal_metadata"),
            pools: HashMap::new(),
        }
    }

    /// Adds the attributes for the rare fields of an event.
    pub(super) fn add_extras(&mut self, builder: &mut TraceBuilder, rows: &mut Rows, owner: Owner, extras: &Extras) {
        self.add_pool(builder, rows, owner, extras.pool_id);
        let texts = [
            (self.compile_context, extras.compile_context),
            (self.user_metadata, extras.user_metadata),
            (self.internal_metadata, extras.internal_metadata),
        ];
        for (name, value) in texts.into_iter().filter(|(_, value)| value.is_some()) {
            builder.add_attribute(Attribute { owner, name, value });
        }
    }

    /// Adds the pool id, if the pool is private.
    pub(super) fn add_pool(&mut self, builder: &mut TraceBuilder, rows: &mut Rows, owner: Owner, pool: (u64, u64)) {
        if pool != (0, 0) {
            let name = self.pool_id;
            let text = || format!("({}, {})", pool.0, pool.1);
            let value = *self.pools.entry(pool).or_insert_with(|| rows.text(builder.tables(), &text()));
            builder.add_attribute(Attribute { owner, name, value });
        }
    }

    pub(super) fn add_action(&self, builder: &mut TraceBuilder, rows: &mut Rows, owner: Owner, action: &str) {
        let value = rows.text(builder.tables(), action);
        builder.add_attribute(Attribute { owner, name: self.action, value });
    }

    /// Adds an event's size and address, unless they are 0.
    pub(super) fn add_place(&self, builder: &mut TraceBuilder, rows: &mut Rows, owner: Owner, event: &RawEvent) {
        if event.size != 0 {
            let value = rows.text(builder.tables(), &event.size.to_string());
            builder.add_attribute(Attribute { owner, name: self.size, value });
        }
        if event.address != 0 {
            let value = rows.text(builder.tables(), &format!("{:#x}", event.address));
            builder.add_attribute(Attribute { owner, name: self.addr, value });
        }
    }
}
