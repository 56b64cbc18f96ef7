//! Tests that decoding ahead gives what executing every instruction gives, on generated pickles.

use std::collections::HashMap;
use std::ops::ControlFlow;

use proptest::prelude::*;

use super::ahead::Division;
use super::*;

/// What one reading of a pickle gave, as text.
fn text_of(read: &Result<RawSnapshot>) -> String {
    match read {
        Ok(raw) => format!("{raw:?}"),
        Err(error) => format!("{error:?}"),
    }
}

/// Reads `bytes` in portions of several sizes and instruction by instruction, which must give the same.
fn read_alike(bytes: &[u8], note: &str) -> Result<RawSnapshot> {
    let expected = read_pickle_from(bytes, Some(bytes.len() as u64), &mut |_| ControlFlow::Continue(()));
    for (portion, portions, look) in [(300, 3, 1), (1500, 2, 40), (8 << 10, 4, 7)] {
        let division = Division { portion, portions };
        let read = read_divided(bytes, division, look, &mut |_| ControlFlow::Continue(()));
        assert!(text_of(&read) == text_of(&expected), "{note}: portions of {portion}\n{read:?}\n{expected:?}");
    }
    expected
}

/// How a pickle is written.
#[derive(Clone, Copy, Debug)]
struct Style {
    protocol: u8,
    /// Whether values are stored in the memo.
    is_memoized: bool,
    batch: usize,
    /// Whether some events are in a list twice.
    has_repeats: bool,
    seed: u64,
}

/// Writes pickles as CPython does, with what its values refer to chosen at random.
struct Writer {
    style: Style,
    bytes: Vec<u8>,
    memo: u32,
    texts: HashMap<String, u32>,
    /// Numbers of frames, of lists of frames, of pairs, and of events.
    frames: Vec<u32>,
    lists: Vec<u32>,
    pairs: Vec<u32>,
    events: Vec<u32>,
    random: u64,
}

impl Writer {
    fn new(style: Style) -> Self {
        Self {
            style,
            bytes: vec![opcode::PROTO, style.protocol],
            memo: 0,
            texts: HashMap::new(),
            frames: Vec::new(),
            lists: Vec::new(),
            pairs: Vec::new(),
            events: Vec::new(),
            random: style.seed,
        }
    }

