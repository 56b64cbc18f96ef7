//! Beside PyTorch: the table of `docs/beside-pytorch.md`, measured anew. With words, only runs whose command has them.
#![allow(clippy::print_stdout, reason = "printing is what this program is for")]

use highwater_snapshots::units::format_bytes;
use highwater_tests::pytorch::{Stages, measure, runs};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut ratios = Vec::new();
    let mut scenario = String::new();
    let mut above = 0;
    for run in runs() {
        let Some(command) = run.command.as_deref() else {
            continue;
        };
        if !words.iter().all(|word| command.contains(word.as_str()) || run.variant.contains(word.as_str())) {
            continue;
        }
        if run.scenario != scenario {
            scenario.clone_from(&run.scenario);
            println!("\n## {scenario}\n");
            println!(
                "| variant, and `highwater record …` | | after forward | peak of backward | after backward | peak of optimizer | after zero_grad |"
            );
            println!("|---|---|---:|---:|---:|---:|---:|");
        }
        let ours = measure(command, run.steps.len(), folder.path());
        let steady = run.steps.len() - 1;
        for (step, (theirs, ours)) in run.steps.iter().zip(&ours).enumerate() {
            above +=
                theirs.named().zip(ours.named()).filter(|((_, theirs), (_, ours))| ours * 1000 > theirs * 1005).count();
            if step != 0 && step != steady {
                continue;
            }
            let stage = if step == 0 { "first step" } else { "steady" };
            println!("| {} `{command}` | PyTorch, {stage} |{} |", run.variant, cells(theirs));
            println!("| | Highwater, {stage} |{} |", cells(ours));
            let shares: String = columns(ours).into_iter().zip(columns(theirs)).map(share).collect();
            println!("| | |{shares}");
        }
        let most = |steps: &[Stages]| steps.iter().map(Stages::peak).max().unwrap_or(0) as f64;
        ratios.push((most(&ours) / most(&run.steps)).ln());
    }
    let mean = (ratios.iter().sum::<f64>() / ratios.len() as f64).exp();
    println!(
        "\n{} runs; stages more than 0.5 % above PyTorch's: {above}; geometric mean of the peaks' ratios: {mean:.3}",
        ratios.len()
    );
}

fn columns(stages: &Stages) -> [Option<u64>; 5] {
    let &Stages { after_forward, backward_peak, after_backward, optimizer_peak, after_zero_grad } = stages;
    [Some(after_forward), Some(backward_peak), Some(after_backward), optimizer_peak, Some(after_zero_grad)]
}

fn cells(stages: &Stages) -> String {
    columns(stages)
        .map(|bytes| format!(" {} |", bytes.map_or_else(String::new, format_bytes)))
        .concat()
        .trim_end_matches('|')
        .trim_end()
        .to_owned()
}

fn share((ours, theirs): (Option<u64>, Option<u64>)) -> String {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => format!(" {:.3} |", ours as f64 / theirs as f64),
        _ => " |".to_owned(),
    }
}
