//! Looks up attributes of events, blocks and segments that have no column in a trace.

use highwater_snapshots::ids::StringId;
use highwater_snapshots::trace::{Owner, Trace};

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

impl Facts {
    #[inline]
    pub(super) fn of(trace: &Trace, owner: Owner) -> Self {
        let mut facts = Self::default();
        if trace.attributes.is_empty() {
            return facts;
        }
        for row in trace.attributes_of(owner) {
            let text = || trace.tables.string(row.value);
            match trace.tables.string(row.name) {
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

/// Parses a decimal or hexadecimal integer, such as `4096` or `0x1000`.
fn whole_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Parses a pool id, with any characters around and between its two integers, such as `(0, 1)`, `0,1` or `[0, 1]`.
fn two_numbers(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    let pair = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    numbers.next().is_none().then_some(pair)
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_snapshots::ids::EventId;
    use highwater_snapshots::trace::{Attribute, TraceParts};

    #[test]
    fn facts_are_found_by_owner_in_whatever_order_they_stand() {
        let attribute = |event, name, value| {
            let owner = Owner::Event(EventId(event));
            Attribute { owner, name: StringId(name), value: StringId(value) }
        };
        let trace = Trace::default().edited(|TraceParts { tables, attributes, .. }| {
            tables.strings = ["pool_id", "(0, 3)", "action", "annotate", "addr", "0x1000"].map(String::from).to_vec();
            *attributes = vec![attribute(7, 2, 3), attribute(7, 4, 5), attribute(2, 0, 1)];
        });
        let of_event = |event| Facts::of(&trace, Owner::Event(EventId(event)));
        assert_eq!(of_event(2).pool_id, Some((0, 3)));
        let facts = of_event(7);
        assert_eq!((facts.action, facts.address, facts.pool_id), (Some(StringId(3)), Some(4096), None));
        assert_eq!(of_event(3), Facts::default());
        assert_eq!((two_numbers("1"), two_numbers("1,2,3"), two_numbers("[4,5]")), (None, None, Some((4, 5))));
    }
}
