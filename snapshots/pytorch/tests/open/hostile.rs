//! Tests that a file with cut or changed bytes is either opened or rejected with an error.

use highwater_pytorch::open::open_bytes;
use serde_json::{Value, json};

use crate::made::{go, gzip, page, pickle, snapshot};

/// A snapshot that is small enough to be broken in every way.
fn small() -> Value {
    json!({
        "segments": [{"device": 0, "address": 4096, "total_size": 512, "segment_pool_id": [0, 1], "blocks": [
            {"address": 4096, "size": 512, "state": "active_allocated",
             "frames": [{"name": "f", "filename": "a.py", "line": 3}]}]}],
        "device_traces": [[
            {"action": "alloc", "addr": 4096, "size": 500, "pool_id": [0, 0], "frames": []},
            {"action": "free_requested", "addr": 4096, "size": 500},
            {"action": "free_completed", "addr": 4096, "size": 500}]],
        "allocator_settings": {"a": {"b": 1.5}},
    })
}

/// Opens `bytes` cut at every byte and with every bit changed.
fn break_everywhere(bytes: &[u8]) {
    let whole = open_bytes(bytes, &mut go).unwrap().trace.events.len();
    for length in 0..bytes.len() {
        if let Ok(opened) = open_bytes(&bytes[..length], &mut go) {
            assert!(opened.trace.events.len() <= whole, "cut at {length}");
        }
    }
    let mut changed = bytes.to_vec();
    for bit in 0..bytes.len() * 8 {
        changed[bit / 8] ^= 1 << (bit % 8);
        if let Ok(opened) = open_bytes(&changed, &mut go) {
            assert!(opened.trace.events.len() <= whole, "changed at bit {bit}");
        }
        changed[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn json_that_is_cut_is_refused_and_json_that_was_changed_gives_no_more_events() {
    let text = small().to_string();
    break_everywhere(text.as_bytes());
    for length in 1..text.len() {
        let error = open_bytes(&text.as_bytes()[..length], &mut go).unwrap_err().to_string();
        assert!(error.contains("the JSON text ends early"), "cut at {length}: {error}");
        assert!(
            error.contains(&format!("at byte {length}")) || error.contains(&format!("at byte {}", length - 1)),
            "{error}"
        );
    }
}

#[test]
fn pickles_that_are_cut_are_refused_and_pickles_that_were_changed_give_no_more_events() {
    for protocol in [2, 4] {
        let bytes = pickle(&small(), protocol);
        break_everywhere(&bytes);
        for length in 1..bytes.len() {
            assert!(open_bytes(&bytes[..length], &mut go).is_err(), "protocol {protocol} cut at {length}");
        }
    }
}

#[test]
fn pages_that_are_cut_or_changed_give_no_more_events() {
    break_everywhere(page(&[("a", &pickle(&small(), 4))]).as_bytes());
}

#[test]
fn gzip_files_that_are_cut_or_changed_give_no_more_events() {
    break_everywhere(&gzip(small().to_string().as_bytes()));
    break_everywhere(&gzip(&pickle(&small(), 4)));
}

#[test]
fn bytes_in_any_order_are_no_danger() {
    let mut state = 1_u64;
    let mut next = |most: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % most
    };
    let text = snapshot().to_string().into_bytes();
    for _ in 0..2000 {
        let mut bytes = text.clone();
        for _ in 0..=next(4) {
            let (from, to) = (next(bytes.len()), next(bytes.len()));
            let length = next(40).min(bytes.len() - from);
            let part: Vec<u8> = bytes.drain(from..from + length).collect();
            let to = to.min(bytes.len());
            bytes.splice(to..to, part);
        }
        let _ = open_bytes(&bytes, &mut go);
    }
}
