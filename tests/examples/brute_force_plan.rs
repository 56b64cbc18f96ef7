//! Runs gpt2 of 2 to 12 layers with every set of its blocks recomputed, and compares the predicted peaks and the plans
//! with these runs. Prints one line for each number of layers; fails if anything differs.
//!
//!     cargo run --release -p highwater-tests --example brute_force_plan [MAX_LAYERS]
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

use std::process::ExitCode;
use std::time::Instant;

use highwater_tests::brute_force::compare_scenario;

fn main() -> ExitCode {
    let most = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(12).min(20);
    println!(
        "{:>6}  {:>7}  {:>5}  {:>7}  {:>11}  {:>9}",
        "layers", "subsets", "peaks", "budgets", "differences", "seconds"
    );
    let mut is_same = true;
    for layers in 2..=most {
        let start = Instant::now();
        let found = compare_scenario(&format!("gpt2 --batch 32 --fused --layers {layers}"), &["h.*"]);
        let (subsets, peaks, budgets, differences) =
            (found.subsets, found.peaks, found.budgets, found.differences.len());
        let seconds = start.elapsed().as_secs_f64();
        println!("{layers:>6}  {subsets:>7}  {peaks:>5}  {budgets:>7}  {differences:>11}  {seconds:>9.2}");
        found.differences.iter().take(5).for_each(|text| println!("        {text}"));
        is_same &= found.differences.is_empty();
    }
    if is_same { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
