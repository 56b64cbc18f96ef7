//! A process-wide cache of the unwind rule of each return address, 8 bytes per rule.
//!
//! The table only grows and is read without a lock; each new address is looked up once per process in the module's
//! unwind tables. PyTorch's C++ stack traces introduced the idea of caching one small rule per return address
//! (`torch/csrc/profiler/unwind`, 2023).
//!
//! A rule is valid for the life of the process: before it is stored, the module is marked never to be unloaded.

#![expect(unsafe_code, reason = "the table is shared by pointer, so that it can grow under its readers")]

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::cfi::UnwindTables;
use super::rule::Rule;
use crate::stack::loader;

#[derive(Default)]
struct Slot {
    /// Return address; 0 while the slot is free. Stored after the rule.
    address: AtomicU64,
    rule: AtomicU64,
}

/// A hash table with open addressing that is at most half full.
pub(super) struct RuleTable {
    slots: Box<[Slot]>,
    shift: u32,
}

impl RuleTable {
    fn with_bits(bits: u32) -> Self {
        Self { slots: (0..1usize << bits).map(|_| Slot::default()).collect(), shift: u64::BITS - bits }
    }

    #[inline(always)]
    fn first(&self, address: u64) -> usize {
        (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// Returns the rule of a return address, if it was looked up before.
    #[inline(always)]
    pub(super) fn find(&self, address: u64) -> Option<Rule> {
        let last = self.slots.len() - 1;
        let mut at = self.first(address);
        loop {
            let slot = &self.slots[at & last];
            match slot.address.load(Ordering::Acquire) {
                found if found == address => {
                    return Some(Rule::from_bits(slot.rule.load(Ordering::Relaxed)));
                }
                0 => return None,
                _ => at += 1,
            }
        }
    }

    /// Adds a rule. The caller must hold the lock of [`SOURCE`].
    fn put(&self, address: u64, rule: Rule) {
        let last = self.slots.len() - 1;
        let mut at = self.first(address);
        while self.slots[at & last].address.load(Ordering::Relaxed) != 0 {
            at += 1;
        }
        self.slots[at & last].rule.store(rule.to_bits(), Ordering::Relaxed);
        self.slots[at & last].address.store(address, Ordering::Release);
    }
}

static TABLE: AtomicPtr<RuleTable> = AtomicPtr::new(std::ptr::null_mut());

/// The unwind tables that rules come from; its lock also protects writes to the table.
struct Source {
    tables: UnwindTables,
    rules: usize,
}

static SOURCE: Mutex<Option<Source>> = Mutex::new(None);

fn with_source<R>(work: impl FnOnce(&mut Source, &'static RuleTable) -> R) -> R {
    let mut source = SOURCE.lock().unwrap_or_else(PoisonError::into_inner);
    let source = source.get_or_insert_with(|| Source { tables: UnwindTables::none(), rules: 0 });
    if TABLE.load(Ordering::Acquire).is_null() {
        publish(RuleTable::with_bits(13));
    }
    work(source, table())
}

fn publish(table: RuleTable) -> &'static RuleTable {
    let table = Box::leak(Box::new(table));
    TABLE.store(table, Ordering::Release);
    table
}

/// Returns the current table. It stays readable for the life of the process, but a later one contains more rules.
#[inline(always)]
pub(super) fn table() -> &'static RuleTable {
    let table = TABLE.load(Ordering::Acquire);
    if table.is_null() {
        return first_table();
    }
    // SAFETY: published by `publish` alone, which leaks the table: it is never freed and never borrowed mutably.
    unsafe { &*table }
}

#[cold]
#[inline(never)]
fn first_table() -> &'static RuleTable {
    with_source(|_, table| table)
}

/// Finds the rule of an address that is not in the table, and stores it.
/// Takes a lock, allocates, and may call the loader: some 0.5 µs, once per address and process.
#[cold]
#[inline(never)]
pub(super) fn learn(address: u64) -> Rule {
    // The loader is called without our lock: a thread that holds the loader's lock may be about to take ours.
    let changes = loader::changes();
    let is_old = with_source(|source, _| source.tables.changes() != changes);
    let later = is_old.then(UnwindTables::load);
    let (mut rule, unkept) = with_source(|source, table| {
        later.into_iter().for_each(|later| source.tables.renew(later));
        match table.find(address) {
            Some(rule) => (rule, None),
            None => source.tables.rule(address),
        }
    });
    if let Some(name) = unkept {
        // Without our lock: the loader may be waiting for a module's initializer, which may be waiting for our lock.
        if loader::keep_loaded(&name) {
            with_source(|source, _| source.tables.mark_kept(&name));
        } else {
            rule = Rule::FOREIGN;
        }
    }
    with_source(|source, table| {
        if let Some(rule) = table.find(address) {
            return rule;
        }
        source.rules += 1;
        if source.rules * 2 > table.slots.len() {
            // Readers may still use the smaller table, so it is never freed; together, the old tables are as large as
            // the current one.
            let larger = RuleTable::with_bits(u64::BITS - table.shift + 1);
            for slot in &table.slots {
                let address = slot.address.load(Ordering::Relaxed);
                if address != 0 {
                    larger.put(address, Rule::from_bits(slot.rule.load(Ordering::Relaxed)));
                }
            }
            publish(larger).put(address, rule);
        } else {
            table.put(address, rule);
        }
        rule
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::platform::rule::Kind;

    #[test]
    fn a_table_finds_what_was_put_and_nothing_else() {
        let table = RuleTable::with_bits(6);
        for address in 1..=31 {
            table.put(address * 64, Rule::step(Kind::FromStack, address as i64, None));
        }
        assert!((1..=31).all(|address| table.find(address * 64).map(Rule::frame_offset) == Some(address)));
        assert_eq!(table.find(65), None);
    }
}
