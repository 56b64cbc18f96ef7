//! Tests of recordings with some or no summaries, which open faster with previously computed values.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use highwater_snapshots::byte_source::ByteSource;
use highwater_snapshots::format::{ComputedStore, Windows, read_bytes, write_trace};

use crate::program::{Numbers, recording};

/// Keeps what was saved in memory.
#[derive(Default)]
struct Store(RefCell<Option<Vec<u8>>>);

impl ComputedStore for Store {
    fn is_for(&self, events: u64) -> bool {
        events > 0
    }

    fn load(&self) -> Option<Vec<u8>> {
        self.0.borrow().clone()
    }

    fn save(&self, computed: &[u8]) {
        *self.0.borrow_mut() = Some(computed.to_vec());
    }
}

/// Opens a recording, and tells whether its events were read for that.
fn open(bytes: &[u8], store: &Store) -> (Windows, bool) {
    let bytes: Arc<[u8]> = bytes.into();
    let source: Arc<dyn ByteSource> = Arc::new(bytes);
    let mut was_read = false;
    let mut watch = |_| {
        was_read = true;
        ControlFlow::Continue(())
    };
    let windows = Windows::open_files(vec![(String::new(), source)], store, &mut watch).unwrap();
    (windows, was_read)
}

/// A recording without checkpoints, and one that ends some events after the last of them.
fn recordings() -> [Vec<u8>; 2] {
    let whole = read_bytes(&recording(3, 12, true)).unwrap();
    [write_trace(Vec::new(), &whole).unwrap(), recording(3, 12, false)]
}

fn assert_equal(found: &Windows, expected: &Windows) {
    assert_eq!(found.summaries(), expected.summaries());
    assert_eq!(found.checkpoints(), expected.checkpoints());
    assert_eq!(found.base().trust, expected.base().trust);
    assert_eq!(found.main_device(), expected.main_device());
    let count = expected.events();
    for range in [0..count, count / 3..count / 2, count - 5..count] {
        let [found, expected] = [found, expected].map(|windows| windows.window(range.clone()).unwrap());
        assert_eq!(found.blocks.ids().count(), expected.blocks.ids().count());
        for id in expected.blocks.ids() {
            assert_eq!(found.blocks.get(id), expected.blocks.get(id), "{range:?}");
        }
        assert_eq!(found.start, expected.start);
    }
}

#[test]
fn a_recording_opens_alike_with_what_its_first_opening_computed_and_without_reading_its_events() {
    for bytes in recordings() {
        let store = Store::default();
        let (first, was_read) = open(&bytes, &store);
        assert!(was_read);
        let (second, was_read) = open(&bytes, &store);
        assert!(!was_read);
        assert_equal(&second, &first);
    }
}

#[test]
fn what_is_damaged_or_of_another_recording_is_computed_again_and_replaced() {
    let [bytes, ends_early] = recordings();
    let store = Store::default();
    let (expected, _) = open(&bytes, &store);
    let whole = store.load().unwrap();
    let other = Store::default();
    open(&ends_early, &other);
    let mut numbers = Numbers(5);
    let mut damaged: Vec<Vec<u8>> = vec![Vec::new(), b"no sections".to_vec(), other.load().unwrap()];
    for _ in 0..10 {
        damaged.push(whole[..numbers.below(whole.len() as u64) as usize].to_vec());
        let mut changed = whole.clone();
        changed[numbers.below(whole.len() as u64) as usize] ^= 1 << numbers.below(8);
        damaged.push(changed);
    }
    for saved in damaged {
        store.save(&saved);
        let (windows, was_read) = open(&bytes, &store);
        assert!(was_read);
        assert_equal(&windows, &expected);
        assert_eq!(store.load().as_ref(), Some(&whole));
    }
}
