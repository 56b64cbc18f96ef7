//! Reads the pickles written by the exporter with the semantics that PyTorch's viewer gives each opcode.

use std::fmt::Write as _;

use serde_json::{Map, Number, Value};

/// The value of a pickle, and a listing of its opcodes, one per line.
pub(super) struct Unpickled {
    pub(super) value: Value,
    pub(super) listing: String,
    /// The largest number of items added by one opcode.
    pub(super) largest_batch: usize,
}

/// Reads a pickle; panics at an opcode that PyTorch's viewer rejects.
pub(super) fn unpickle(bytes: &[u8]) -> Unpickled {
    let mut reader = Reader { bytes, at: 0 };
    let mut stack: Vec<Value> = Vec::new();
    let mut marks: Vec<usize> = Vec::new();
    let mut memo: std::collections::HashMap<u32, Value> = std::collections::HashMap::new();
    let mut listing = String::new();
    let mut largest_batch = 0;
    loop {
        let opcode = reader.byte();
        let what = match opcode {
            0x80 => format!("PROTO {}", reader.byte()),
            b'}' => push(&mut stack, Value::Object(Map::new()), "EMPTY_DICT".to_owned()),
            b']' => push(&mut stack, Value::Array(Vec::new()), "EMPTY_LIST".to_owned()),
            b'N' => push(&mut stack, Value::Null, "NONE".to_owned()),
            0x88 => push(&mut stack, true.into(), "NEWTRUE".to_owned()),
            0x89 => push(&mut stack, false.into(), "NEWFALSE".to_owned()),
            b'(' => {
                marks.push(stack.len());
                "MARK".to_owned()
            }
            b'u' | b'e' => {
                let items = stack.split_off(marks.pop().unwrap());
                largest_batch = largest_batch.max(items.len());
                match (opcode, stack.last_mut().unwrap()) {
                    (b'e', Value::Array(list)) => list.extend(items),
                    (b'u', Value::Object(dict)) => {
                        for pair in items.chunks(2) {
                            let former = dict.insert(pair[0].as_str().unwrap().to_owned(), pair[1].clone());
                            assert!(former.is_none(), "the key {} stands twice in a dict", pair[0]);
                        }
                    }
                    (_, other) => panic!("items for {other}"),
                }
                if opcode == b'e' { "APPENDS" } else { "SETITEMS" }.to_owned()
            }
            0x86 => {
                let pair = stack.split_off(stack.len() - 2);
                push(&mut stack, Value::Array(pair), "TUPLE2".to_owned())
            }
            b'K' => reader.number(&mut stack, "BININT1", 1),
            b'M' => reader.number(&mut stack, "BININT2", 2),
            b'J' => {
                let value = i32::from_le_bytes(reader.take(4).try_into().unwrap());
                push(&mut stack, value.into(), format!("BININT {value}"))
            }
            0x8a => {
                let length = usize::from(reader.byte());
                reader.number(&mut stack, "LONG1", length)
            }
            b'G' => {
                let value = f64::from_be_bytes(reader.take(8).try_into().unwrap());
                push(&mut stack, Number::from_f64(value).unwrap().into(), format!("BINFLOAT {value}"))
            }
            0x8c => {
                let length = usize::from(reader.byte());
                reader.text(&mut stack, "SHORT_BINUNICODE", length)
            }
            b'X' => {
                let length = reader.word();
                reader.text(&mut stack, "BINUNICODE", length as usize)
            }
            b'q' | b'r' => {
                let place = if opcode == b'q' { u32::from(reader.byte()) } else { reader.word() };
                assert!(memo.insert(place, stack.last().unwrap().clone()).is_none(), "place {place} is put twice");
                format!("{} {place}", if opcode == b'q' { "BINPUT" } else { "LONG_BINPUT" })
            }
            b'h' | b'j' => {
                let place = if opcode == b'h' { u32::from(reader.byte()) } else { reader.word() };
                let name = if opcode == b'h' { "BINGET" } else { "LONG_BINGET" };
                push(&mut stack, memo[&place].clone(), format!("{name} {place}"))
            }
            b'.' => break,
            other => panic!("opcode {other:#x} at byte {}", reader.at - 1),
        };
        let _ = writeln!(listing, "{}{what}", "  ".repeat(marks.len() - usize::from(what == "MARK")));
    }
    assert_eq!((reader.at, stack.len(), marks.len()), (bytes.len(), 1, 0));
    Unpickled { value: stack.remove(0), listing, largest_batch }
}

fn push(stack: &mut Vec<Value>, value: Value, what: String) -> String {
    stack.push(value);
    what
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, length: usize) -> &[u8] {
        self.at += length;
        &self.bytes[self.at - length..self.at]
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().unwrap())
    }

    /// Reads an integer. `LONG1` is signed, but only non-negative integers are accepted.
    fn number(&mut self, stack: &mut Vec<Value>, name: &str, length: usize) -> String {
        let value = self.take(length).iter().rev().fold(0_u128, |value, byte| value << 8 | u128::from(*byte));
        assert!(name != "LONG1" || self.bytes[self.at - 1] < 0x80, "a number below 0");
        push(stack, u64::try_from(value).unwrap().into(), format!("{name} {value}"))
    }

    fn text(&mut self, stack: &mut Vec<Value>, name: &str, length: usize) -> String {
        let text = std::str::from_utf8(self.take(length)).unwrap().to_owned();
        let shown = format!("{name} {text:?}");
        push(stack, text.into(), shown)
    }
}
