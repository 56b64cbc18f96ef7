//! Tests that a recording read piece by piece always gives the same trace as reading the file up to that point.

use highwater_snapshots::format::{Follower, read_bytes};

use crate::made::write_step;
use crate::strange::whole;

#[test]
fn pieces_of_any_size_give_the_same_trace_as_the_whole_file() {
    let bytes = write_step(true);
    let expected = read_bytes(&bytes).unwrap();
    for size in [1, 7, 100, bytes.len()] {
        let mut follower = Follower::new();
        let mut events = 0;
        for piece in bytes.chunks(size) {
            assert!(follower.bytes_fed() > bytes.len() as u64 / 2 || !follower.is_finished());
            events += follower.feed(piece).unwrap();
            assert_eq!(follower.events(), events);
        }
        assert!(follower.is_finished());
        assert_eq!(follower.bytes_fed(), bytes.len() as u64);
        assert_eq!(whole(&follower.trace()), whole(&expected), "pieces of {size} bytes");
    }
}

#[test]
fn a_running_recording_shows_what_is_complete_and_says_that_it_is_unfinished() {
    let bytes = write_step(false);
    let mut follower = Follower::new();
    for (at, byte) in bytes.iter().enumerate() {
        follower.feed(&[*byte]).unwrap();
        if at > 16 && at % 97 == 0 {
            let so_far = read_bytes(&bytes[..=at]).unwrap();
            let trace = follower.trace();
            assert_eq!(trace.events.len(), so_far.events.len());
            assert!(trace.trust.unfinished);
        }
    }
    assert_eq!(whole(&follower.trace()), whole(&read_bytes(&bytes).unwrap()));
}

#[test]
fn damage_in_the_middle_is_passed_over_while_following_and_named_at_its_place() {
    let mut bytes = write_step(true);
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    let mut follower = Follower::new();
    for piece in bytes.chunks(1000) {
        follower.feed(piece).unwrap();
    }
    assert_eq!(whole(&follower.trace()), whole(&read_bytes(&bytes).unwrap()));
}

#[test]
fn following_something_else_is_an_error_at_once() {
    assert!(Follower::new().feed(b"{\"segments\": [], \"device_traces\": []}").is_err());
}
