//! Reserved addresses, physical memory, and mappings between them.
#![expect(unsafe_code, reason = "maps memory of the host")]

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;

use crate::failure::{Code, Result, fail};
use crate::mapping::{FRESH, Fresh, Mapping, host_page};
use crate::memory::Budget;

/// The page size in bytes. Addresses and sizes are multiples of it, as on GPUs.
pub(crate) const GRANULARITY: usize = 2 << 20;

#[derive(Debug)]
struct Reserved {
    _mapping: Mapping,
    bytes: usize,
}

#[derive(Debug)]
struct Physical {
    device: usize,
    bytes: usize,
    /// The offset in the file that contains all physical memory.
    offset: u64,
    /// Number of mappings of this memory.
    mapped: u32,
    /// Number of its handles that were not released.
    handles: u32,
}

#[derive(Debug)]
struct Mapped {
    bytes: usize,
    handle: u64,
    can_be_used: bool,
}

/// All reserved addresses and all physical memory.
#[derive(Debug)]
pub(crate) struct Pages {
    fresh: Fresh,
    reserved: BTreeMap<usize, Reserved>,
    physical: HashMap<u64, Physical>,
    mapped: BTreeMap<usize, Mapped>,
    /// The memory of all devices. Released memory is a hole in the file.
    file: Option<File>,
    end: u64,
    next: u64,
}

fn system<T>(doing: &str) -> Result<T> {
    fail(Code::OutOfMemory, format!("{doing}: {}", std::io::Error::last_os_error()))
}

fn whole(bytes: usize) -> Result<()> {
    if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
        return fail(Code::InvalidValue, format!("{bytes} bytes are no whole pages of {GRANULARITY}"));
    }
    Ok(())
}

/// Fills a part of the file with NaN.
fn fill(file: &File, offset: u64, bytes: usize) -> Result<()> {
    // SAFETY: a new mapping of the system's choice.
    let start = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), offset as libc::off_t)
    };
    if start == libc::MAP_FAILED {
        return system("mmap");
    }
    // SAFETY: just mapped, for writing, and nobody's.
    unsafe {
        ptr::write_bytes(start.cast::<u8>(), FRESH, bytes);
        libc::munmap(start, bytes);
    }
    Ok(())
}

impl Pages {
    /// Creates an empty set of pages. `fresh` is the content of newly allocated memory.
    pub(crate) fn new(fresh: Fresh) -> Self {
        let (reserved, mapped, physical) = (BTreeMap::new(), BTreeMap::new(), HashMap::new());
        Self { fresh, reserved, physical, mapped, file: None, end: 0, next: 0 }
    }

    /// Reserves addresses.
    pub(crate) fn reserve(&mut self, bytes: usize, alignment: usize) -> Result<usize> {
        whole(bytes)?;
        let alignment = alignment.max(GRANULARITY);
        if !alignment.is_power_of_two() {
            return fail(Code::InvalidValue, format!("an alignment of {alignment}"));
        }
        let Some(most) = bytes.checked_add(alignment).and_then(|most| most.checked_add(host_page())) else {
            return fail(Code::OutOfMemory, format!("{bytes} bytes are more than there are addresses"));
        };
        // One page more than that: what follows the addresses faults.
        let mapping = Mapping::reserve(most)?;
        let start = mapping.start().next_multiple_of(alignment);
        self.reserved.insert(start, Reserved { _mapping: mapping, bytes });
        Ok(start)
    }

    /// Frees reserved addresses.
    pub(crate) fn release_addresses(&mut self, address: usize, bytes: usize) -> Result<()> {
        if self.reserved.get(&address).is_none_or(|reserved| reserved.bytes != bytes) {
            return fail(Code::InvalidValue, format!("{bytes} bytes from {address:#x} on were not reserved at once"));
        }
        if self.mapped.range(address..address + bytes).next().is_some() {
            return fail(Code::InvalidValue, format!("memory is mapped behind {bytes} bytes from {address:#x} on"));
        }
        self.reserved.remove(&address);
        Ok(())
    }

    /// Allocates physical memory.
    pub(crate) fn create(&mut self, budget: &mut Budget, device: usize, bytes: usize) -> Result<u64> {
        whole(bytes)?;
        budget.take(device, bytes as u64)?;
        match self.extend(bytes) {
            Ok(offset) => {
                self.next += 1;
                self.physical.insert(self.next, Physical { device, bytes, offset, mapped: 0, handles: 1 });
                Ok(self.next)
            }
            Err(failure) => {
                budget.give_back(device, bytes as u64);
                Err(failure)
            }
        }
    }

    /// Extends the file by fresh memory.
    fn extend(&mut self, bytes: usize) -> Result<u64> {
        if self.file.is_none() {
            // SAFETY: the name ends in a zero; gives a descriptor that nobody else has.
            let descriptor = unsafe { libc::memfd_create(c"pages".as_ptr(), libc::MFD_CLOEXEC) };
            if descriptor < 0 {
                return system("memfd_create");
            }
            // SAFETY: just opened, and owned by nobody else.
            self.file = Some(unsafe { File::from_raw_fd(descriptor) });
        }
        let (offset, end) = (self.end, self.end + bytes as u64);
        let Some(file) = &self.file else { return fail(Code::Unknown, "no file") };
        if file.set_len(end).is_err() {
            return system("ftruncate");
        }
        if self.fresh == Fresh::NoNumber {
            fill(file, offset, bytes)?;
        }
        self.end = end;
        Ok(offset)
    }

