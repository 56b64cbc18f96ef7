//! Tests that steps and phases are found from annotations if the events do not have them.

use std::fmt::Write as _;

use highwater_notation::{text_from_trace, trace_from_text};
use highwater_snapshots::trace::Annotation;
use highwater_snapshots::{DeviceId, EventId, Phase, Trace, TraceBuilder};

use proptest::collection::vec;
use proptest::prelude::*;

/// A trace from lines, in which `N` alone stands for so many events.
fn trace(lines: &str) -> Trace {
    let mut text = String::new();
    for line in lines.lines().map(str::trim) {
        match line.parse::<usize>() {
            Ok(count) => (0..count).for_each(|_| text += "device_used 1\n"),
            Err(_) => {
                let _ = writeln!(text, "{line}");
            }
        }
    }
    trace_from_text(&text).unwrap()
}

/// The spans, each as `step phase first..end`.
fn spans(lines: &str) -> Vec<String> {
    told(&trace(lines))
}

fn told(trace: &Trace) -> Vec<String> {
    let row = |span: &highwater_snapshots::trace::Span| {
        let step = span.step.map_or("-".to_owned(), |step| step.to_string());
        format!("{step} {} {}..{}", span.phase, span.first.0, span.end.0)
    };
    trace.spans.rows().iter().map(row).collect()
}

#[test]
fn the_profilers_steps_and_pytorchs_own_annotations_make_steps_and_phases() {
    let found = spans(
        r###"
        3
        begin ProfilerStep#4
        begin enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__
        1
        end enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__
        begin "## forward ##"
        begin "step 1"
        2
        end "step 1"
        end "## forward ##"
        begin "## backward ##"
        1
        end "## backward ##"
        begin Optimizer.step#AdamW.step
        2
        end Optimizer.step#AdamW.step
        begin Optimizer.zero_grad#AdamW.zero_grad
        1
        end Optimizer.zero_grad#AdamW.zero_grad
        end ProfilerStep#4
        begin ProfilerStep#5
        begin "## forward ##"
        1
        end "## forward ##"
        end ProfilerStep#5
        2
        "###,
    );
    let expected = [
        "- setup 0..3",
        "4 other 3..4",
        "4 forward 4..6",
        "4 backward 6..7",
        "4 optimizer 7..9",
        "4 zero_grad 9..10",
        "5 forward 10..11",
        "- other 11..13",
    ];
    assert_eq!(found, expected);
}

#[test]
fn steps_by_words_serve_where_the_profiler_named_none_and_the_outermost_counts() {
    let found = spans(
        r#"
        begin "iteration 7"
        1
        begin "batch 0"
        1
        end "batch 0"
        begin "batch 1"
        1
        end "batch 1"
        end "iteration 7"
        1
        begin "iteration 8"
        1
        end "iteration 8"
        "#,
    );
    assert_eq!(found, ["7 other 0..3", "- other 3..4", "8 other 4..5"]);
}

#[test]
fn of_overlapping_annotations_the_later_to_begin_is_the_inner_one() {
    let found = spans(
        "
        begin ProfilerStep#0
        1
        begin forward
        2
        begin ProfilerStep#1
        begin backward
        1
        end ProfilerStep#0
        end forward
        1
        end backward
        1
        end ProfilerStep#1
        ",
    );
    assert_eq!(found, ["0 other 0..1", "0 forward 1..3", "1 backward 3..5", "1 other 5..6"]);
    let overlapping = "begin forward\n2\nbegin backward\n2\nend backward\n1\nend forward";
    assert_eq!(spans(overlapping), ["- forward 0..2", "- backward 2..4", "- forward 4..5"]);
}

#[test]
fn a_forward_within_a_backward_is_a_forward_as_checkpointing_makes_it() {
    let text = "begin backward\n1\nbegin recomputed\nbegin forward\n1\nend forward\n1\nend recomputed\nend backward\n1";
    assert_eq!(spans(text), ["- backward 0..1", "- forward 1..2", "- backward 2..3", "- other 3..4"]);
}

#[test]
fn phases_without_any_step_have_no_setup() {
    assert_eq!(spans("2\nbegin forward\n1\nend forward\n1"), ["- other 0..2", "- forward 2..3", "- other 3..4"]);
}

