//! Tests the order of work on streams and the waits between streams.

use std::sync::Arc;

use highwater_kernels::number::Number;
use highwater_kernels::{Arguments, Gpu, Grid, Kernel, Types};
use highwater_stand_in::Setup;

use crate::block::{Block, gpu, launch, one_line};

/// Lets `stream` fill 100 numbers with `value`.
fn fill(gpu: &Arc<Gpu>, block: &Block, value: f32, stream: u64) {
    let arguments = Arguments::new().with(block.address).with_words(&one_line(1, 100)).with(value);
    let kernel = Kernel::new("fill", "fill", Types::of(Number::F32));
    launch(gpu, kernel, Grid::row(1), stream, &arguments).expect("a launch");
}

#[test]
fn an_event_is_reached_when_all_before_it_is_done() {
    Setup::new().lazy().run(|| {
        let gpu = gpu();
        let block = Block::of(&gpu, &[0.0_f32; 100]);
        fill(&gpu, &block, 1.0, 0);
        let event = gpu.record_event(0).expect("an event");
        gpu.wait(event).expect("it is reached");
        assert!(gpu.query(event).is_err(), "it is spent");
        fill(&gpu, &block, 2.0, 0);
        let event = gpu.record_event(0).expect("an event");
        while !gpu.query(event).expect("it answers") {}
        assert_eq!(block.read::<f32>(100, gpu.new_stream().expect("a stream")), [2.0; 100]);
    });
}

#[test]
fn lazy_work_is_done_piece_by_piece_as_it_is_asked_for() {
    Setup::new().lazy().only_on_stand_in().run(|| {
        let gpu = gpu();
        let block = Block::of(&gpu, &[0.0_f32; 100]);
        let other = gpu.new_stream().expect("a stream");
        fill(&gpu, &block, 1.0, 0);
        let event = gpu.record_event(0).expect("an event");
        assert_eq!(block.read::<f32>(100, other), [0.0; 100], "nothing waited for it");
        assert!(!gpu.query(event).expect("it answers"), "the kernel ran, the event is next");
        assert_eq!(block.read::<f32>(100, other), [1.0; 100]);
        assert!(gpu.query(event).expect("it answers"));
    });
}

#[test]
fn eager_work_is_done_at_once() {
    Setup::new().only_on_stand_in().run(|| {
        let gpu = gpu();
        let block = Block::of(&gpu, &[0.0_f32; 100]);
        fill(&gpu, &block, 1.0, 0);
        let event = gpu.record_event(0).expect("an event");
        assert!(gpu.query(event).expect("it answers"));
    });
}

#[test]
fn a_stream_that_follows_another_waits_for_what_that_was_given() {
    Setup::new().lazy().run(|| {
        let gpu = gpu();
        let block = Block::of(&gpu, &[0.0_f32; 100]);
        let (first, second) = (gpu.new_stream().expect("a stream"), gpu.new_stream().expect("a stream"));
        fill(&gpu, &block, 1.0, first);
        gpu.follow(second, &gpu, first).expect("it follows");
        fill(&gpu, &block, 2.0, second);
        gpu.follow(first, &gpu, second).expect("it follows");
        assert_eq!(block.read::<f32>(100, first), [2.0; 100]);
        fill(&gpu, &block, 3.0, first);
        gpu.synchronize_all().expect("all is done");
        assert_eq!(block.read::<f32>(100, second), [3.0; 100]);
    });
}

#[test]
fn releasing_memory_waits_for_the_work_that_uses_it() {
    Setup::new().lazy().run(|| {
        let gpu = gpu();
        let kept = Block::of(&gpu, &[0.0_f32; 100]);
        let gone = Block::of(&gpu, &[0.0_f32; 100]);
        fill(&gpu, &gone, 1.0, 0);
        fill(&gpu, &kept, 1.0, 0);
        drop(gone);
        assert_eq!(kept.read::<f32>(100, gpu.new_stream().expect("a stream")), [1.0; 100]);
    });
}

#[test]
fn arguments_are_those_of_the_launch_whatever_becomes_of_them() {
    Setup::new().lazy().run(|| {
        let gpu = gpu();
        let blocks: Vec<Block> = (0..20).map(|_| Block::of(&gpu, &[0.0_f32; 100])).collect();
        blocks.iter().enumerate().for_each(|(i, block)| fill(&gpu, block, i as f32, 0));
        for (i, block) in blocks.iter().enumerate() {
            assert_eq!(block.read::<f32>(100, 0), [i as f32; 100]);
        }
    });
}
