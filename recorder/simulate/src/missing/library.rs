//! Writes a shared library as an ELF file without sections. Each function calls a common one with its own index.

/// Name of the variable that contains the address of the common function.
pub(super) const SLOT: &str = "highwater_simulate_slot";

/// Alignment of segments, the largest page size of x86-64 and AArch64 Linux.
const PAGE: u64 = 1 << 16;
const HEADER_BYTES: u64 = 64;
const SEGMENT_BYTES: u64 = 56;
const SYMBOL_BYTES: u64 = 24;
const STUB_BYTES: u64 = 16;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

// Constants of the ELF specification.
const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const STACK: u32 = 0x6474_e551;
const READ_EXECUTE: u32 = 5;
const READ_WRITE: u32 = 6;
const FUNCTION: u8 = 0x12;
const VARIABLE: u8 = 0x11;
const TAG_HASH: u64 = 4;
const TAG_STRINGS: u64 = 5;
const TAG_SYMBOLS: u64 = 6;
const TAG_STRINGS_BYTES: u64 = 10;
const TAG_SYMBOL_BYTES: u64 = 11;

/// The code of function `number` at address `at`, which passes the number and jumps to the address stored at `slot`.
#[cfg(target_arch = "x86_64")]
fn stub(number: u32, at: u64, slot: u64) -> Vec<u8> {
    let mut code = vec![0xbf]; // mov edi, number
    code.extend(number.to_le_bytes());
    code.extend([0xff, 0x25]); // jmp [rip + distance]
    code.extend(((slot - (at + 11)) as u32).to_le_bytes());
    code
}

/// The code of function `number` at address `at`, which passes the number and jumps to the address stored at `slot`.
#[cfg(target_arch = "aarch64")]
fn stub(number: u32, at: u64, slot: u64) -> Vec<u8> {
    let words = ((slot - (at + 8)) / 4) as u32;
    [
        0x5280_0000 | (number & 0xffff) << 5, // movz w0, low half
        0x72a0_0000 | (number >> 16) << 5,    // movk w0, high half
        0x5800_0010 | words << 5,             // ldr x16, [pc + distance]
        0xd61f_0200,                          // br x16
    ]
    .into_iter()
    .flat_map(u32::to_le_bytes)
    .collect()
}

/// The hash of a symbol name in the ELF hash table.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0, |hash: u32, byte| {
        let hash = (hash << 4).wrapping_add(byte.into());
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}

fn put(bytes: &mut Vec<u8>, numbers: &[u64]) {
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

fn segment(bytes: &mut Vec<u8>, kind: u32, flags: u32, start: u64, size: u64) {
    bytes.extend(kind.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    put(bytes, &[start, start, start, size, size, PAGE]);
}

/// Returns the bytes of a shared library that exports a function for each of `names`. The functions pass the indices
/// `first`, `first + 1`, … to the common function.
pub(super) fn write(names: &[String], first: u32) -> Vec<u8> {
    let mut strings = vec![0];
    let mut offsets = Vec::new();
    for name in names.iter().map(String::as_str).chain([SLOT]) {
        offsets.push(strings.len() as u32);
        strings.extend(name.bytes());
        strings.push(0);
    }
    let symbols = names.len() as u64 + 2; // the first is empty, the last is the variable
    let symbols_at = HEADER_BYTES + 4 * SEGMENT_BYTES;
    let strings_at = symbols_at + symbols * SYMBOL_BYTES;
    let hash_at = (strings_at + strings.len() as u64).next_multiple_of(8);
    let buckets = symbols as u32;
    let code_at = (hash_at + 4 * (2 + u64::from(buckets) + symbols)).next_multiple_of(STUB_BYTES);
    let code_end = code_at + STUB_BYTES * names.len() as u64;
    let data_at = code_end.next_multiple_of(PAGE);
    let dynamic_bytes = 6 * 16;
    let slot = data_at + dynamic_bytes;

    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend([3, 0]); // a shared object
    file.extend(MACHINE.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    put(&mut file, &[0, HEADER_BYTES, 0]);
    file.extend(0_u32.to_le_bytes());
    for number in [HEADER_BYTES as u16, SEGMENT_BYTES as u16, 4, 64, 0, 0] {
        file.extend(number.to_le_bytes());
    }
    segment(&mut file, LOAD, READ_EXECUTE, 0, code_end);
    segment(&mut file, LOAD, READ_WRITE, data_at, dynamic_bytes + 8);
    segment(&mut file, DYNAMIC, READ_WRITE, data_at, dynamic_bytes);
    segment(&mut file, STACK, READ_WRITE, 0, 0);

    file.resize(file.len() + SYMBOL_BYTES as usize, 0);
    for (number, offset) in offsets.iter().enumerate() {
        let is_slot = number == names.len();
        let (kind, at) = if is_slot { (VARIABLE, slot) } else { (FUNCTION, code_at + STUB_BYTES * number as u64) };
        file.extend(offset.to_le_bytes());
        file.extend([kind, 0, 1, 0]); // in a section, so that the symbol is defined
        put(&mut file, &[at, if is_slot { 8 } else { STUB_BYTES }]);
    }
    file.extend(&strings);
    file.resize(hash_at as usize, 0);
    let mut heads = vec![0_u32; buckets as usize];
    let mut chains = vec![0_u32; symbols as usize];
    for (number, name) in names.iter().map(String::as_str).chain([SLOT]).enumerate() {
        let head = &mut heads[(hash(name) % buckets) as usize];
        chains[number + 1] = *head;
        *head = number as u32 + 1;
    }
    for number in [buckets, symbols as u32].into_iter().chain(heads).chain(chains) {
        file.extend(number.to_le_bytes());
    }
    file.resize(code_at as usize, 0);
    for number in 0..names.len() as u64 {
        let at = code_at + STUB_BYTES * number;
        file.extend(stub(first + number as u32, at, slot));
        file.resize((at + STUB_BYTES) as usize, 0);
    }
    file.resize(data_at as usize, 0);
    put(&mut file, &[TAG_HASH, hash_at, TAG_STRINGS, strings_at, TAG_SYMBOLS, symbols_at]);
    put(&mut file, &[TAG_STRINGS_BYTES, strings.len() as u64, TAG_SYMBOL_BYTES, SYMBOL_BYTES, 0, 0, 0]);
    file
}