    /// Returns another handle of the memory that is mapped at an address: the same number.
    pub(crate) fn retain(&mut self, address: usize) -> Result<u64> {
        let before =
            self.mapped.range(..=address).next_back().filter(|(start, mapped)| address - *start < mapped.bytes);
        let handle = before.map(|(_, mapped)| mapped.handle);
        match handle.and_then(|handle| Some((handle, self.physical.get_mut(&handle)?))) {
            Some((handle, physical)) => {
                physical.handles += 1;
                Ok(handle)
            }
            None => fail(Code::InvalidValue, format!("no memory is mapped at {address:#x}")),
        }
    }

    /// Releases a handle of memory. The memory is freed when it is no longer mapped.
    pub(crate) fn release(&mut self, budget: &mut Budget, handle: u64) -> Result<()> {
        match self.physical.get_mut(&handle) {
            Some(physical) if physical.handles > 0 => physical.handles -= 1,
            _ => return fail(Code::InvalidValue, format!("there is no memory {handle}")),
        }
        self.forget(budget, handle);
        Ok(())
    }

    fn forget(&mut self, budget: &mut Budget, handle: u64) {
        let Some(physical) = self.physical.get(&handle) else { return };
        if physical.handles > 0 || physical.mapped > 0 {
            return;
        }
        budget.give_back(physical.device, physical.bytes as u64);
        if let Some(file) = &self.file {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let (offset, bytes) = (physical.offset as libc::off_t, physical.bytes as libc::off_t);
            // SAFETY: the file is open. Should it fail, the host keeps memory that nobody has, and no more.
            unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, bytes) };
        }
        self.physical.remove(&handle);
    }

    /// Maps memory to addresses, without granting access.
    pub(crate) fn map(&mut self, address: usize, bytes: usize, offset: usize, handle: u64) -> Result<()> {
        whole(bytes)?;
        let Some(physical) = self.physical.get_mut(&handle).filter(|physical| physical.handles > 0) else {
            return fail(Code::InvalidValue, format!("there is no memory {handle}"));
        };
        if offset != 0 || bytes != physical.bytes {
            return fail(Code::InvalidValue, format!("{bytes} bytes from {offset} on of memory of {}", physical.bytes));
        }
        let reserved = self.reserved.range(..=address).next_back();
        if reserved.is_none_or(|(start, reserved)| address + bytes > start + reserved.bytes)
            || !address.is_multiple_of(GRANULARITY)
        {
            return fail(Code::InvalidValue, format!("{bytes} bytes from {address:#x} on are not reserved pages"));
        }
        let before = self.mapped.range(..address + bytes).next_back();
        if before.is_some_and(|(&start, mapped)| start + mapped.bytes > address) {
            return fail(Code::InvalidValue, format!("memory is mapped behind {bytes} bytes from {address:#x} on"));
        }
        let Some(file) = &self.file else { return fail(Code::Unknown, "no file") };
        let (flags, at) = (libc::MAP_SHARED | libc::MAP_FIXED, ptr::with_exposed_provenance_mut(address));
        // SAFETY: replaces addresses of a reservation behind which there is nothing.
        let start =
            unsafe { libc::mmap(at, bytes, libc::PROT_NONE, flags, file.as_raw_fd(), physical.offset as libc::off_t) };
        if start == libc::MAP_FAILED {
            return system("mmap");
        }
        physical.mapped += 1;
        self.mapped.insert(address, Mapped { bytes, handle, can_be_used: false });
        Ok(())
    }

    /// The mappings that cover exactly these bytes.
    fn mappings(&self, address: usize, bytes: usize) -> Result<Vec<usize>> {
        let end = address.saturating_add(bytes);
        let mut at = address;
        let mut starts = Vec::new();
        for (&start, mapped) in self.mapped.range(address..end) {
            if start != at {
                break;
            }
            starts.push(start);
            at += mapped.bytes;
        }
        if at != end || starts.is_empty() {
            return fail(Code::InvalidValue, format!("{bytes} bytes from {address:#x} on are not what was mapped"));
        }
        Ok(starts)
    }

    /// Makes mapped memory accessible.
    pub(crate) fn allow(&mut self, address: usize, bytes: usize) -> Result<()> {
        for start in self.mappings(address, bytes)? {
            let Some(mapped) = self.mapped.get_mut(&start) else { continue };
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: mapped by `map`.
            if unsafe { libc::mprotect(ptr::with_exposed_provenance_mut(start), mapped.bytes, protection) } != 0 {
                return system("mprotect");
            }
            mapped.can_be_used = true;
        }
        Ok(())
    }

    /// Unmaps memory from addresses.
    pub(crate) fn unmap(&mut self, budget: &mut Budget, address: usize, bytes: usize) -> Result<()> {
        for start in self.mappings(address, bytes)? {
            let Some(mapped) = self.mapped.remove(&start) else { continue };
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
            let at = ptr::with_exposed_provenance_mut(start);
            // SAFETY: replaces what `map` mapped there by what was there before.
            if unsafe { libc::mmap(at, mapped.bytes, libc::PROT_NONE, flags, -1, 0) } == libc::MAP_FAILED {
                return system("mmap");
            }
            if let Some(physical) = self.physical.get_mut(&mapped.handle) {
                physical.mapped -= 1;
            }
            self.forget(budget, mapped.handle);
        }
        Ok(())
    }

    /// Whether all these bytes are mapped and accessible.
    pub(crate) fn hold(&self, address: usize, bytes: usize) -> bool {
        let Some(end) = address.checked_add(bytes) else { return false };
        let mut at = address;
        while at < end {
            match self.mapped.range(..=at).next_back() {
                Some((&start, mapped)) if at < start + mapped.bytes && mapped.can_be_used => at = start + mapped.bytes,
                _ => return false,
            }
        }
        true
    }

    /// The device whose memory is mapped at an address.
    pub(crate) fn device_of(&self, address: usize) -> Option<usize> {
        Some(self.physical.get(&self.mapped.get(&address)?.handle)?.device)
    }
}
