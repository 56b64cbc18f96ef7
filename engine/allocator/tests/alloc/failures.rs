//! Tests of driver failures, of blocks passed to the wrong allocator, and of use by many threads.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use expect_test::expect;
use highwater_allocator::AccountingDriver;
use highwater_allocator::{
    AllocConfig, AllocError, Block, CachingAllocator, Capacity, Driver, DriverError, DriverEvent, DriverKind,
};
use highwater_recorder::{DeviceId, StreamId};

const MIB: u64 = 1 << 20;
const STREAM: StreamId = StreamId(0);

/// Fails at what it is told to fail at.
#[derive(Clone)]
struct FailingDriver {
    device: AccountingDriver,
    broken: Arc<Mutex<Vec<&'static str>>>,
    waits: Arc<AtomicU32>,
}

impl FailingDriver {
    fn new() -> Self {
        Self { device: AccountingDriver::new(64 * MIB), broken: Arc::default(), waits: Arc::default() }
    }

    fn set_broken(&self, what: &[&'static str]) {
        *self.broken.lock().expect("no test panics here") = what.to_vec();
    }

    fn check(&self, doing: &'static str) -> Result<(), DriverError> {
        let broken = self.broken.lock().expect("no test panics here").contains(&doing);
        let error = DriverError::Other { doing, message: "the device fell off the bus".to_owned() };
        if broken { Err(error) } else { Ok(()) }
    }

    fn allocator(&self, settings: &str) -> Arc<CachingAllocator> {
        let config: AllocConfig = settings.parse().expect("valid settings");
        CachingAllocator::new(Box::new(self.clone()), DeviceId(0), config)
    }
}

impl Driver for FailingDriver {
    fn kind(&self) -> DriverKind {
        self.device.kind()
    }

    fn name(&self) -> String {
        self.device.name()
    }

    fn capacity(&self) -> Result<Capacity, DriverError> {
        self.device.capacity()
    }

    fn reserve(&self, bytes: u64) -> Result<u64, DriverError> {
        self.check("reserve")?;
        self.device.reserve(bytes)
    }

    fn release(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        self.check("release")?;
        self.device.release(address, bytes)
    }

    fn page_bytes(&self) -> Option<u64> {
        self.device.page_bytes()
    }

    fn reserve_addresses(&self, bytes: u64) -> Result<u64, DriverError> {
        self.device.reserve_addresses(bytes)
    }

    fn map(&self, address: u64, bytes: u64, page: u64) -> Result<(), DriverError> {
        self.check("map")?;
        self.device.map(address, bytes, page)
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        self.device.unmap(address, bytes)
    }

    fn release_addresses(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        self.device.release_addresses(address, bytes)
    }

    fn record_event(&self, stream: StreamId) -> Result<DriverEvent, DriverError> {
        self.check("record event")?;
        self.device.record_event(stream)
    }

    fn query(&self, event: DriverEvent) -> Result<bool, DriverError> {
        self.check("query")?;
        self.device.query(event)
    }

    fn wait(&self, event: DriverEvent) -> Result<(), DriverError> {
        self.check("wait")?;
        self.device.wait(event)
    }

    fn synchronize(&self, stream: StreamId) -> Result<(), DriverError> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.check("synchronize")?;
        self.device.synchronize(stream)
    }
}

fn is_driver_error(result: &Result<Block, AllocError>) -> bool {
    matches!(result, Err(AllocError::Driver(DriverError::Other { .. })))
}

#[test]
fn a_driver_that_fails_fails_the_request_and_leaves_the_books_straight() {
    for (settings, broken) in [("", "reserve"), ("expandable_segments:True", "map")] {
        let driver = FailingDriver::new();
        let allocator = driver.allocator(settings);
        driver.set_broken(&[broken]);
        assert!(is_driver_error(&allocator.malloc(MIB, STREAM)), "{broken}");
        assert_eq!(allocator.audit(), [""; 0], "{broken}");
        driver.set_broken(&[]);
        let block = allocator.malloc(MIB, STREAM).expect("the driver works again");
        allocator.free(block);
        assert_eq!(allocator.audit(), [""; 0], "{broken}");
        assert_eq!(allocator.stats().num_ooms, 0, "a failure is no lack of memory");
    }
}

