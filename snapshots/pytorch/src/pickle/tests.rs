//! Tests with pickles as Python and PyTorch write them, and with malformed ones.

use std::ops::ControlFlow;

use super::*;
use crate::Sequences;
use crate::raw::{Action, BlockState};
use highwater_snapshots::error::Error;

fn read(bytes: &[u8]) -> Result<RawSnapshot> {
    let whole = read_pickle(bytes, &mut |_| ControlFlow::Continue(()));
    let streamed = read_pickle_from(bytes, None, &mut |_| ControlFlow::Continue(()));
    assert_eq!(format!("{whole:?}"), format!("{streamed:?}"), "memory and stream read alike");
    whole
}

/// Builds a pickle from instructions.
#[derive(Clone, Default)]
struct Pickle(Vec<u8>);

impl Pickle {
    fn new() -> Self {
        Self(vec![opcode::PROTO, 4])
    }

    fn op(mut self, code: u8) -> Self {
        self.0.push(code);
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(self, text: &str) -> Self {
        self.op(opcode::SHORT_BINUNICODE).op(text.len() as u8).bytes(text.as_bytes())
    }

    fn int(self, number: i64) -> Self {
        self.op(opcode::LONG1).op(8).bytes(&number.to_le_bytes())
    }

    /// Appends a dict with string keys; each `value` appends the instructions for its value.
    fn dict(self, items: &[(&str, &dyn Fn(Self) -> Self)]) -> Self {
        let mut this = self.op(opcode::EMPTY_DICT).op(opcode::MARK);
        for (key, value) in items {
            this = value(this.text(key));
        }
        this.op(opcode::SETITEMS)
    }

    fn list(self, items: &[&dyn Fn(Self) -> Self]) -> Self {
        let mut this = self.op(opcode::EMPTY_LIST).op(opcode::MARK);
        for item in items {
            this = item(this);
        }
        this.op(opcode::APPENDS)
    }

    fn alloc(self, address: i64) -> Self {
        self.dict(&[
            ("action", &|p| p.text("alloc")),
            ("addr", &|p| p.int(address)),
            ("size", &|p| p.op(opcode::BININT2).bytes(&[0xe8, 0x03])),
            ("stream", &|p| p.op(opcode::BININT1).op(7)),
        ])
    }

    /// Returns a snapshot of one device with these events.
    fn snapshot(self, events: &[&dyn Fn(Self) -> Self]) -> Vec<u8> {
        let items: [(&str, &dyn Fn(Self) -> Self); 2] =
            [("segments", &|p| p.op(opcode::EMPTY_LIST)), ("device_traces", &|p| p.list(&[&|p: Self| p.list(events)]))];
        self.dict(&items).op(opcode::STOP).0
    }
}

#[test]
fn an_event_becomes_a_row_with_what_it_says() {
    let raw = read(&Pickle::new().snapshot(&[&|p| p.alloc(4096), &|p| p.alloc(8192)])).unwrap();
    let events = &raw.traces[0];
    assert_eq!(events.iter().map(|event| event.address).collect::<Vec<_>>(), [4096, 8192]);
    let first = events[0];
    assert_eq!((first.action, first.size, first.stream, first.stack), (Action::Alloc, 1000, 7, Sequences::NONE));
    assert_eq!(raw.problems, []);
}

#[test]
fn addresses_in_the_upper_half_and_numbers_that_fit_nowhere_are_distinguished() {
    let high = |p: Pickle| {
        p.dict(&[
            ("action", &|p| p.text("alloc")),
            ("addr", &|p| p.op(opcode::LONG1).op(9).bytes(&[0, 0, 0, 0, 0, 0, 0, 0xff, 0])),
            ("size", &|p| p.int(-5)),
        ])
    };
    let raw = read(&Pickle::new().snapshot(&[&high])).unwrap();
    assert_eq!((raw.traces[0][0].address, raw.traces[0][0].size), (0xff << 56, 0));
    assert!(raw.problems[0].what.contains("'size': expected a non-negative integer below 2^64"), "{:?}", raw.problems);
}

#[test]
fn a_container_may_be_memoised_after_it_was_filled() {
    // As PyTorch's C++ pickler does: BINPUT when the list is complete, then BINGET instead of a second copy.
    let frame = |p: Pickle| {
        p.dict(&[
            ("name", &|p| p.text("forward")),
            ("filename", &|p| p.text("model.py")),
            ("line", &|p| p.op(opcode::BININT1).op(3)),
        ])
    };
    let first = |p: Pickle| {
        p.dict(&[("action", &|p| p.text("alloc")), ("frames", &|p| p.list(&[&frame, &frame]).op(opcode::BINPUT).op(9))])
    };
    let second =
        |p: Pickle| p.dict(&[("action", &|p| p.text("free_requested")), ("frames", &|p| p.op(opcode::BINGET).op(9))]);
    let raw = read(&Pickle::new().snapshot(&[&first, &second])).unwrap();
    assert_eq!((raw.frames.len(), raw.stacks.get(1)), (1, &[0, 0][..]));
    assert_eq!(raw.traces[0].iter().map(|event| event.stack).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn the_same_lookups_are_the_same_stack_unless_the_memo_has_changed() {
    let frame = |p: Pickle, name: &str, number: u8| {
        let items: [(&str, &dyn Fn(Pickle) -> Pickle); 2] =
            [("name", &|p| p.text(name)), ("filename", &|p| p.text("a.py"))];
        p.dict(&items).op(opcode::BINPUT).op(number)
    };
    let event = |p: Pickle| {
        let frames = |p: Pickle| {
            let p = p.op(opcode::EMPTY_LIST).op(opcode::MARK).op(opcode::BINGET).op(1);
            p.op(opcode::BINGET).op(2).op(opcode::APPENDS)
        };
        p.dict(&[("action", &|p| p.text("alloc")), ("frames", &frames)])
    };
    let before = |p: Pickle| event(frame(frame(p, "inner", 1), "outer", 2).op(opcode::POP).op(opcode::POP));
    let after = |p: Pickle| event(frame(p, "another", 2).op(opcode::POP));
    let raw = read(&Pickle::new().snapshot(&[&before, &event, &after, &event])).unwrap();
    let stacks: Vec<u32> = raw.traces[0].iter().map(|event| event.stack).collect();
    assert_eq!(stacks, [1, 1, 2, 2]);
    assert_eq!(raw.stacks.get(2), [0, 2], "the outer frame is another now");
}

#[test]
fn a_stack_that_comes_in_two_batches_is_one_stack() {
    let frame = |p: Pickle| p.dict(&[("name", &|p| p.text("f")), ("filename", &|p| p.text("a.py"))]);
    let event = |p: Pickle| {
        p.dict(&[
            ("action", &|p| p.text("alloc")),
            ("frames", &|p| {
                let two = p.list(&[&frame, &frame]).op(opcode::MARK);
                frame(two).op(opcode::APPENDS)
            }),
        ])
    };
    let raw = read(&Pickle::new().snapshot(&[&event])).unwrap();
    assert_eq!(raw.stacks.get(raw.traces[0][0].stack), [0, 0, 0]);
}

#[test]
fn a_dict_that_is_filled_key_by_key_is_an_event_too() {
    let event = |p: Pickle| {
        let p = p.op(opcode::EMPTY_DICT).text("action").text("free_completed").op(opcode::SETITEM);
        p.text("addr").int(512).op(opcode::SETITEM)
    };
    let raw = read(&Pickle::new().snapshot(&[&|p| p.alloc(512), &event])).unwrap();
    let actions: Vec<Action> = raw.traces[0].iter().map(|event| event.action).collect();
    assert_eq!(actions, [Action::Alloc, Action::FreeCompleted]);
}

#[test]
fn segments_have_their_blocks_and_old_ones_their_history() {
    let tenant = |p: Pickle| p.dict(&[("real_size", &|p| p.int(700)), ("addr", &|p| p.int(0))]);
    let block = |p: Pickle| {
        p.dict(&[
            ("size", &|p| p.int(1024)),
            ("state", &|p| p.text("active_pending_free")),
            ("history", &|p| p.list(&[&tenant])),
        ])
    };
    let segment = |p: Pickle| {
        p.dict(&[
            ("address", &|p| p.int(2048)),
            ("total_size", &|p| p.int(2048)),
            ("segment_type", &|p| p.text("small")),
            ("segment_pool_id", &|p| p.int(1).int(0).op(opcode::TUPLE2)),
            ("blocks", &|p| p.list(&[&block, &block])),
        ])
    };
    let raw = read(&Pickle::new().list(&[&segment]).op(opcode::STOP).0).unwrap();
    assert_eq!((raw.segments[0].pool_id, raw.segments[0].is_small), ((1, 0), true));
    let blocks: Vec<(u64, u64)> = raw.blocks.iter().map(|block| (block.address, block.requested_size)).collect();
    assert_eq!((blocks, raw.blocks[1].state), (vec![(2048, 700), (3072, 700)], BlockState::PendingFree));
}

#[test]
fn settings_within_settings_have_a_path() {
    let inner = |p: Pickle| p.dict(&[("64", &|p| p.int(8)), ("128", &|p| p.int(4))]);
    let settings = |p: Pickle| {
        p.dict(&[("expandable_segments", &|p| p.op(opcode::NEWTRUE)), ("roundup_power2_divisions", &inner)])
    };
    let items: [(&str, &dyn Fn(Pickle) -> Pickle); 2] =
        [("allocator_settings", &settings), ("segments", &|p| p.op(opcode::EMPTY_LIST))];
    let raw = read(&Pickle::new().dict(&items).op(opcode::STOP).0).unwrap();
    let settings: Vec<(&str, &str)> =
        raw.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let expected =
        [("expandable_segments", "True"), ("roundup_power2_divisions.64", "8"), ("roundup_power2_divisions.128", "4")];
    assert_eq!(settings, expected);
}

#[test]
fn instructions_that_call_are_refused_by_name_and_place() {
    let os_system = Pickle::new().op(b'c').bytes(b"os\nsystem\n").text("true").op(opcode::TUPLE1).op(b'R');
    match read(&os_system.op(opcode::STOP).0) {
        Err(error @ Error::Refused { offset: 2, .. }) => {
            assert!(error.to_string().contains("the instruction GLOBAL would import"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    for code in 0..=u8::MAX {
        if let Some((name, _)) = opcode::refusal(code) {
            let error = read(&Pickle::new().op(code).op(opcode::STOP).0).unwrap_err();
            assert!(matches!(&error, Error::Refused { what, .. } if what.contains(name)), "{error}");
        }
    }
}

#[test]
fn unknown_keys_and_actions_are_counted_and_the_rest_is_read() {
    let event = |p: Pickle| {
        p.dict(&[("action", &|p| p.text("teleport")), ("warp", &|p| p.op(opcode::NONE)), ("addr", &|p| p.int(1))])
    };
    let raw = read(&Pickle::new().snapshot(&[&event, &event])).unwrap();
    assert_eq!((raw.traces[0].len(), raw.traces[0][0].action), (2, Action::Unknown));
    let texts: Vec<&str> = raw.problems.iter().map(|problem| problem.what.as_str()).collect();
    assert!(texts.iter().any(|text| text.starts_with("2 times: unexpected key 'warp' in events")), "{texts:?}");
    assert!(texts.iter().any(|text| text.starts_with("2 times: unknown action 'teleport'")), "{texts:?}");
}

#[test]
fn what_is_no_snapshot_is_stated_to_be_none() {
    let error = read(&Pickle::new().dict(&[("lr", &|p| p.int(1))]).op(opcode::STOP).0).unwrap_err().to_string();
    assert!(error.contains("a pickled dict with the keys 'lr'"), "{error}");
    let error = read(&[opcode::PROTO, 6]).unwrap_err().to_string();
    assert!(error.contains("protocol 6"), "{error}");
    let error = read(&Pickle::new().op(0xff).0).unwrap_err().to_string();
    assert!(error.contains("0xff is not a pickle opcode"), "{error}");
}

#[test]
fn reading_can_be_called_off() {
    let many: Vec<&dyn Fn(Pickle) -> Pickle> = vec![&|p| p.alloc(1); 9000];
    let bytes = Pickle::new().snapshot(&many);
    let outcome = read_pickle(&bytes, &mut |_| ControlFlow::Break(()));
    assert!(matches!(outcome, Err(Error::Cancelled)), "{outcome:?}");
}

#[test]
fn lists_that_are_shared_or_changed_where_no_snapshot_does_cost_nothing_twice() {
    let trace = |p: Pickle| p.list(&[&|p: Pickle| p.alloc(1)]).op(opcode::MEMOIZE);
    let again = |p: Pickle| p.op(opcode::BINGET).op(0);
    let bytes = Pickle::new().dict(&[("device_traces", &|p| p.list(&[&trace, &again]))]).op(opcode::STOP).0;
    let raw = read(&bytes).unwrap();
    assert_eq!(raw.traces.iter().map(Vec::len).sum::<usize>(), 1);
    assert!(raw.problems[0].what.contains("two devices share one list"), "{:?}", raw.problems);

    let frame = |p: Pickle| p.dict(&[("name", &|p| p.text("f")), ("filename", &|p| p.text("a.py"))]);
    let used =
        |p: Pickle| p.dict(&[("action", &|p| p.text("alloc")), ("frames", &|p| p.list(&[&frame]).op(opcode::MEMOIZE))]);
    let p = frame(used(Pickle::new()).op(opcode::BINGET).op(0).op(opcode::MARK)).op(opcode::APPENDS);
    let error = read(&p.op(opcode::STOP).0).unwrap_err().to_string();
    assert!(error.contains("changes after it was complete"), "{error}");
}

#[test]
fn claims_of_length_depth_and_number_take_no_memory() {
    let huge = Pickle::new().op(opcode::BINUNICODE8).bytes(&u64::MAX.to_le_bytes()).0;
    assert!(matches!(read(&huge), Err(Error::Damaged { offset: 2, .. })));
    let far = Pickle::new().op(opcode::NONE).op(opcode::LONG_BINPUT).bytes(&[0xff; 4]).op(opcode::STOP).0;
    assert!(read(&far).unwrap_err().to_string().contains("invalid memo index 4294967295"));
    let deep =
        Pickle([&[opcode::PROTO, 4][..], &[opcode::EMPTY_LIST; 100_000], &[opcode::APPEND; 99_999], b"."].concat());
    assert!(read(&deep.0).unwrap_err().to_string().contains("pickled list of other values"));
    let marks = Pickle([&[opcode::PROTO, 4][..], &[opcode::MARK; 100_000], &[opcode::POP_MARK; 100_001]].concat());
    assert!(matches!(read(&marks.0), Err(Error::Damaged { .. })));
}

#[test]
fn cut_anywhere_or_with_any_bit_flipped_nothing_panics() {
    let frame = |p: Pickle| p.dict(&[("name", &|p| p.text("f")), ("filename", &|p| p.text("a.py"))]);
    let event = |p: Pickle| {
        p.dict(&[
            ("action", &|p| p.text("free_requested")),
            ("pool_id", &|p| p.int(0).int(1).op(opcode::TUPLE2).op(opcode::MEMOIZE)),
            ("frames", &|p| p.list(&[&frame, &frame]).op(opcode::MEMOIZE)),
            ("forward_frames", &|p| p.list(&[&|p: Pickle| p.text("File x")])),
        ])
    };
    let bytes = Pickle::new().snapshot(&[&|p| p.alloc(64), &event, &event]);
    let whole = read(&bytes).unwrap();
    assert_eq!((whole.traces[0].len(), whole.extras[1].pool_id), (3, (0, 1)));
    for end in 0..bytes.len() {
        assert!(read(&bytes[..end]).is_err(), "cut after {end} bytes");
    }
    for place in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[place / 8] ^= 1 << (place % 8);
        if let Ok(raw) = read(&bytes) {
            assert!(raw.traces.iter().map(Vec::len).sum::<usize>() <= 3);
        }
    }
}
