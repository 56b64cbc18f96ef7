//! Reads the dynamic loader's list of modules, their unwind tables, and its counters of loads and unloads.

use std::ops::Range;
use std::path::PathBuf;

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(super) use linux::modules;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
pub(super) use linux::{Changes, Loaded, changes, keep_loaded, loaded};

/// A binary or shared library in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Path of its file, or a name for a module without a file, such as `linux-vdso.so.1`.
    pub path: PathBuf,
    /// Build id set by the linker, which is empty if the module has none.
    pub build_id: Vec<u8>,
    /// Offset that the loader added to the addresses in the file.
    pub load_bias: u64,
    /// Addresses of the loaded segments in memory, in file order.
    pub ranges: Vec<Range<u64>>,
}

/// Returns an empty list, since modules are not supported on this platform.
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
pub(super) fn modules() -> Vec<Module> {
    Vec::new()
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod linux {
    #![expect(unsafe_code, reason = "calls the loader, and reads the headers that it mapped")]
    #![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only rules need more than the list"))]

    use std::ffi::{CStr, CString, OsStr, c_int, c_void};
    use std::ops::Range;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    use super::Module;

    #[derive(Clone, Debug)]
    pub(in crate::stack) struct Loaded {
        pub(in crate::stack) module: Module,
        /// Name used by the loader, which is empty for the program itself.
        pub(in crate::stack) name: CString,
        /// Addresses of `.eh_frame_hdr` in memory, if there is one.
        pub(in crate::stack) unwind_index: Option<Range<u64>>,
    }

    /// Numbers of modules loaded and unloaded so far. If they are equal, nothing changed.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(in crate::stack) struct Changes {
        loaded: u64,
        unloaded: u64,
    }

    unsafe extern "C" fn read_changes(info: *mut libc::dl_phdr_info, _size: usize, out: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid description, and `changes` passes its own local, which nothing else uses.
        unsafe { *out.cast::<Changes>() = Changes { loaded: (*info).dlpi_adds, unloaded: (*info).dlpi_subs } };
        1
    }

    /// Returns the loader's counters, in some 16 ns.
    pub(in crate::stack) fn changes() -> Changes {
        let mut out = Changes::default();
        // SAFETY: the callback gets a pointer to `out`, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(read_changes), (&raw mut out).cast()) };
        out
    }

    unsafe extern "C" fn read_module(info: *mut libc::dl_phdr_info, _size: usize, out: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid description, whose program headers stay mapped during this call, and
        // `loaded` passes its own vector, which nothing else uses meanwhile.
        let (info, out, headers) = unsafe {
            let headers = std::slice::from_raw_parts((*info).dlpi_phdr, usize::from((*info).dlpi_phnum));
            (&*info, &mut *out.cast::<Vec<Loaded>>(), headers)
        };
        let name = match info.dlpi_name.is_null() {
            true => CString::default(),
            // SAFETY: a name that is not null is a C string, valid during this call.
            false => unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned(),
        };
        out.push(describe(info.dlpi_addr, name, headers));
        0
    }

    /// Returns all modules in load order.
    pub(in crate::stack) fn loaded() -> Vec<Loaded> {
        let mut out: Vec<Loaded> = Vec::new();
        // SAFETY: the callback gets a pointer to `out`, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(read_module), (&raw mut out).cast()) };
        for (index, loaded) in out.iter_mut().enumerate() {
            loaded.module.path = file_of(index, &loaded.name);
        }
        out
    }

    pub(in crate::stack) fn modules() -> Vec<Module> {
        loaded().into_iter().map(|loaded| loaded.module).collect()
    }

    fn file_of(index: usize, name: &CStr) -> PathBuf {
        let named = Path::new(OsStr::from_bytes(name.to_bytes()));
        if index == 0 {
            return std::env::current_exe().unwrap_or_else(|_| named.to_owned());
        }
        match named.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => {
                std::path::absolute(named).unwrap_or_else(|_| named.to_owned())
            }
            _ => named.to_owned(),
        }
    }

    fn describe(load_bias: libc::Elf64_Addr, name: CString, headers: &[libc::Elf64_Phdr]) -> Loaded {
        let range_of = |header: &libc::Elf64_Phdr| {
            let start = load_bias.wrapping_add(header.p_vaddr);
            start..start.saturating_add(header.p_memsz)
        };
        let of_type = |wanted: u32| headers.iter().filter(move |header| header.p_type == wanted);
        let readable: Vec<Range<u64>> =
            of_type(libc::PT_LOAD).filter(|header| header.p_flags & libc::PF_R != 0).map(range_of).collect();
        let mapped = |range: &Range<u64>| readable.iter().any(|all| all.start <= range.start && range.end <= all.end);
        let build_id = of_type(libc::PT_NOTE)
            .filter(|header| mapped(&range_of(header)))
            .find_map(|header| {
                let range = range_of(header);
                // SAFETY: the notes are in a readable segment, which stays mapped while the loader's list is read.
                let notes =
                    unsafe { std::slice::from_raw_parts(range.start as *const u8, (range.end - range.start) as usize) };
                build_id(notes, if header.p_align == 8 { 8 } else { 4 })
            })
            .unwrap_or_default();
        let unwind_index = of_type(libc::PT_GNU_EH_FRAME).map(range_of).find(mapped);
        let ranges = of_type(libc::PT_LOAD).map(range_of).collect();
        Loaded { module: Module { path: PathBuf::new(), build_id, load_bias, ranges }, name, unwind_index }
    }

    /// Returns the descriptor of the note of type 3 by "GNU", which is the build id; `None` if there is no such note.
    fn build_id(mut notes: &[u8], align: usize) -> Option<Vec<u8>> {
        let word = |notes: &[u8], at: usize| -> Option<usize> {
            Some(u32::from_ne_bytes(notes.get(at..at + 4)?.try_into().ok()?) as usize)
        };
        loop {
            let (name_len, id_len, kind) = (word(notes, 0)?, word(notes, 4)?, word(notes, 8)?);
            let id_at = (12 + name_len).next_multiple_of(align);
            if kind == 3 && notes.get(12..12 + name_len)? == b"GNU\0" {
                return notes.get(id_at..id_at + id_len).map(<[u8]>::to_vec);
            }
            notes = notes.get((id_at + id_len).next_multiple_of(align)..)?;
        }
    }

    /// Makes the loader keep a module for the rest of the process, so that an address that was seen on a stack never
    /// changes its meaning. Returns false if the loader does not know the module.
    ///
    /// May wait for a `dlopen` on another thread, so do not hold a lock that a module's initializer could need.
    pub(in crate::stack) fn keep_loaded(name: &CStr) -> bool {
        if name.is_empty() || name.to_bytes().starts_with(b"linux-vdso") {
            return true;
        }
        // SAFETY: a valid C string; `RTLD_NOLOAD` runs no foreign code, and the handle is leaked on purpose.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
        !handle.is_null()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_build_id_is_found_behind_other_notes_and_not_in_cut_ones() {
            let note = |kind: u32, text: &[u8]| {
                let mut out = [4u32, text.len() as u32, kind].map(u32::to_ne_bytes).concat();
                out.extend_from_slice(b"GNU\0");
                out.extend_from_slice(text);
                out.resize(out.len().next_multiple_of(4), 0);
                out
            };
            let notes = [note(1, b"other"), note(3, &[0xab, 0xcd, 0xef])].concat();
            assert_eq!(build_id(&notes, 4), Some(vec![0xab, 0xcd, 0xef]));
            for end in 0..notes.len() - 1 {
                assert_eq!(build_id(&notes[..end], 4), None, "cut after {end} bytes");
            }
        }

        #[test]
        fn the_program_and_libc_are_listed_with_their_files() {
            let list = modules();
            assert_eq!(Some(&list[0].path), std::env::current_exe().ok().as_ref());
            let own = the_program_and_libc_are_listed_with_their_files as fn() as usize as u64;
            assert!(list[0].ranges.iter().any(|range| range.contains(&own)));
            assert!(list.iter().any(|module| module.path.to_string_lossy().contains("libc")), "{list:?}");
            assert_eq!(changes(), changes());
        }
    }
}