#[test]
fn a_segment_that_the_driver_fails_to_take_back_is_gone_for_the_allocator() {
    let driver = FailingDriver::new();
    let allocator = driver.allocator("");
    let block = allocator.malloc(30 * MIB, STREAM).expect("there is room");
    allocator.free(block);
    driver.set_broken(&["release"]);
    let error = allocator.empty_cache().expect_err("the driver fails");
    assert_eq!(error.to_string(), "release failed: the device fell off the bus");
    assert_eq!(allocator.stats().reserved_bytes.all.current, 0);
    assert_eq!(allocator.audit(), [""; 0]);
}

#[test]
fn without_an_event_the_stream_is_waited_for_and_if_that_fails_the_block_is_never_reused() {
    let driver = FailingDriver::new();
    let allocator = driver.allocator("");
    let shared = || {
        let block = allocator.malloc(12 * MIB, STREAM).expect("there is room");
        allocator.record_stream(&block, StreamId(1));
        block
    };
    driver.set_broken(&["record event"]);
    allocator.free(shared());
    assert_eq!(driver.waits.load(Ordering::Relaxed), 1);
    assert_eq!(allocator.stats().active_bytes.all.current, 0, "the wait made it free");

    driver.set_broken(&["record event", "synchronize"]);
    allocator.free(shared());
    assert_eq!(allocator.stats().active_bytes.all.current, 12 * MIB);
    driver.set_broken(&[]);
    allocator.empty_cache().expect("the driver works again");
    assert_eq!(allocator.stats().active_bytes.all.current, 12 * MIB, "nobody knows whether it is in use");
    assert_eq!(allocator.audit(), [""; 0]);
}

#[test]
fn a_query_that_fails_fails_the_request_and_the_block_goes_on_waiting() {
    let driver = FailingDriver::new();
    driver.device.hold_events();
    let allocator = driver.allocator("");
    let block = allocator.malloc(12 * MIB, STREAM).expect("there is room");
    allocator.record_stream(&block, StreamId(1));
    allocator.free(block);
    driver.set_broken(&["query", "wait"]);
    assert!(is_driver_error(&allocator.malloc(MIB, STREAM)));
    assert!(allocator.synchronize_events().is_err());
    assert_eq!(allocator.audit(), [""; 0]);
    driver.set_broken(&[]);
    allocator.synchronize_events().expect("the driver works again");
    assert_eq!(allocator.stats().active_bytes.all.current, 0);
}

#[test]
#[should_panic(expected = "this block belongs to another allocator")]
fn a_block_cannot_be_given_to_another_allocator() {
    let [mine, other] = [FailingDriver::new().allocator(""), FailingDriver::new().allocator("")];
    let _at_the_same_place = other.malloc(1, STREAM).expect("there is room");
    other.free(mine.malloc(1, STREAM).expect("there is room"));
}

#[test]
fn fractions_outside_0_to_1_are_refused() {
    let allocator = FailingDriver::new().allocator("");
    for fraction in [-0.1, 1.5, f64::NAN] {
        let error = allocator.set_memory_fraction(fraction).expect_err("no share of a device");
        assert!(error.to_string().contains("from 0 to 1"), "{error}");
    }
}