#[test]
fn where_no_annotation_is_a_step_the_optimizer_ends_one() {
    let step = "
        begin Optimizer.step#SGD.step
        begin optimizer
        1
        end optimizer
        end Optimizer.step#SGD.step
        begin Optimizer.zero_grad#SGD.zero_grad
        1
        end Optimizer.zero_grad#SGD.zero_grad
    ";
    let expected = [
        "0 other 0..2",
        "0 optimizer 2..3",
        "1 zero_grad 3..4",
        "1 other 4..6",
        "1 optimizer 6..7",
        "2 zero_grad 7..8",
    ];
    assert_eq!(spans(&format!("2\n{step}\n2\n{step}")), expected);
    let ends_with_it = "1\nbegin optimizer\n1\nend optimizer";
    assert_eq!(spans(ends_with_it), ["0 other 0..1", "0 optimizer 1..2"]);
    let without_events = "2\nbegin optimizer\nend optimizer\nbegin optimizer\nend optimizer\n3";
    assert_eq!(spans(without_events), ["0 other 0..2", "1 other 2..5"], "an optimizer need not allocate to end a step");
}

#[test]
fn the_first_step_by_the_optimizer_begins_with_a_forward_where_one_is_annotated() {
    let known =
        "3\nbegin zero_grad\n1\nend zero_grad\nbegin forward\n1\nend forward\nbegin optimizer\n1\nend optimizer";
    assert_eq!(spans(known), ["- setup 0..3", "0 zero_grad 3..4", "0 forward 4..5", "0 optimizer 5..6"]);
    let unknown = "3\nbegin zero_grad\n1\nend zero_grad\n1\nbegin optimizer\n1\nend optimizer";
    assert_eq!(spans(unknown), ["0 other 0..3", "0 zero_grad 3..4", "0 other 4..5", "0 optimizer 5..6"]);
}

#[test]
fn what_the_program_stated_outweighs_what_was_guessed() {
    let text = "
        begin ProfilerStep#9 guessed
        begin forward
        1
        begin backward guessed
        1
        end backward
        end forward
        begin optimizer guessed
        1
        end optimizer
        end ProfilerStep#9
        begin step_3
        1
        end step_3
    ";
    let trace = trace(text);
    assert_eq!(told(&trace), ["- forward 0..2", "- optimizer 2..3", "3 other 3..4"]);
    assert!(trace.phases_are_guessed() && !trace.is_complete());
    assert_eq!(trace.trust_sentences(), ["phases are guessed from stacks"]);
}

#[test]
fn a_guess_that_no_span_rests_on_limits_no_trust() {
    let text = "begin forward\n2\nbegin backward guessed\n1\nend backward\nend forward\nbegin mlp guessed\n1";
    let trace = trace(text);
    assert_eq!(told(&trace), ["- forward 0..3", "- other 3..4"]);
    assert!(!trace.phases_are_guessed() && trace.is_complete() && trace.trust_sentences().is_empty());
}

#[test]
fn guessed_steps_serve_where_the_program_stated_none() {
    let trace = trace("1\nbegin ProfilerStep#2 guessed\n1\nend ProfilerStep#2");
    assert_eq!(told(&trace), ["- setup 0..1", "2 other 1..2"]);
    assert!(trace.phases_are_guessed());
}

#[test]
fn step_and_phase_events_outweigh_all_annotations() {
    let text = "begin ProfilerStep#2\nbegin backward\n1\nphase forward\n1\nend backward\nend ProfilerStep#2";
    assert_eq!(spans(text), ["- setup 0..1", "- forward 1..3"]);
}

#[test]
fn annotations_that_say_nothing_leave_all_as_it_was_without_them() {
    assert_eq!(spans("1\nbegin mlp\n1\nend mlp\nbegin forward\nend forward"), ["- setup 0..2"]);
    assert_eq!(spans("begin forward\nend forward"), [""; 0]);
}

