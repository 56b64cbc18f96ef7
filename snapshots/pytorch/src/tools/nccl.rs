//! Reads the allocations in NCCL's debug log (`NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ALLOC`), as written by
//! [`alloc.h`](https://github.com/NVIDIA/nccl/blob/master/src/include/alloc.h) after the prefix of
//! [`debug.cc`](https://github.com/NVIDIA/nccl/blob/master/src/debug.cc):
//!
//! ```text
//! node-01:1120933:1120950 [0] NCCL INFO channel.cc:43 (initChannel) Cuda CallocAsync Size 608 pointer 0x7f52 memType 2
//! ```
//!
//! The log has no frees, unless NCCL was built with `TRACE=1`. A block is freed where its address is allocated again,
//! and otherwise is live until the end. Sizes are those requested by NCCL, which the driver rounds up. Timestamps and
//! the threads of messages are lost. Memory that NCCL allocates by other means, such as buffers of NVLS, is not in the
//! log.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::ops::ControlFlow;

use hashbrown::HashMap;

use super::calls::{Call, Called, Calls, Outcome, in_address_space};
use super::lines::Lines;
use super::rmm::hexadecimal;
use highwater_snapshots::error::{Error, Result};
use highwater_snapshots::ids::{DeviceId, ScopeId, StackId, StreamId};
use highwater_snapshots::trace::{DeviceFacts, HEAP_DEVICE, Header, NOTE, PINNED_DEVICE, Trace};

/// Labels of the messages for allocations of device memory.
const OF_DEVICE: [&str; 3] = ["Cuda CallocAsync", "Cuda Calloc", "Cuda Alloc"];
/// Labels of the messages for allocations of pinned host memory.
const OF_HOST: [&str; 2] = ["Cuda Host Alloc", "CUMEM Host Alloc"];

/// Whether the first bytes of a file are a log with NCCL messages, possibly after other output of the program.
pub(crate) fn is_log(start: &[u8]) -> bool {
    let lines = start.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    lines.filter(|line| line.contains("] NCCL INFO ")).any(|line| Message::of(line).is_some())
}

