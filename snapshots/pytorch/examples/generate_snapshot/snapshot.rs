//! Writes a program's trace and final state in the structure and order of `torch.cuda.memory._snapshot()`.
//!
//! A file begins with the state at the end, so that the program runs twice: once for that, and once for the events.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::allocator::{Block, Request};
use crate::pickle::{Memo, Pickler};
use crate::program::{Action, Event, Plan, Program};

/// The figures of one device that a reader must find.
#[derive(Debug, Default)]
struct Found {
    events: u64,
    allocs: u64,
    requested: u64,
    reserved: u64,
    requested_peak: u64,
    requested_event: u64,
    reserved_peak: u64,
}

impl Found {
    fn add(&mut self, event: &Event) {
        match event.action {
            Action::SegmentAlloc => self.reserved += event.size,
            Action::Alloc => {
                self.allocs += 1;
                self.requested += event.size;
            }
            Action::FreeRequested => self.requested -= event.size,
            Action::FreeCompleted => {}
        }
        if self.requested > self.requested_peak {
            (self.requested_peak, self.requested_event) = (self.requested, self.events);
        }
        self.reserved_peak = self.reserved_peak.max(self.reserved);
        self.events += 1;
    }
}

/// Writes the snapshot; gives what must be found in it, as JSON in the form of the samples' `expected.json`.
pub(crate) fn write(plan: &Plan, out: impl Write) -> io::Result<String> {
    let mut found: Vec<Found> = Vec::new();
    let mut programs = Vec::new();
    for device in 0..plan.devices {
        let mut of_device = Found::default();
        let left = Program::run(*plan, device, &mut |event| of_device.add(event));
        programs.push(left);
        found.push(of_device);
    }
    let mut writer =
        Writer { pickler: Pickler::new(out)?, plan: *plan, frames: HashMap::new(), stacks: HashMap::new() };
    writer.pickler.begin_dict();
    writer.pickler.text("segments");
    let segments: Vec<_> = programs
        .iter()
        .enumerate()
        .flat_map(|(device, (memory, _))| memory.segments.iter().map(move |row| (device as u64, memory, row)))
        .collect();
    writer.list(segments.len() as u64, |writer, index| {
        let (device, memory, (&address, segment)) = segments[index as usize];
        let blocks: Vec<(u64, Block)> =
            memory.blocks.range(address..address + segment.size).map(|(&at, &block)| (at, block)).collect();
        let sum = |size: fn(&Block) -> u64| -> u64 {
            blocks.iter().filter(|(_, block)| !block.is_free).map(|(_, block)| size(block)).sum()
        };
        let allocated = sum(|block| block.size);
        writer.pickler.begin_dict();
        writer.int("device", device);
        writer.int("address", address);
        writer.int("total_size", segment.size);
        writer.int("allocated_size", allocated);
        writer.int("active_size", allocated);
        writer.int("requested_size", sum(|block| block.requested));
        writer.int("stream", 0);
        writer.text("segment_type", if segment.is_small { "small" } else { "large" });
        writer.pickler.text("segment_pool_id");
        writer.pickler.pair(0, 0);
        writer.pickler.text("is_expandable");
        writer.pickler.bool(false);
        writer.stack(device, segment.request)?;
        writer.pickler.text("blocks");
        writer.list(blocks.len() as u64, |writer, index| writer.block(device, blocks[index as usize]))?;
        writer.pickler.end_dict();
        Ok(())
    })?;
    drop(segments);
    writer.pickler.text("device_traces");
    writer.list(plan.devices, |writer, device| writer.trace(device, found[device as usize].events))?;
    writer.settings()?;
    let steps: Vec<_> = programs[0]
        .1
        .iter()
        .enumerate()
        .flat_map(|(step, (began, ended))| [(step, "START", *began), (step, "END", *ended)])
        .collect();
    writer.pickler.text("external_annotations");
    writer.list(steps.len() as u64, |writer, index| {
        let (step, stage, time) = steps[index as usize];
        writer.pickler.begin_dict();
        writer.text("stage", stage);
        writer.pickler.text("name");
        writer.pickler.new_text(&format!("ProfilerStep#{step}"));
        writer.int("device", 0);
        writer.int("time_us", time);
        writer.pickler.end_dict();
        Ok(())
    })?;
    writer.pickler.end_dict();
    writer.pickler.finish()?;
    let devices = found.iter().enumerate().map(|(device, found)| {
        let Found { events, allocs, requested, reserved, requested_peak, requested_event, reserved_peak } = found;
        format!(
            "\"{device}\": {{\"events\": {events}, \"allocs\": {allocs}, \"baseline\": 0, \"oom_events\": 0, \
             \"requested_peak\": {requested_peak}, \"requested_event\": {requested_event}, \
             \"requested_end\": {requested}, \"reserved_peak\": {reserved_peak}, \"reserved_end\": {reserved}}}"
        )
    });
    Ok(format!("{{{}}}", devices.collect::<Vec<_>>().join(", ")))
}

