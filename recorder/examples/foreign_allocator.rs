//! Records an allocator of your own: it is registered once as a source, which describes its device and what is live,
//! and makes one call for each allocation and two for each free, when it is requested and when the block can be reused.
//!
//! `cargo run -p highwater-recorder --example foreign_allocator`, then `highwater foreign.snap`.

use std::sync::{Arc, Mutex};

use highwater_recorder::api::{self, NewBlock};
use highwater_recorder::snapshots::StartingState;
use highwater_recorder::snapshots::trace::DeviceFacts;
use highwater_recorder::{
    Category, DeviceId, HistoryOptions, Phase, Pool, Source, StreamId, record_memory_history, scope,
};

/// A bump allocator, so that the example is short.
#[derive(Default)]
struct Bump {
    next: Mutex<(u64, u64)>,
}

impl Bump {
    fn alloc(&self, bytes: u64) -> u64 {
        let mut next = self.next.lock().expect("a thread panicked while it held the lock");
        let (block, address) = *next;
        *next = (block + 1, address + bytes.next_multiple_of(512));
        let allocated = next.1 - address;
        let (stream, pool) = (StreamId(0), Pool::Small);
        api::alloc(DeviceId(0), &NewBlock { block, address, requested: bytes, allocated, stream, pool });
        block
    }

    fn free(&self, block: u64) {
        let _order = self.next.lock().expect("a thread panicked while it held the lock");
        api::free_requested(DeviceId(0), block);
        api::free_completed(DeviceId(0), block);
    }
}

impl Source for Bump {
    fn facts(&self) -> DeviceFacts {
        DeviceFacts { name: "bump".to_owned(), ..DeviceFacts::default() }
    }

    fn freeze(&self, read: &mut dyn FnMut(StartingState)) {
        let _order = self.next.lock().expect("a thread panicked while it held the lock");
        // This one keeps no list of its blocks; an allocator that does gives it here.
        read(StartingState::default());
    }
}

fn main() -> Result<(), highwater_recorder::Error> {
    let allocator = Arc::new(Bump::default());
    let source: Arc<dyn Source> = allocator.clone();
    api::register(&source);
    let run = record_memory_history(HistoryOptions::to_file("foreign.snap"), || {
        for step in 0..3 {
            scope::step(step);
            let _phase = scope::phase(Phase::Forward);
            let _module = scope::scope("encoder");
            let _category = scope::category(Category::Activation);
            let blocks: Vec<u64> = (1..20).map(|size| allocator.alloc(size * 10_000)).collect();
            blocks.into_iter().for_each(|block| allocator.free(block));
        }
        Ok(())
    })?;
    run.problem.map_or(Ok(()), Err)
}