/// Reads a log. `watch` is called regularly with the number of events read, and can stop reading.
pub(crate) fn read(input: impl BufRead, watch: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<Trace> {
    let (mut lines, mut log) = (Lines::new(input), Log::default());
    let (mut count, mut version) = (0_u64, None);
    while let Some(line) = lines.next()? {
        // Between the messages of NCCL is the program's own output.
        if let Some(message) = Message::of(line) {
            log.take(&message);
        } else if version.is_none() {
            version = line.split_once("NCCL version ").map(|(_, version)| version.trim().to_owned());
        }
        count += 1;
        if count % 65_536 == 0 && watch(log.calls.calls.len() as u64).is_break() {
            return Err(Error::Cancelled);
        }
    }
    lines.problems("NCCL").for_each(|problem| log.calls.builder.add_problem(problem));
    if log.calls.calls.is_empty() {
        let found = "a log of NCCL without allocations".to_owned();
        return Err(Error::NotRecording { found, advice: "record it with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ALLOC" });
    }
    Ok(log.finish(version))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message<'l> {
    host: &'l str,
    process: u32,
    device: u16,
    text: &'l str,
}

impl<'l> Message<'l> {
    /// Parses a line of the form `host:pid:tid [device] NCCL INFO text`, possibly after a timestamp. `NCCL TRACE` lines
    /// have a time and a function before the text.
    fn of(line: &'l str) -> Option<Self> {
        let (head, text) = line.split_once(" NCCL INFO ").or_else(|| line.split_once(" NCCL TRACE "))?;
        let (sender, rest) = head.rsplit_once('[')?;
        let device = rest.split_once(']')?.0.parse().ok()?;
        let sender = sender.split_whitespace().next_back()?;
        let mut parts = sender.rsplitn(3, ':');
        let (_thread, process, host) = (parts.next()?.parse::<u32>().ok()?, parts.next()?.parse().ok()?, parts.next()?);
        Some(Self { host, process, device, text })
    }
}

/// An allocation or a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Allocation<'l> {
    /// The label of the message, and whether the memory is pinned; `None` for a free.
    call: Option<(&'static str, bool)>,
    /// Source location, such as `channel.cc:43`, or with the function, `channel.cc:43 (initChannel)`. Empty if unknown.
    source_line: &'l str,
    bytes: u64,
    address: u64,
}

impl<'l> Allocation<'l> {
    fn of(text: &'l str) -> Option<Self> {
        if let Some(pointer) = text.strip_prefix("Cuda Free pointer ") {
            return Some(Self { call: None, source_line: "", bytes: 0, address: hexadecimal(pointer.trim())? });
        }
        let (before, after) = text.split_once(" Size ")?;
        let mut words = after.split_whitespace();
        let (bytes, word, pointer) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
        let address = (word == "pointer").then(|| hexadecimal(pointer))??;
        if before == "CUMEM Host Free" {
            return Some(Self { call: None, source_line: "", bytes, address });
        }
        let named = |names: &[&'static str], is_host: bool| {
            names.iter().find_map(|name| Some(((*name, is_host), before.strip_suffix(name)?)))
        };
        let (call, source_line) = named(&OF_HOST, true).or_else(|| named(&OF_DEVICE, false))?;
        Some(Self { call: Some(call), source_line: source_line.trim(), bytes, address })
    }

    /// Returns the function (empty if missing), file and line of the source location; `None` if it has no line.
    fn frame(&self) -> Option<(&'l str, &'l str, u32)> {
        let (line, function) = match self.source_line.split_once(" (") {
            Some((line, function)) => (line, function.trim_end_matches(')')),
            None => (self.source_line, ""),
        };
        let (file, line) = line.rsplit_once(':')?;
        Some((function, file, line.parse().ok()?))
    }
}

#[derive(Default)]
struct Log {
    calls: Calls,
    processes: HashMap<(String, u32), usize>,
    /// The device for each host name and device ordinal on that host.
    devices: HashMap<(String, u16), DeviceId>,
    used: BTreeSet<u16>,
}

impl Log {
    fn take(&mut self, message: &Message<'_>) {
        let Some(allocation) = Allocation::of(message.text) else { return };
        let host = || message.host.to_owned();
        let next = self.processes.len();
        let process = *self.processes.entry((host(), message.process)).or_insert(next);
        let is_host = match allocation.call {
            Some((_, is_host)) => is_host,
            None => message.text.starts_with("CUMEM Host"),
        };
        let used = &mut self.used;
        let device = match is_host {
            true => PINNED_DEVICE,
            false => *self.devices.entry((host(), message.device)).or_insert_with(|| {
                // Devices of several machines have the same numbers.
                let is_free =
                    |number: &u16| !used.contains(number) && ![PINNED_DEVICE, HEAP_DEVICE].contains(&DeviceId(*number));
                let number = Some(message.device).filter(is_free).or_else(|| (0..DeviceId::END).find(is_free));
                used.insert(number.unwrap_or(DeviceId::END));
                DeviceId(number.unwrap_or(DeviceId::END))
            }),
        };
        let outcome = match (allocation.call, allocation.address) {
            (Some(_), 0) if allocation.bytes == 0 => return,
            (Some(_), 0) => Outcome::Failed,
            (Some(_), _) => Outcome::Allocated,
            (None, _) => Outcome::Freed,
        };
        let scope = match allocation.call {
            Some((call, _)) => self.calls.scope(ScopeId::NONE, call),
            None => ScopeId::NONE,
        };
        let Calls { rows, builder, .. } = &mut self.calls;
        let stack = allocation.frame().map_or(StackId::NONE, |(function, file, line)| {
            let frame = rows.frame(builder.tables(), function, file, line);
            rows.stack(builder.tables(), &[frame])
        });
        let (address, bytes) = (in_address_space(process, allocation.address), allocation.bytes);
        self.calls.calls.push(Call { outcome, time_ns: 0, device, address, bytes, stream: StreamId(0), stack, scope });
    }

    fn finish(self, version: Option<String>) -> Trace {
        let Self { calls, processes, devices, .. } = self;
        let hosts: BTreeSet<&str> = processes.keys().map(|(host, _)| host.as_str()).collect();
        let facts = devices.iter().map(|((host, number), device)| {
            let name = if hosts.len() > 1 { format!("{host}, device {number}") } else { String::new() };
            DeviceFacts { device: *device, name, ..DeviceFacts::default() }
        });
        let pid = if let [(_, pid)] = *processes.keys().collect::<Vec<_>>() { *pid } else { 0 };
        let host = if let [host] = *hosts.iter().collect::<Vec<_>>() { (*host).to_owned() } else { String::new() };
        let has_frees = calls.calls.iter().any(|call| call.outcome == Outcome::Freed);
        let no_frees = "NCCL's log has no frees: a block counts as freed when its address is allocated again, and \
                        otherwise as live";
        let notes = [
            (!has_frees).then_some(no_frees),
            Some("sizes are as requested by NCCL; the driver rounds them up, with cuMem to a multiple of 2 MiB"),
        ];
        let notes = notes.into_iter().flatten();
        let mut header_facts: Vec<_> = notes.map(|note| (NOTE.to_owned(), note.to_owned())).collect();
        header_facts.extend(version.map(|version| ("nccl".to_owned(), version)));
        let (recorder, level) = ("NCCL".to_owned(), "stacks".to_owned());
        let header = Header { recorder, host, pid, level, facts: header_facts, ..Header::default() };
        calls.finish(header, facts.collect(), Called::Driver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_every_version_of_nccl_are_read() {
        let old = "gpu-7:4242:4250 [3] NCCL INFO init.cc:305 Cuda Alloc Size 8388608 pointer 0x7f5208000000";
        let message = Message::of(old).unwrap();
        assert_eq!((message.host, message.process, message.device), ("gpu-7", 4242, 3));
        let allocation = Allocation::of(message.text).unwrap();
        assert_eq!((allocation.call, allocation.bytes), (Some(("Cuda Alloc", false)), 8 << 20));
        assert_eq!(allocation.frame(), Some(("", "init.cc", 305)));
        let new = "[2026-08-01 12:00:00] fd00::1:42:43 [0] NCCL INFO transport/net.cc:9 (send) Cuda Calloc Size 4 \
                   pointer 0x1f memType 2";
        let message = Message::of(new).unwrap();
        assert_eq!((message.host, message.process, message.device), ("fd00::1", 42, 0));
        let allocation = Allocation::of(message.text).unwrap();
        assert_eq!((allocation.frame(), allocation.address), (Some(("send", "transport/net.cc", 9)), 0x1f));
        let pinned = "CUMEM Host Alloc Size 2097152 pointer 0x7f00 handle 7 numa 0 dev 0 granularity 2097152";
        assert_eq!(Allocation::of(pinned).unwrap().call, Some(("CUMEM Host Alloc", true)));
        let trace = "h:1:2 [0] 12.500000 ncclCudaFree:410 NCCL TRACE Cuda Free pointer 0x7f00";
        let message = Message::of(trace).unwrap();
        assert_eq!((message.device, Allocation::of(message.text).unwrap().address), (0, 0x7f00));
    }

    #[test]
    fn memory_of_the_host_and_other_messages_are_left_out() {
        for text in [
            "alloc.h:120 Host Calloc Size 64 pointer 0x7f00",
            "Mem Realloc old size 0, new size 256 pointer 0x7f00",
            "ib.cc:3 Ib Alloc Size 64 pointer 0x7f00",
            "Channel 00/02 : 0 1",
            "init.cc:305 Cuda Alloc Size many pointer 0x7f00",
        ] {
            assert_eq!(Allocation::of(text), None, "{text}");
        }
        assert_eq!(Message::of("loss 0.5 [0] NCCL INFO is a word"), None);
        assert!(!is_log(b"[1] NCCL INFO") && is_log(b"hello\nh:1:2 [0] NCCL INFO Bootstrap\n"));
    }
}