struct Writer<W> {
    pickler: Pickler<W>,
    plan: Plan,
    /// Frames written, by height above the outermost frame and number.
    frames: HashMap<(u64, u64), Memo>,
    /// Stacks of calls that are named again: device, call.
    stacks: HashMap<(u64, u64), Memo>,
}

impl<W: Write> Writer<W> {
    fn list(&mut self, len: u64, mut element: impl FnMut(&mut Self, u64) -> io::Result<()>) -> io::Result<()> {
        self.pickler.begin_list();
        for index in 0..len {
            self.pickler.begin_element(index, len);
            element(self, index)?;
            self.pickler.end_element(index, len)?;
        }
        Ok(())
    }

    fn int(&mut self, key: &'static str, value: u64) {
        self.pickler.text(key);
        self.pickler.int(value);
    }

    fn text(&mut self, key: &'static str, value: &'static str) {
        self.pickler.text(key);
        self.pickler.text(value);
    }

    fn block(&mut self, device: u64, (address, block): (u64, Block)) -> io::Result<()> {
        self.pickler.begin_dict();
        self.int("address", address);
        self.int("size", block.size);
        self.int("requested_size", block.requested);
        self.text("state", if block.is_free { "inactive" } else { "active_allocated" });
        if block.is_free {
            self.pickler.text("frames");
            self.list(0, |_, _| Ok(()))?;
        } else {
            self.stack(device, block.request)?;
        }
        self.pickler.end_dict();
        Ok(())
    }

    fn trace(&mut self, device: u64, events: u64) -> io::Result<()> {
        self.pickler.begin_list();
        let mut index = 0;
        let mut result = Ok(());
        let plan = self.plan;
        Program::run(plan, device, &mut |event| {
            if result.is_ok() {
                self.pickler.begin_element(index, events);
                result = self.event(device, event);
                if result.is_ok() {
                    result = self.pickler.end_element(index, events);
                }
                index += 1;
            }
        });
        result
    }

    fn event(&mut self, device: u64, event: &Event) -> io::Result<()> {
        self.pickler.begin_dict();
        let action = match event.action {
            Action::SegmentAlloc => "segment_alloc",
            Action::Alloc => "alloc",
            Action::FreeRequested => "free_requested",
            Action::FreeCompleted => "free_completed",
        };
        self.text("action", action);
        self.int("addr", event.address);
        self.int("size", event.size);
        self.int("stream", 0);
        self.int("time_us", event.time_us);
        self.pickler.text("compile_context");
        self.pickler.new_text("N/A");
        self.text("user_metadata", "");
        self.pickler.text("pool_id");
        self.pickler.pair(0, 0);
        self.stack(device, event.request)?;
        self.pickler.end_dict();
        // A stack is captured once in a call, and named again by its second event; there is no third.
        if matches!(event.action, Action::Alloc | Action::FreeCompleted) {
            self.stacks.remove(&(device, event.request.number));
        }
        Ok(())
    }

    /// The frames of a call, innermost first; what lies further out is shared by more stacks.
    fn stack(&mut self, device: u64, request: Request) -> io::Result<()> {
        self.pickler.text("frames");
        if let Some(&memo) = self.stacks.get(&(device, request.number)) {
            self.pickler.again(memo);
            return Ok(());
        }
        let memo = self.pickler.begin_list();
        let Plan { depth, stacks, .. } = self.plan;
        for index in 0..depth {
            self.pickler.begin_element(index, depth);
            let height = depth - 1 - index;
            let at_height = (1 << (height / 2).min(40)).min(stacks);
            self.frame(height, request.stack * at_height / stacks);
            self.pickler.end_element(index, depth)?;
        }
        self.stacks.insert((device, request.number), memo);
        Ok(())
    }

    fn frame(&mut self, height: u64, number: u64) {
        if let Some(&memo) = self.frames.get(&(height, number)) {
            self.pickler.again(memo);
            return;
        }
        let memo = self.pickler.begin_dict();
        self.pickler.text("name");
        self.pickler.new_text(&format!("forward_{height}_{}", number % 97));
        self.pickler.text("filename");
        self.pickler
            .new_text(&format!("/opt/train/lib/python3.12/site-packages/model/block_{height}/part_{}.py", number / 40));
        self.int("line", 12 + number * 7 % 1_900);
        self.pickler.end_dict();
        self.frames.insert((height, number), memo);
    }

    fn settings(&mut self) -> io::Result<()> {
        self.pickler.text("allocator_settings");
        self.pickler.begin_dict();
        self.text("PYTORCH_CUDA_ALLOC_CONF", "");
        self.pickler.text("max_split_size");
        self.pickler.minus_one();
        self.pickler.text("garbage_collection_threshold");
        self.pickler.float(0.0);
        self.pickler.text("expandable_segments");
        self.pickler.bool(false);
        self.pickler.end_dict();
        Ok(())
    }
}