    /// Returns a number below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % end
    }

    fn one_of(&mut self, numbers: &[u32]) -> Option<u32> {
        // Mostly one of the latest.
        let recent = self.below(4) > 0;
        let few = if recent { numbers.len().min(3) } else { numbers.len() };
        (few > 0).then(|| numbers[numbers.len() - 1 - self.below(few)])
    }

    fn op(&mut self, code: u8) {
        self.bytes.push(code);
    }

    /// Begins a frame of the file now and then, which may be anywhere between two values.
    fn frame_start(&mut self) {
        if self.style.protocol >= 4 && self.below(25) == 0 {
            self.op(opcode::FRAME);
            self.bytes.extend([b'u', b'}', opcode::MEMOIZE, b'(', b'h', 0, 0, 0]);
        }
    }

    fn store(&mut self) -> Option<u32> {
        if !self.style.is_memoized {
            return None;
        }
        let number = self.memo;
        self.memo += 1;
        match (self.style.protocol, u8::try_from(number)) {
            (4.., _) => self.op(opcode::MEMOIZE),
            (_, Ok(number)) => self.bytes.extend([opcode::BINPUT, number]),
            (_, Err(_)) => {
                self.op(opcode::LONG_BINPUT);
                self.bytes.extend(number.to_le_bytes());
            }
        }
        Some(number)
    }

    fn get(&mut self, number: u32) {
        self.frame_start();
        match u8::try_from(number) {
            Ok(number) => self.bytes.extend([opcode::BINGET, number]),
            Err(_) => {
                self.op(opcode::LONG_BINGET);
                self.bytes.extend(number.to_le_bytes());
            }
        }
    }

    fn new_text(&mut self, text: &str) -> Option<u32> {
        self.frame_start();
        if self.style.protocol >= 4 {
            self.bytes.extend([opcode::SHORT_BINUNICODE, text.len() as u8]);
        } else {
            self.op(opcode::BINUNICODE);
            self.bytes.extend((text.len() as u32).to_le_bytes());
        }
        self.bytes.extend(text.as_bytes());
        self.store()
    }

    /// Writes a string that is one object wherever it is.
    fn text(&mut self, text: &str) {
        match self.texts.get(text).copied() {
            Some(number) => self.get(number),
            None => {
                let number = self.new_text(text);
                self.texts.extend(number.map(|number| (text.to_owned(), number)));
            }
        }
    }

    fn int(&mut self, number: u64) {
        self.frame_start();
        match number {
            0..=0xff => self.bytes.extend([opcode::BININT1, number as u8]),
            0x100..=0xffff => self.bytes.extend([opcode::BININT2, number as u8, (number >> 8) as u8]),
            _ => {
                let length = 9 - (number.leading_zeros() as usize).saturating_sub(1) / 8;
                self.bytes.extend([opcode::LONG1, length as u8]);
                self.bytes.extend(&u128::from(number).to_le_bytes()[..length]);
            }
        }
    }

    fn begin(&mut self, code: u8) -> Option<u32> {
        self.frame_start();
        self.op(code);
        self.store()
    }

    fn frame(&mut self) {
        if let Some(number) = self.one_of(&self.frames.clone())
            && self.below(20) > 0
        {
            return self.get(number);
        }
        let number = self.begin(opcode::EMPTY_DICT);
        self.op(opcode::MARK);
        self.text("name");
        let name = format!("f{}", self.below(9));
        self.text(&name);
        self.text("filename");
        self.text("model.py");
        self.text("line");
        let line = self.below(300) as u64;
        self.int(line);
        self.op(opcode::SETITEMS);
        self.frames.extend(number);
    }

    fn frame_list(&mut self) {
        if let Some(number) = self.one_of(&self.lists.clone())
            && self.below(2) == 0
        {
            return self.get(number);
        }
        if self.below(40) == 0 {
            return self.op(opcode::NONE);
        }
        let number = self.begin(opcode::EMPTY_LIST);
        match self.below(6) {
            0 => {}
            1 => {
                self.frame();
                self.op(opcode::APPEND);
            }
            count => {
                self.op(opcode::MARK);
                for _ in 0..count {
                    self.frame();
                }
                self.op(opcode::APPENDS);
            }
        }
        self.lists.extend(number);
    }

    fn pair(&mut self) {
        if let Some(number) = self.one_of(&self.pairs.clone())
            && self.below(3) == 0
        {
            return self.get(number);
        }
        let first = self.below(3) as u64;
        self.int(first);
        self.int(0);
        self.op(opcode::TUPLE2);
        let number = self.store();
        self.pairs.extend(number);
    }

    fn event(&mut self, time: u64) {
        if let Some(number) = self.one_of(&self.events.clone())
            && self.style.has_repeats
            && self.below(150) == 0
        {
            return self.get(number);
        }
        let number = self.begin(opcode::EMPTY_DICT);
        self.op(opcode::MARK);
        self.text("action");
        let actions = ["alloc", "free_requested", "free_completed", "alloc", "segment_alloc", "snapshot", "teleport"];
        let action = if self.below(8) > 0 { self.below(3) } else { self.below(actions.len()) };
        self.text(actions[action]);
        self.text("addr");
        let address = [0x7f00_0000_0000, u64::MAX - 4096, 512][if self.below(9) > 0 { 0 } else { self.below(3) }];
        let address = address + 512 * self.below(8) as u64;
        self.int(address);
        self.text("size");
        let size = 1 << self.below(24);
        self.int(size);
        self.text("stream");
        self.int(0);
        self.text("time_us");
        self.int(time);
        if self.below(3) > 0 {
            self.text("compile_context");
            self.new_text("N/A");
            self.text("user_metadata");
            let metadata = ["", "{\"step\":3}", "forward"][self.below(3)];
            self.text(metadata);
            self.text("pool_id");
            self.pair();
        }
        if self.below(30) == 0 {
            self.text("forward_frames");
            self.begin(opcode::EMPTY_LIST);
            self.op(opcode::MARK);
            self.text("File a.py");
            self.text("File b.py");
            self.op(opcode::APPENDS);
        }
        if self.below(10) > 0 {
            self.text("frames");
            self.frame_list();
        }
        self.op(opcode::SETITEMS);
        self.events.extend(number);
    }

    fn events(&mut self, count: usize) {
        self.begin(opcode::EMPTY_LIST);
        for first in (0..count).step_by(self.style.batch) {
            self.op(opcode::MARK);
            for event in first..count.min(first + self.style.batch) {
                self.event(1_700_000_000_000_000 + event as u64);
            }
            self.op(opcode::APPENDS);
        }
    }

    /// Returns a snapshot with one device for each number of events.
    fn snapshot(mut self, devices: &[usize]) -> Vec<u8> {
        self.begin(opcode::EMPTY_DICT);
        self.op(opcode::MARK);
        self.text("segments");
        self.begin(opcode::EMPTY_LIST);
        self.text("device_traces");
        self.begin(opcode::EMPTY_LIST);
        self.op(opcode::MARK);
        for &events in devices {
            self.events(events);
        }
        self.bytes.extend([opcode::APPENDS, opcode::SETITEMS, opcode::STOP]);
        self.bytes
    }
}