#[test]
fn sizes_beyond_any_machine_overflow_nothing() {
    let over = |settings: &str| {
        let driver = AccountingDriver::new(u64::MAX);
        CachingAllocator::new(Box::new(driver), DeviceId(0), settings.parse().expect("valid settings"))
    };
    let expandable = over("expandable_segments:True");
    let block = expandable.malloc(5 * MIB, STREAM).expect("there is room");
    expandable.free(block);
    assert_eq!(expandable.empty_cache(), Ok(20 * MIB));

    let most = 1 << 60;
    let limited = over("large_segment_size_mb:1099511627776,per_process_memory_fraction:0.5");
    let mut blocks = vec![limited.malloc(5 * MIB, STREAM).expect("there is room")];
    let error = loop {
        match limited.malloc(most, STREAM) {
            Ok(block) => blocks.push(block),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, AllocError::OutOfMemory(_)), "{error}");
    assert_eq!(limited.stats().reserved_bytes.all.current, blocks.len() as u64 * most);
    assert_eq!(limited.audit(), [""; 0]);
    blocks.into_iter().for_each(|block| limited.free(block));
}

#[test]
fn threads_share_an_allocator() {
    let allocator = FailingDriver::new().allocator("");
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let allocator = &allocator;
            scope.spawn(move || {
                let mut blocks = Vec::new();
                for turn in 0..500_u64 {
                    let stream = StreamId(thread % 2);
                    blocks.push(allocator.malloc(1 + turn * 7919 % 40_000, stream).expect("there is room"));
                    if turn % 3 > 0 {
                        let block = blocks.swap_remove((turn * 31) as usize % blocks.len());
                        allocator.record_stream(&block, StreamId(turn % 4));
                        allocator.free(block);
                    }
                }
                blocks.into_iter().for_each(|block| allocator.free(block));
            });
        }
    });
    allocator.synchronize_events().expect("the accounting device does not fail");
    assert_eq!(allocator.audit(), [""; 0]);
    assert_eq!(allocator.stats().active_bytes.all.current, 0);
    assert_eq!(allocator.stats().allocation.all.allocated, 2000);
}

#[test]
fn the_summary_is_a_table() {
    let allocator = FailingDriver::new().allocator("max_split_size_mb:20");
    let blocks = [100, 3 * MIB, 30 * MIB].map(|bytes| allocator.malloc(bytes, STREAM).expect("there is room"));
    let [small, _stays, large] = blocks;
    allocator.free(small);
    allocator.free(large);
    allocator.empty_cache().expect("the accounting device does not fail");
    expect![[r#"
        memory                           now        peakallocated in allfreed in all
        requested                      3 MiB   33.00 MiB   33.00 MiB   30.00 MiB
          large pool                   3 MiB      33 MiB      33 MiB      30 MiB
          small pool                     0 B       100 B       100 B       100 B
        allocated                      3 MiB   33.00 MiB   33.00 MiB   30.00 MiB
          large pool                   3 MiB      33 MiB      33 MiB      30 MiB
          small pool                     0 B       512 B       512 B       512 B
        active                         3 MiB   33.00 MiB   33.00 MiB   30.00 MiB
          large pool                   3 MiB      33 MiB      33 MiB      30 MiB
          small pool                     0 B       512 B       512 B       512 B
        reserved                      20 MiB      52 MiB      52 MiB      32 MiB
          large pool                  20 MiB      50 MiB      50 MiB      30 MiB
          small pool                     0 B       2 MiB       2 MiB       2 MiB
        stuck in split segments       17 MiB   19.00 MiB   19.00 MiB    2.00 MiB
          large pool                  17 MiB      17 MiB      17 MiB         0 B
          small pool                     0 B    2.00 MiB    2.00 MiB    2.00 MiB
        blocks allocated                   1           3           3           2
          large pool                       1           2           2           1
          small pool                       0           1           1           1
        blocks active                      1           3           3           2
          large pool                       1           2           2           1
          small pool                       0           1           1           1
        segments                           1           3           3           2
          large pool                       1           2           2           1
          small pool                       0           1           1           1
        stuck ranges                       1           2           2           1
          large pool                       1           1           1           0
          small pool                       0           1           1           1
        oversize blocks                    0           1           1           1
        oversize segments                  1           2           2           1
        driver calls: 3 to reserve memory, 2 to release it; out of memory: 0; retries: 0; waits for all streams: 1"#]]
    .assert_eq(&allocator.stats().summary().to_string());
}
