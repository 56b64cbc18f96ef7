//! Tests of where guessed phases end.

use super::tests::{FORWARD, guessed, training};
use super::{Rules, guess};

/// The program's own code, with its outermost frame.
const OWN: &str = "run@t.py < _run_code@runpy.py";

/// The phases guessed for `lines`, in which `F` stands for a module, and `O` for other code.
fn phases(lines: &str) -> Vec<(String, u32, u32)> {
    let module = format!("< {}", FORWARD.replace("main@t.py", "_run_code@runpy.py"));
    let lines = lines.replace("< F\n", &format!("{module}\n")).replace("< O\n", &format!("< {OWN}\n"));
    let trace = guess(training(&lines), &Rules::default());
    let phases = guessed(&trace).into_iter().filter(|(name, ..)| !name.starts_with("step"));
    phases.map(|(name, first, end)| (name.to_owned(), first, end)).collect()
}

fn forward(first: u32, end: u32) -> (String, u32, u32) {
    ("forward".to_owned(), first, end)
}

fn backward(first: u32, end: u32) -> (String, u32, u32) {
    ("backward".to_owned(), first, end)
}

/// Four blocks of modules, named by `step`.
fn modules(step: u32) -> String {
    (0..4).map(|layer| format!("alloc h{step}.{layer} 50 < F\n")).collect()
}

/// Frees them in `stack`.
fn freed(step: u32, stack: &str) -> String {
    (0..4).map(|layer| format!("free h{step}.{layer}{stack}\n")).collect()
}

#[test]
fn a_graph_that_the_program_drops_ends_forward() {
    // Each free is two events.
    let lines = modules(0) + &freed(0, " < O") + &modules(1) + &freed(1, " < O");
    assert_eq!(phases(&lines), [forward(0, 4), forward(12, 16)]);
    // The next forward may have run before the former graph is dropped.
    let lines = modules(0) + &modules(1) + &freed(0, " < O") + &modules(2) + &freed(1, " < O");
    assert_eq!(phases(&lines), [forward(0, 8), forward(16, 20)]);
    // C++ frames show a graph even if it has one block.
    let drop = "torch::autograd::SavedVariable::reset_data()@a < _run_code@runpy.py";
    let lines = format!("alloc h 50 < F\nalloc k 50 < F\nfree h < {drop}\nalloc l 50 < F\n");
    assert_eq!(phases(&lines), [forward(0, 2), forward(4, 5)]);
}

#[test]
fn frees_without_their_own_stacks_end_forward_if_no_module_allocates_next() {
    let with = |next: &str| phases(&(modules(0) + &freed(0, " < F") + next + "alloc k 50 < F\n"));
    assert_eq!(with("alloc x 10 < O\n"), [forward(0, 4), forward(13, 14)]);
    assert_eq!(with(""), [forward(0, 13)], "a module may free what it needs no more");
    assert_eq!(phases(&(modules(0) + &freed(0, " < F"))), [forward(0, 4)]);
}

#[test]
fn the_loss_belongs_to_forward_whatever_it_frees() {
    let loss = "alloc p 9 < O\nalloc q 9 < O\nalloc r 9 < O\nfree p < O\nfree q < O\nfree r < O\nalloc l 4 < O\n";
    let lines = modules(0) + loss + "alloc g 7\nalloc d 7\nalloc e 7\n";
    assert_eq!(phases(&lines), [forward(0, 14), backward(14, 17)]);
    // As do blocks of modules that it frees.
    let lines = format!("{}alloc k 50 < F\n{}{loss}alloc g 7\n", modules(0), freed(0, " < O"));
    assert_eq!(phases(&lines), [forward(0, 23), backward(23, 24)]);
}

#[test]
fn what_runs_between_two_forwards_is_unknown_if_the_first_kept_nothing() {
    let metrics = |step: u32| {
        (0..3).map(|row| format!("alloc m{step}.{row} 4 < O\n")).collect::<String>() + &format!("alloc x{step} 9 < O\n")
    };
    let step = |step: u32| format!("alloc h{step} 50 < F\nalloc o{step} 50 < F\nfree h{step} < F\n");
    let lines = step(0) + &metrics(0) + "free o0 < O\n" + &step(1);
    assert_eq!(phases(&lines), [forward(0, 4), forward(10, 14)]);
    // What waits for backward shows that forward goes on, as where two models make one loss.
    let lines = modules(0) + &metrics(0) + &modules(1) + "alloc g 7\n";
    assert_eq!(phases(&lines), [forward(0, 12), backward(12, 13)]);
    // So do few blocks, as where a program calls one module after another.
    let lines = step(0) + "alloc m 4 < O\nfree o0 < O\n" + &step(1);
    assert_eq!(phases(&lines), [forward(0, 11)]);
}

#[test]
fn data_and_moved_modules_end_forward_unless_backward_follows() {
    let data = "alloc x 9 < get_batch@data.py < _run_code@runpy.py\n";
    let inner = "alloc x 9 < convert@torch/nn/modules/module.py < to@torch/nn/modules/module.py < forward@m.py\n";
    let lines = |between: &str| modules(0) + between + &modules(1);
    assert_eq!(phases(&lines(data)), [forward(0, 4), forward(5, 9)]);
    assert_eq!(phases(&lines("alloc x 9 < S\n")), [forward(0, 4), forward(5, 9)]);
    assert_eq!(phases(&lines(inner)), [forward(0, 9)]);
    let lines = modules(0) + data + "alloc l 4 < O\nalloc g 7\n";
    assert_eq!(phases(&lines), [forward(0, 6), backward(6, 7)]);
}

#[test]
fn what_the_programs_thread_does_between_two_backwards_is_unknown() {
    let own = |name: &str| format!("alloc {name}a 9 < O\nalloc {name}b 9 < O\nalloc {name}c 9 < O\n");
    let lines = modules(0) + "alloc g 7\n" + &own("x") + "alloc d 7\n";
    assert_eq!(phases(&lines), [forward(0, 4), backward(4, 5), backward(8, 9)]);
    // A hook runs in autograd's thread.
    let lines = modules(0) + "alloc g 7\n" + &own("x").replace("< O", "< hook@h.py") + "alloc d 7\n";
    assert_eq!(phases(&lines), [forward(0, 4), backward(4, 9)]);
}

#[test]
fn blocks_that_forward_kept_are_activations_where_the_graph_is_dropped() {
    let lines = modules(0) + "alloc t 7 < F\nfree t < F\nalloc k 50 < F\n" + &freed(0, " < main@t.py");
    let found = super::tests::categories(&lines);
    assert_eq!(found, ["activation", "activation", "activation", "activation", "temporary", "activation"]);
}
