//! The opcodes of Python's pickle format, protocols 2 to 5: those that only build values, and the reasons that the
//! others are rejected.
//!
//! See the module `pickletools` of CPython 3.14, which documents each opcode.

macro_rules! opcodes {
    ($($name:ident = $code:literal;)+) => {
        $(pub(super) const $name: u8 = $code;)+

        pub(super) fn name(code: u8) -> Option<&'static str> {
            match code { $($code => Some(stringify!($name)),)+ _ => None }
        }
    };
}

opcodes! {
    PROTO = 0x80;
    FRAME = 0x95;
    STOP = b'.';
    MARK = b'(';
    POP = b'0';
    POP_MARK = b'1';
    DUP = b'2';
    NONE = b'N';
    NEWTRUE = 0x88;
    NEWFALSE = 0x89;
    BININT = b'J';
    BININT1 = b'K';
    BININT2 = b'M';
    LONG1 = 0x8a;
    LONG4 = 0x8b;
    BINFLOAT = b'G';
    BINSTRING = b'T';
    SHORT_BINSTRING = b'U';
    BINUNICODE = b'X';
    SHORT_BINUNICODE = 0x8c;
    BINUNICODE8 = 0x8d;
    BINBYTES = b'B';
    SHORT_BINBYTES = b'C';
    BINBYTES8 = 0x8e;
    BYTEARRAY8 = 0x96;
    EMPTY_LIST = b']';
    LIST = b'l';
    APPEND = b'a';
    APPENDS = b'e';
    EMPTY_TUPLE = b')';
    TUPLE = b't';
    TUPLE1 = 0x85;
    TUPLE2 = 0x86;
    TUPLE3 = 0x87;
    EMPTY_DICT = b'}';
    DICT = b'd';
    SETITEM = b's';
    SETITEMS = b'u';
    EMPTY_SET = 0x8f;
    ADDITEMS = 0x90;
    FROZENSET = 0x91;
    BINPUT = b'q';
    LONG_BINPUT = b'r';
    MEMOIZE = 0x94;
    BINGET = b'h';
    LONG_BINGET = b'j';
}

/// Returns the reason that an opcode is rejected, as its name and effect, or `None` for a byte that is not an opcode.
pub(super) fn refusal(code: u8) -> Option<(&'static str, &'static str)> {
    const CALLS: &str = "would run code in the file";
    const NAMES: &str = "would import code that the file names";
    const OUTSIDE: &str = "loads an object from outside the file";
    const OLD: &str = "belongs to pickle protocols 0 and 1, which PyTorch does not write";
    Some(match code {
        b'c' => ("GLOBAL", NAMES),
        0x93 => ("STACK_GLOBAL", NAMES),
        b'R' => ("REDUCE", CALLS),
        b'b' => ("BUILD", CALLS),
        b'i' => ("INST", CALLS),
        b'o' => ("OBJ", CALLS),
        0x81 => ("NEWOBJ", CALLS),
        0x92 => ("NEWOBJ_EX", CALLS),
        0x82 => ("EXT1", NAMES),
        0x83 => ("EXT2", NAMES),
        0x84 => ("EXT4", NAMES),
        b'P' => ("PERSID", OUTSIDE),
        b'Q' => ("BINPERSID", OUTSIDE),
        0x97 => ("NEXT_BUFFER", OUTSIDE),
        0x98 => ("READONLY_BUFFER", OUTSIDE),
        b'F' => ("FLOAT", OLD),
        b'I' => ("INT", OLD),
        b'L' => ("LONG", OLD),
        b'S' => ("STRING", OLD),
        b'V' => ("UNICODE", OLD),
        b'g' => ("GET", OLD),
        b'p' => ("PUT", OLD),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opcode_is_understood_or_refused_and_never_both() {
        let understood = (0..=u8::MAX).filter(|&code| name(code).is_some()).count();
        let refused = (0..=u8::MAX).filter(|&code| refusal(code).is_some()).count();
        assert_eq!((understood, refused), (46, 22), "CPython's pickletools knows 68 opcodes");
        assert!((0..=u8::MAX).all(|code| name(code).is_none() || refusal(code).is_none()));
        assert_eq!(name(STOP), Some("STOP"));
    }
}
