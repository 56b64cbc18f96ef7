//! Tests that the allocator creates the same segments, block addresses and statistics as PyTorch's for every request.
//!
//! The files in `data/alloc` are what PyTorch 2.15 did, written by the script beside them.

use std::collections::{BTreeMap, HashMap};

use highwater_allocator::{AllocError, Block, CachingAllocator};
use highwater_recorder::{DeviceId, StreamId};

use crate::noting_driver::NotingDriver;

/// A file of requests with what PyTorch did.
struct Fixture<'a> {
    header: HashMap<&'a str, &'a str>,
    requests: Vec<(&'a str, Vec<&'a str>)>,
    segments: Vec<&'a str>,
    stats: BTreeMap<&'a str, i64>,
}

impl<'a> Fixture<'a> {
    fn parse(text: &'a str) -> Self {
        let (mut header, mut stats) = (HashMap::new(), BTreeMap::new());
        let (mut requests, mut segments): (Vec<(&str, Vec<&str>)>, Vec<&str>) = Default::default();
        let mut ended = false;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
            match word {
                "config" | "capacity" | "outside" => drop(header.insert(word, rest)),
                "end" => ended = true,
                "stat" => {
                    let (name, value) = rest.split_once(' ').expect("a statistic has a name and a value");
                    stats.insert(name, value.parse().expect("a statistic is a number"));
                }
                _ if ended => segments.push(line),
                _ if line.starts_with("  ") => requests.last_mut().expect("a request comes first").1.push(line.trim()),
                _ => requests.push((line, Vec::new())),
            }
        }
        Self { header, requests, segments, stats }
    }

    fn number(&self, key: &str) -> u64 {
        self.header[key].parse().expect("a size in bytes")
    }
}

/// Sends the requests to our allocator and compares each answer.
fn replay(text: &str) {
    let fixture = Fixture::parse(text);
    let driver = NotingDriver::new(fixture.number("capacity"));
    driver.device.set_outside(fixture.number("outside"));
    let config = fixture.header["config"].parse().expect("PyTorch's settings are ours");
    let allocator = CachingAllocator::new(Box::new(driver.clone()), DeviceId(0), config);
    let mut live: HashMap<u64, Block> = HashMap::new();
    for (position, (request, expected)) in fixture.requests.iter().enumerate() {
        let answer = serve(&allocator, &driver, &mut live, request);
        assert_eq!(&answer, expected, "request {position}: {request}");
        assert_eq!(allocator.audit(), [""; 0], "request {position}: {request}");
    }
    assert_eq!(segment_lines(&allocator, &driver), fixture.segments, "final segments");
    for (name, value) in allocator.stats().iter() {
        assert_eq!(Some(&value), fixture.stats.get(name.as_str()), "{name}");
    }
    assert_eq!(allocator.stats().iter().count(), fixture.stats.len(), "every statistic of PyTorch is ours too");
}

fn serve(
    allocator: &CachingAllocator,
    driver: &NotingDriver,
    live: &mut HashMap<u64, Block>,
    request: &str,
) -> Vec<String> {
    let words: Vec<&str> = request.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    let mut outcome = None;
    match words[0] {
        "alloc" => match allocator.malloc(number(2), StreamId(number(3))) {
            Ok(block) => {
                outcome = Some(format!("block {}", driver.place(block.address())));
                live.insert(number(1), block);
            }
            Err(AllocError::OutOfMemory(_)) => outcome = Some("out_of_memory".to_owned()),
            Err(error) => panic!("{request}: {error}"),
        },
        "free" => allocator.free(live.remove(&number(1)).expect("the block lives")),
        "record_stream" => allocator.record_stream(&live[&number(1)], StreamId(number(2))),
        "empty_cache" => drop(allocator.empty_cache().expect("the accounting device does not fail")),
        other => panic!("unknown request {other}"),
    }
    let mut lines = driver.take_lines();
    lines.extend(outcome);
    lines
}

fn segment_lines(allocator: &CachingAllocator, driver: &NotingDriver) -> Vec<String> {
    let mut segments = Vec::new();
    for segment in allocator.state() {
        let place = driver.place(segment.address);
        let kind = if segment.expandable { "expandable" } else { "fixed" };
        let head = format!("segment {place} {} {} {} {kind}", segment.bytes, segment.stream.0, segment.pool);
        let blocks = segment.blocks.iter();
        let blocks = blocks.map(|block| format!("  {} {} {}", block.usage.name(), block.bytes, block.requested));
        let order: Vec<u64> = place.split(' ').map(|part| part.parse().expect("a number")).collect();
        segments.push((order, std::iter::once(head).chain(blocks).collect::<Vec<_>>()));
    }
    segments.sort();
    segments.into_iter().flat_map(|(_, lines)| lines).collect()
}

macro_rules! fixtures {
    ($($test:ident: $file:literal,)+) => {$(
        #[test]
        fn $test() {
            replay(include_str!(concat!("../data/alloc/", $file, ".txt")));
        }
    )+};
}

fixtures! {
    default_settings_match_pytorch: "default",
    streams_match_pytorch: "streams",
    expandable_segments_match_pytorch: "expandable",
    roundup_divisions_match_pytorch: "roundup",
    a_limit_on_splitting_matches_pytorch: "max_split",
    larger_segments_match_pytorch: "large_segment",
    garbage_collection_matches_pytorch: "garbage",
    a_memory_fraction_matches_pytorch: "fraction",
    running_out_of_memory_matches_pytorch: "oom",
    running_out_of_pages_matches_pytorch: "oom_expandable",
    running_out_with_a_limit_on_splitting_matches_pytorch: "oom_max_split",
}