fn styles() -> impl Strategy<Value = Style> {
    let batch = prop_oneof![Just(1000), Just(16), Just(5)];
    (2..=5_u8, 0..8_u8, batch, any::<bool>(), any::<u64>()).prop_map(|(protocol, memo, batch, has_repeats, seed)| {
        Style { protocol, is_memoized: memo > 0, batch, has_repeats, seed }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn events_decoded_ahead_are_those_of_the_machine(style in styles(), devices in prop::collection::vec(1..600_usize, 1..4)) {
        let bytes = Writer::new(style).snapshot(&devices);
        let raw = read_alike(&bytes, "whole").unwrap();
        prop_assert_eq!(raw.traces.iter().map(Vec::len).collect::<Vec<_>>(), devices);
    }

    #[test]
    fn cut_or_changed_anywhere_decoding_ahead_ends_as_the_machine_does(
        style in styles(),
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 40),
    ) {
        let bytes = Writer::new(style).snapshot(&[60, 70]);
        for (place, change) in places {
            let place = place.index(bytes.len());
            let _ = read_alike(&bytes[..place], "cut");
            let mut changed = bytes.clone();
            changed[place] ^= change;
            let _ = read_alike(&changed, "changed");
        }
    }
}

#[test]
fn most_events_are_decoded_ahead() {
    for protocol in 2..=5 {
        let style = Style { protocol, is_memoized: true, batch: 1000, has_repeats: false, seed: 1 };
        let bytes = Writer::new(style).snapshot(&[5000]);
        let mut machine = Machine::new(InMemory::new(&bytes));
        let mut ahead = ParallelDecoder::new(&bytes, Division { portion: 2000, portions: 4 });
        let mut executed = 0;
        while let Next::Executed(code) = machine.next().unwrap() {
            executed += usize::from(code == opcode::SETITEMS);
            if code == opcode::SETITEMS {
                ahead.run(&mut machine, &mut |_| Ok(())).unwrap();
            }
        }
        assert_eq!(machine.store.events.len(), 5000);
        assert!(executed < 1000, "protocol {protocol}: the machine itself executed {executed} events and frames");
    }
}

#[test]
fn a_number_that_is_stored_twice_ends_decoding_ahead() {
    let style = Style { protocol: 4, is_memoized: true, batch: 1000, has_repeats: false, seed: 3 };
    let bytes = Writer::new(style).snapshot(&[400]);
    let half = bytes.len() / 2;
    let middle =
        half + bytes[half..].windows(2).position(|pair| pair == [opcode::SETITEMS, opcode::EMPTY_DICT]).unwrap();
    // The name of an action becomes that of another.
    let again = [opcode::SHORT_BINUNICODE, 5, b'a', b'l', b'l', b'o', b'c', opcode::BINPUT, 9, opcode::POP];
    let changed = [&bytes[..=middle], &again, &bytes[middle + 1..]].concat();
    let _ = read_alike(&changed, "stored twice");
}

#[test]
fn an_event_that_another_device_repeats_is_lost_on_neither() {
    let style = Style { protocol: 2, is_memoized: true, batch: 1000, has_repeats: true, seed: 717860142157279191 };
    let bytes = Writer::new(style).snapshot(&[150, 263, 1]);
    let raw = read_alike(&bytes, "whole").unwrap();
    assert_eq!(raw.traces.iter().map(Vec::len).collect::<Vec<_>>(), [150, 263, 1]);
}
