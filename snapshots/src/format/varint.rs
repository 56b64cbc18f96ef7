//! LEB128 numbers, zig-zag encoded if signed, and a bounds-checked cursor that decodes them.

/// Appends `value` in unsigned LEB128: seven bits per byte, lowest first, with the top bit set in all except the last.
#[inline]
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends `value` in zig-zag code, in which 0, -1, 1, -2, 2 … become 0, 1, 2, 3, 4 …
#[inline]
pub(super) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, zigzag(value));
}

#[inline]
pub(super) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[inline]
pub(super) fn unzigzag(code: u64) -> i64 {
    (code >> 1) as i64 ^ -((code & 1) as i64)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    /// The next `count` bytes; `None` if there are fewer.
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// The next two bytes as a little-endian number.
    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_le_bytes(bytes.try_into().expect("fewer than two bytes")))
    }

    /// The next four bytes as a little-endian number.
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("fewer than four bytes")))
    }

    /// The next eight bytes as a little-endian number.
    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("fewer than eight bytes")))
    }

    /// The next LEB128 number; `None` if it is truncated or has more than 64 bits.
    #[inline]
    pub(super) fn leb(&mut self) -> Option<u64> {
        let first = self.byte()?;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// The next zig-zag coded number.
    #[inline]
    pub(super) fn signed(&mut self) -> Option<i64> {
        self.leb().map(unzigzag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_every_edge_read_back() {
        let edges = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit]).chain([u64::MAX]);
        for value in edges {
            let mut out = Vec::new();
            put(&mut out, value);
            put_signed(&mut out, value as i64);
            let mut cursor = Cursor::new(&out);
            assert_eq!(cursor.leb(), Some(value));
            assert_eq!(cursor.signed(), Some(value as i64));
            assert_eq!(cursor.left(), 0);
        }
    }

    #[test]
    fn numbers_that_are_cut_or_too_long_are_refused() {
        assert_eq!(Cursor::new(&[]).leb(), None);
        assert_eq!(Cursor::new(&[0x80, 0x80]).leb(), None);
        assert_eq!(Cursor::new(&[0xff; 9]).leb(), None);
        let mut too_large = [0xff; 10];
        too_large[9] = 0x02;
        assert_eq!(Cursor::new(&too_large).leb(), None);
        too_large[9] = 0x01;
        assert_eq!(Cursor::new(&too_large).leb(), Some(u64::MAX));
        assert_eq!(Cursor::new(&[1, 2, 3]).u32(), None);
    }
}
