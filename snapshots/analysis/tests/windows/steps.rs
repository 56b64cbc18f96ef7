//! Tests that the steps of each device are counted without reading events.

use std::ops::ControlFlow;

use highwater_analysis::Source;
use highwater_analysis::summary::{DeviceSummary, summarize};
use highwater_notation::trace_from_text;
use highwater_snapshots::event::Event;
use highwater_snapshots::format::{EndFacts, Index, SectionKind, SnapWriter, count_steps, write_trace};
use highwater_snapshots::trace::Header;

use crate::program::{Numbers, open, watch};

#[test]
fn the_steps_of_each_device_are_counted_from_summaries_of_files_and_of_events() {
    let mut numbers = Numbers(5);
    let mut text = String::from("alloc x 1 device=2\n");
    for step in 0..2500 {
        text += &format!("step {step}\n");
        if step % 50 == 0 {
            text += &format!("phase forward\nstep {step}\n");
        }
        for _ in 0..numbers.below(4) {
            let device = numbers.below(12);
            match device {
                0..3 => text += &format!("alloc a{step} 5 device={device}\nfree a{step} device={device}\n"),
                3 => text += "device_used 900 device=1\n",
                4 => text += "phase forward\n",
                5 => text += "phase setup\nalloc s 7 device=1\nfree s device=1\n",
                _ => {}
            }
        }
        // Some steps are longer than a row.
        if step % 700 == 9 {
            text += &format!("alloc b{step} 5\nfree b{step}\n").repeat(4500);
        }
    }
    let whole = trace_from_text(&text).unwrap();
    let steps = |devices: &[DeviceSummary]| devices.iter().map(|device| device.steps).collect::<Vec<_>>();
    let expected = steps(&summarize(&Source::in_memory(whole.clone()), watch()).unwrap());
    assert!(expected.len() == 3 && expected.iter().all(|steps| (500..2400).contains(steps)), "{expected:?}");
    let computed = open(&write_trace(Vec::new(), &whole).unwrap());
    assert!(computed.summaries().len() > 5);
    assert_eq!(count_steps(computed.summaries(), &whole.device_ids()), Some(expected.clone()));
    let mut copy = Vec::new();
    for interval in [300, 5000] {
        let mut writer = SnapWriter::new(Vec::new(), &Header::default()).unwrap();
        writer.set_checkpoint_interval(interval);
        let mut take = |_: u64, events: &[Event]| {
            events.chunks(170).for_each(|events| writer.write_events(events).unwrap());
            ControlFlow::Continue(())
        };
        computed.read(0..computed.events(), &mut take).unwrap();
        copy = writer.finish(&EndFacts::default()).unwrap();
        assert_eq!(count_steps(open(&copy).summaries(), &whole.device_ids()), Some(expected.clone()));
    }
    // Damaged, it is unknown, and counted from the events.
    let index = Index::from_bytes(&copy).unwrap();
    let row = index.rows.iter().find(|row| row.kind == SectionKind::StepActivity.code()).unwrap();
    copy[row.offset as usize + 50] ^= 4;
    let damaged = open(&copy);
    assert_eq!(count_steps(damaged.summaries(), &whole.device_ids()), None);
    let damaged = Source::in_windows(damaged).unwrap().in_windows_of(1000);
    assert_eq!(steps(&summarize(&damaged, watch()).unwrap()), expected);
}
