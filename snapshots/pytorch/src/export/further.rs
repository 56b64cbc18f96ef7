//! Looks up attributes of events, blocks and segments that have no column in a trace.

use std::borrow::Cow;

use highwater_snapshots::ids::StringId;
use highwater_snapshots::trace::{Attribute, Owner, Trace};

/// The attributes of a trace, sorted by owner.
#[derive(Clone, Debug)]
pub(super) struct Further<'a> {
    trace: &'a Trace,
    rows: Cow<'a, [Attribute]>,
}

/// The attributes of one owner. Each field has the value of the attribute of the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) action: Option<StringId>,
    pub(super) address: Option<u64>,
    pub(super) size: Option<u64>,
    pub(super) compile_context: Option<StringId>,
    pub(super) user_metadata: Option<StringId>,
    pub(super) internal_metadata: Option<StringId>,
    pub(super) pool_id: Option<(u64, u64)>,
    pub(super) category: Option<StringId>,
    pub(super) forward_frames: Option<StringId>,
}

impl<'a> Further<'a> {
    /// Collects the attributes of `trace`.
    pub(super) fn of(trace: &'a Trace) -> Self {
        let mut rows = Cow::Borrowed(trace.attributes.as_slice());
        if !rows.is_sorted_by_key(|row| row.owner) {
            rows.to_mut().sort_by_key(|row| row.owner);
        }
        Self { trace, rows }
    }

    /// Returns the attributes of `owner`.
    #[inline]
    pub(super) fn about(&self, owner: Owner) -> Facts {
        let mut facts = Facts::default();
        if self.rows.is_empty() {
            return facts;
        }
        let first = self.rows.partition_point(|row| row.owner < owner);
        for row in self.rows[first..].iter().take_while(|row| row.owner == owner) {
            let text = || self.trace.tables.string(row.value);
            match self.trace.tables.string(row.name) {
                "action" => facts.action = Some(row.value),
                "addr" | "address" => facts.address = whole_number(text()),
                "size" => facts.size = whole_number(text()),
                "compile_context" => facts.compile_context = Some(row.value),
                "user_metadata" => facts.user_metadata = Some(row.value),
                "internal_metadata" => facts.internal_metadata = Some(row.value),
                "pool_id" | "segment_pool_id" => facts.pool_id = two_numbers(text()),
                "category" => facts.category = Some(row.value),
                "forward_frames" => facts.forward_frames = Some(row.value),
                _ => {}
            }
        }
        facts
    }
}

/// Parses a decimal or hexadecimal integer: `4096`, `0x1000`.
fn whole_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Parses a pool id, with any characters around and between its two integers: `(0, 1)`, `0,1`, `[0, 1]`.
fn two_numbers(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    let pair = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    numbers.next().is_none().then_some(pair)
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_snapshots::ids::EventId;

    #[test]
    fn facts_are_found_by_owner_in_whatever_order_they_stand() {
        let mut trace = Trace::default();
        trace.tables.strings = ["pool_id", "(0, 3)", "action", "annotate", "addr", "0x1000"].map(String::from).to_vec();
        let attribute = |event, name, value| {
            let owner = Owner::Event(EventId(event));
            Attribute { owner, name: StringId(name), value: StringId(value) }
        };
        trace.attributes = vec![attribute(7, 2, 3), attribute(7, 4, 5), attribute(2, 0, 1)];
        let further = Further::of(&trace);
        assert_eq!(further.about(Owner::Event(EventId(2))).pool_id, Some((0, 3)));
        let facts = further.about(Owner::Event(EventId(7)));
        assert_eq!((facts.action, facts.address, facts.pool_id), (Some(StringId(3)), Some(4096), None));
        assert_eq!(further.about(Owner::Event(EventId(3))), Facts::default());
        assert_eq!((two_numbers("1"), two_numbers("1,2,3"), two_numbers("[4,5]")), (None, None, Some((4, 5))));
    }
}
