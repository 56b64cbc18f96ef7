//! Tests that every kernel compiles for the supported GPUs without compiler messages and keeps its variables in
//! registers. Needs NVRTC, but no GPU.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use highwater_kernels::compile::{compile, version};
use highwater_kernels::source::{Unit, units};
use highwater_kernels::{Error, library};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol, SymbolIndex};

/// The architectures that are compiled for, unless [`OTHERS`] names them: of A100 and H100.
const ARCHITECTURES: &str = "sm_80,sm_90";

/// The variable that names other architectures, such as `sm_86,sm_89,sm_100,sm_120`.
const OTHERS: &str = "HIGHWATER_KERNEL_ARCHITECTURES";

/// Makes a missing compiler a failure rather than a reason to skip.
const REQUIRED: &str = "HIGHWATER_REQUIRE_NVRTC";

/// Kernels, by file, that may keep variables in local memory, up to this many bytes per thread, and why.
const SPILLS: [(&str, u32, &str); 12] = [
    ("elementwise", 40, TABLE_OF_PI),
    ("frequencies", 40, TABLE_OF_PI),
    ("random", 40, TABLE_OF_PI),
    ("rotary", 40, TABLE_OF_PI),
    ("attention_32", 16, OUTER_LOOP),
    ("attention_64", 48, OUTER_LOOP),
    ("attention_64_large", 48, OUTER_LOOP),
    ("attention_96", 32, OUTER_LOOP),
    ("attention_128", 48, OUTER_LOOP),
    ("attention_128_large", 24, OUTER_LOOP),
    ("pool", 16, NEWER),
    ("unfold", 64, NEWER),
];

const TABLE_OF_PI: &str = "CUDA's sine and cosine reduce large angles with a local table of digits of π";
const OUTER_LOOP: &str = "a tile fills the registers, and what the loop over tiles counts with is kept outside";
const NEWER: &str = "compiled for sm_100 and sm_120, the strides of six axes do not fit beside the sums";

/// The record of a kernel's local memory in a cubin's section `.nv.info`.
const FRAME_SIZE: u8 = 0x11;
/// The form of records with a value of several bytes, whose number follows.
const SIZED: u8 = 0x04;

/// Returns the bytes of local memory per thread that each kernel of a cubin uses.
fn frames(image: &[u8]) -> BTreeMap<String, u32> {
    let file = ElfFile64::<object::LittleEndian>::parse(image).expect("a cubin is an ELF file");
    let section = file.section_by_name(".nv.info").expect("a cubin describes its kernels");
    let (mut data, mut frames) = (section.data().expect("the section's bytes"), BTreeMap::new());
    while let [form, kind, low, high, rest @ ..] = data {
        let bytes = if *form == SIZED { usize::from(u16::from_le_bytes([*low, *high])) } else { 0 };
        let (value, rest) = rest.split_at(bytes);
        if let (FRAME_SIZE, Some((symbol, size))) = (*kind, value.split_first_chunk()) {
            let symbol = file.symbol_by_index(SymbolIndex(u32::from_le_bytes(*symbol) as usize)).expect("a symbol");
            let size = u32::from_le_bytes(size.try_into().expect("four bytes"));
            frames.insert(symbol.name().expect("a name").to_owned(), size);
        }
        data = rest;
    }
    frames
}

/// What is wrong with the local memory of a unit's kernels.
fn spills(unit: Unit, arch: &str, image: &[u8]) -> Vec<String> {
    let allowed = SPILLS.iter().find(|(file, ..)| *file == unit.file).map_or(0, |(_, bytes, _)| *bytes);
    let frames = frames(image);
    assert!(!frames.is_empty(), "{unit}, {arch}: no kernel");
    let large = frames.into_iter().filter(|(_, bytes)| *bytes > allowed);
    large.map(|(name, bytes)| format!("{unit}, {arch}: {name} uses {bytes} bytes of local memory")).collect()
}

#[test]
#[expect(clippy::print_stderr, reason = "says that nothing was tested, and why")]
fn every_kernel_compiles_for_every_supported_gpu_without_a_message_and_without_spills() {
    if let Err(error) = library::compiler() {
        assert!(std::env::var_os(REQUIRED).is_none(), "{error}");
        eprintln!("skipped: {error}");
        return;
    }
    let named = std::env::var(OTHERS).unwrap_or_else(|_| ARCHITECTURES.to_owned());
    let work: Vec<(Unit, &str)> = units().flat_map(|unit| named.split(',').map(move |arch| (unit, arch))).collect();
    let (next, complaints) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let complain = |text: String| complaints.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&(unit, arch)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match compile(unit, arch) {
                        Ok(compiled) => {
                            if !compiled.log.is_empty() {
                                complain(format!("{unit}, {arch}:\n{}", compiled.log));
                            }
                            spills(unit, arch, &compiled.image).into_iter().for_each(complain);
                        }
                        Err(error @ Error::Compile { .. }) => complain(error.to_string()),
                        Err(error) => complain(format!("{unit}, {arch}: {error}")),
                    }
                }
            });
        }
    });
    let complaints = complaints.into_inner().unwrap_or_else(PoisonError::into_inner);
    let version = version().expect("the compiler has a version");
    assert!(complaints.is_empty(), "NVRTC {version}:\n{}", complaints.join("\n"));
}
