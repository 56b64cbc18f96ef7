//! Runs scripts of allocator requests, one request per line, and prints the results as text.
//!
//! | line | does |
//! |---|---|
//! | `config KEY:VALUE,…` | the allocator's settings; only at the top |
//! | `capacity SIZE`, `outside SIZE` | the size of the device, and what others use of it; 64G and 0 unless said |
//! | `alloc NAME SIZE [STREAM]` | asks for a block; stream 0 unless said |
//! | `free NAME` | gives it back |
//! | `stream NAME STREAM` | another stream works with it |
//! | `hold`, `done STREAM` | streams lag behind from now on; the stream gets as far as it was asked to |
//! | `process`, `sync` | looks after events; waits for them |
//! | `empty`, `fraction F` | gives the cache back; limits what may be reserved |
//! | `state`, `stat NAME`, `reset peak`, `reset sums` | prints segments; prints a statistic; resets statistics |
//!
//! A size is a number with K, M or G and perhaps `+1` or `-1` behind it. Places are printed as the number of the
//! segment and the offset in it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use expect_test::Expect;
use highwater_allocator::{AllocError, Block, BlockUsage, CachingAllocator};
use highwater_recorder::{DeviceId, StreamId};

use crate::noting_driver::NotingDriver;

/// Runs a script and compares its output.
#[expect(clippy::needless_pass_by_value, reason = "expectations are written in place")]
pub(crate) fn check(script: &str, expected: Expect) {
    expected.assert_eq(&run(script));
}

/// Runs a script and gives its output; every step is followed by an audit.
fn run(script: &str) -> String {
    let lines = script.lines().map(str::trim).filter(|line| !line.is_empty());
    let (settings, requests): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with("config "));
    let config = settings.first().map_or("", |line| &line["config ".len()..]);
    let driver = NotingDriver::new(64 << 30);
    let config = config.parse().expect("the settings are valid");
    let allocator = CachingAllocator::new(Box::new(driver.clone()), DeviceId(0), config);
    let mut stage = Stage { driver, allocator, blocks: HashMap::new(), out: String::new() };
    for request in requests {
        stage.act(request);
        assert_eq!(stage.allocator.audit(), [""; 0], "after '{request}', having printed\n{}", stage.out);
    }
    stage.out
}

struct Stage {
    driver: NotingDriver,
    allocator: Arc<CachingAllocator>,
    blocks: HashMap<String, Block>,
    out: String,
}

impl Stage {
    fn act(&mut self, request: &str) {
        let words: Vec<&str> = request.split_whitespace().collect();
        let word = |at: usize| *words.get(at).unwrap_or_else(|| panic!("'{request}' lacks a word"));
        let stream = |at: usize| StreamId(words.get(at).map_or(0, |text| text.parse().expect("a stream is a number")));
        let mut output = None;
        match word(0) {
            "capacity" => self.driver.device.set_capacity(size(word(1))),
            "outside" => self.driver.device.set_outside(size(word(1))),
            "alloc" => output = Some(self.alloc(word(1), size(word(2)), stream(3))),
            "free" => self.allocator.free(self.blocks.remove(word(1)).expect("the block lives")),
            "stream" => self.allocator.record_stream(&self.blocks[word(1)], stream(2)),
            "hold" => self.driver.device.hold_events(),
            "done" => drop(self.driver.device.complete_events(stream(1))),
            "process" => self.allocator.process_events().expect("the accounting device does not fail"),
            "sync" => self.allocator.synchronize_events().expect("the accounting device does not fail"),
            "empty" => {
                let released = self.allocator.empty_cache().expect("the accounting device does not fail");
                output = Some(format!("released {}", text(released)));
            }
            "fraction" => {
                let fraction = word(1).parse().expect("a fraction is a number");
                self.allocator.set_memory_fraction(fraction).expect("from 0 to 1");
            }
            "state" => output = Some(self.state()),
            "stat" => output = Some(self.stat(word(1))),
            "reset" if word(1) == "peak" => self.allocator.reset_peak_stats(),
            "reset" => self.allocator.reset_accumulated_stats(),
            other => panic!("no such request: {other}"),
        }
        for line in self.driver.take_lines() {
            let [what, number, offset, bytes] = line.split(' ').collect::<Vec<_>>()[..] else { unreachable!() };
            let [offset, bytes] = [offset, bytes].map(|number| text(number.parse().expect("a number")));
            writeln!(self.out, "  {what} {bytes} at {number}+{offset}").expect("text takes all");
        }
        if let Some(output) = output {
            writeln!(self.out, "{output}").expect("text takes all");
        }
    }

    fn alloc(&mut self, name: &str, bytes: u64, stream: StreamId) -> String {
        match self.allocator.malloc(bytes, stream) {
            Ok(block) => {
                let place = match block.is_empty() {
                    true => "nowhere".to_owned(),
                    false => self.place(block.address()),
                };
                let line = format!("{name}: {} at {place}", text(block.allocated()));
                self.blocks.insert(name.to_owned(), block);
                line
            }
            Err(AllocError::OutOfMemory(report)) => format!("{name}: {report}"),
            Err(error) => format!("{name}: {error}"),
        }
    }

    fn place(&self, address: u64) -> String {
        let place = self.driver.place(address);
        let (number, offset) = place.split_once(' ').expect("a place has two parts");
        format!("{number}+{}", text(offset.parse().expect("a number")))
    }

    fn stat(&self, name: &str) -> String {
        let value = self.allocator.stats().iter().find(|(known, _)| known == name).expect("the statistic exists").1;
        let shown = if name.contains("bytes") { text(value.unsigned_abs()) } else { value.to_string() };
        format!("{name} = {shown}")
    }

    fn state(&self) -> String {
        let names: HashMap<u64, &str> = self.blocks.iter().map(|(name, block)| (block.key(), name.as_str())).collect();
        let mut lines = Vec::new();
        for segment in self.allocator.state() {
            let blocks = segment.blocks.iter().map(|block| {
                let name = block.key.and_then(|key| names.get(&key).copied());
                match block.usage {
                    BlockUsage::Free => format!("({})", text(block.bytes)),
                    BlockUsage::Allocated => {
                        format!("{} {}", name.unwrap_or("?"), text(block.bytes))
                    }
                    BlockUsage::Waiting => format!("waiting {}", text(block.bytes)),
                }
            });
            let blocks: Vec<String> = blocks.collect();
            let place = self.place(segment.address);
            lines.push(format!("  {place} stream {} {}: {}", segment.stream.0, segment.pool, blocks.join(" | ")));
        }
        if lines.is_empty() { "  no segments".to_owned() } else { lines.join("\n") }
    }
}

fn size(text: &str) -> u64 {
    let split = text.find(['+', '-']).unwrap_or(text.len());
    let (number, change) = text.split_at(split);
    let bytes = highwater_recorder::snapshots::units::parse_bytes(number).expect("a size");
    let change: i64 = if change.is_empty() { 0 } else { change.parse().expect("a change in bytes") };
    bytes.checked_add_signed(change).expect("a size above 0")
}

/// Exact, and short where the size is whole in a larger unit.
fn text(bytes: u64) -> String {
    for (unit, size) in [("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)] {
        if bytes > 0 && bytes.is_multiple_of(size) {
            return format!("{}{unit}", bytes / size);
        }
    }
    bytes.to_string()
}