#[test]
fn annotations_in_text_read_back_as_they_were_written() {
    let text = r#"
        baseline w 10
        attribute user_metadata "the embedding"
        baseline_mapping 0x100 64 device=1
        attribute pool_id 0,1
        baseline v 20 device=1
        baseline_segment 0x0 64
        attribute pool_id "1,0"
        begin "a \"name\" < of many words" device=1 guessed
        alloc a 100 < f < main
        attribute user_metadata "layer 3"
        attribute compile_context 0/0
        begin inner
        end inner
        mark still there device=1
        attribute k ""
        end "a \"name\" < of many words"
        begin "never ends"
        free a
    "#;
    let trace = trace_from_text(text).unwrap();
    assert_eq!((trace.annotations.len(), trace.attributes.len()), (3, 6));
    assert_eq!(trace.annotations[2].end, EventId(4));
    assert_eq!(trace.events.device[1], DeviceId(1));
    let once = text_from_trace(&trace);
    assert_eq!(text_from_trace(&trace_from_text(&once).unwrap()), once);
    let attributes = once.lines().zip(once.lines().skip(1)).filter(|(_, line)| line.starts_with("attribute pool_id"));
    let owners: Vec<&str> = attributes.map(|(owner, _)| owner).collect();
    assert_eq!(owners, ["baseline_segment 0x0 64 large", "baseline_mapping 0x100 64 large device=1"]);
    for (wrong, why) in [
        ("end x", "line 1: nothing called 'x' has begun"),
        ("begin two words", "line 1: unexpected 'words'; put names with spaces in double quotes"),
        ("begin", "line 1: a name is missing"),
        ("attribute a b", "line 1: an attribute must follow the line that it belongs to"),
    ] {
        assert_eq!(trace_from_text(wrong).unwrap_err().to_string(), why);
    }
}

/// What the rules say of one event, by looking at every annotation: slow, and independent of the sweep.
fn phase_by_hand(trace: &Trace, event: u32) -> Option<Phase> {
    let around = trace.annotations.iter().enumerate().filter(|(_, row)| row.first.0 <= event && event < row.end.0);
    let inner = around.filter_map(|(order, row)| {
        let phase = Phase::from_name(trace.tables.string(row.name))?;
        Some(((!row.is_guessed, row.first, std::cmp::Reverse(row.end), order), phase))
    });
    inner.max_by_key(|(rank, _)| *rank).map(|(_, phase)| phase)
}

proptest! {
    #[test]
    fn spans_cover_every_event_once_and_follow_the_rules(
        rows in vec((0..7_usize, 0..40_u32, 0..20_u32, any::<bool>()), 0..30), events in 1..40_usize,
    ) {
        let mut builder = TraceBuilder::default();
        let names = ["forward", "backward", "optimizer", "zero_grad", "ProfilerStep#3", "step 8", "mlp"];
        builder.tables().strings = names.map(String::from).to_vec();
        for (name, first, length, is_guessed) in rows {
            let name = highwater_snapshots::StringId(name as u32);
            let (first, end) = (EventId(first), EventId(first + length));
            let device = DeviceId(0);
            builder.add_annotation(Annotation { name, device, start_ns: None, end_ns: None, first, end, is_guessed });
        }
        for _ in 0..events {
            let what = highwater_snapshots::event::What::DeviceUsed(1);
            let stack = highwater_snapshots::StackId::NONE;
            builder.push(&highwater_snapshots::event::Event { time_ns: 0, device: DeviceId(0), stack, what });
        }
        let trace = builder.finish();
        let rows = trace.spans.rows();
        let mut at = 0;
        for span in rows {
            prop_assert_eq!(span.first.0, at);
            prop_assert!(span.end.0 > at);
            at = span.end.0;
        }
        prop_assert_eq!(at as usize, events);
        prop_assert!(rows.windows(2).all(|pair| (pair[0].step, pair[0].phase) != (pair[1].step, pair[1].phase)));
        for event in 0..events as u32 {
            let span = trace.spans.at(EventId(event)).unwrap();
            match phase_by_hand(&trace, event) {
                Some(phase) => prop_assert_eq!(span.phase, phase, "event {}", event),
                None => prop_assert!(matches!(span.phase, Phase::Other | Phase::Setup), "event {}", event),
            }
        }
    }
}
