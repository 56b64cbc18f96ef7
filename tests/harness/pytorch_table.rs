//! The page with every run of PyTorch next to ours.

use std::fmt::Write as _;
use std::path::Path;

use highwater_snapshots::units::format_bytes;

use super::pytorch::{Run, Stages, measure, runs};

/// The tables, and what comes of them.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Markdown, a section for each model.
    pub text: String,
    /// Stages that take more than 0.5% above PyTorch's, each in a sentence.
    pub above: Vec<String>,
    /// By run, our highest total in backward and optimizer over PyTorch's.
    pub peak_ratios: Vec<f64>,
}

impl Comparison {
    /// Measures all runs whose command or variant has these words; recordings go into `folder`.
    pub fn measure(words: &[String], folder: &Path) -> Self {
        let mut comparison = Self::default();
        let mut scenario = String::new();
        for run in runs() {
            let Some(command) = run.command.clone() else { continue };
            if !words.iter().all(|word| command.contains(word.as_str()) || run.variant.contains(word.as_str())) {
                continue;
            }
            if run.scenario != scenario {
                scenario.clone_from(&run.scenario);
                comparison.line(&format!("\n## {scenario}\n"));
                comparison.line(
                    "| variant, and `highwater record …` | | after forward | peak of backward | after backward | peak of \
                     optimizer | after zero_grad |",
                );
                comparison.line("|---|---|---:|---:|---:|---:|---:|");
            }
            comparison.add(&run, &command, &measure(&command, run.steps.len(), folder));
        }
        let (count, above, mean) = (comparison.peak_ratios.len(), comparison.above.len(), comparison.mean());
        comparison.line(&format!(
            "\n{count} runs. Stages more than 0.5% above PyTorch's: {above}. Geometric mean of the peaks' ratios: {mean:.3}."
        ));
        comparison
    }

    /// The geometric mean of the peaks' ratios.
    pub fn mean(&self) -> f64 {
        (self.peak_ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / self.peak_ratios.len() as f64).exp()
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn add(&mut self, run: &Run, command: &str, ours: &[Stages]) {
        let steady = run.steps.len() - 1;
        for (step, (theirs, ours)) in run.steps.iter().zip(ours).enumerate() {
            let named = theirs.named().zip(ours.named());
            for ((stage, theirs), (_, ours)) in named.filter(|((_, theirs), (_, ours))| ours * 1000 > theirs * 1005) {
                let variant = &run.variant;
                self.above.push(format!("{variant} (`{command}`), step {step}, {stage}: {ours} above {theirs} bytes"));
            }
            if step != 0 && step != steady {
                continue;
            }
            let stage = if step == 0 { "first step" } else { "steady" };
            self.line(&format!("| {} `{command}` | PyTorch, {stage} |{}", run.variant, cells(theirs)));
            self.line(&format!("| | Highwater, {stage} |{}", cells(ours)));
            let ratios = columns(ours).into_iter().zip(columns(theirs)).map(|(ours, theirs)| match (ours, theirs) {
                (Some(ours), Some(theirs)) => format!(" {:.3} |", ours as f64 / theirs as f64),
                _ => " |".to_owned(),
            });
            self.line(&format!("| | |{}", ratios.collect::<String>()));
        }
        let most = |steps: &[Stages]| steps.iter().map(Stages::peak).max().unwrap_or(0) as f64;
        self.peak_ratios.push(most(ours) / most(&run.steps));
    }
}

fn columns(stages: &Stages) -> [Option<u64>; 5] {
    let &Stages { after_forward, backward_peak, after_backward, optimizer_peak, after_zero_grad } = stages;
    [Some(after_forward), Some(backward_peak), Some(after_backward), optimizer_peak, Some(after_zero_grad)]
}

fn cells(stages: &Stages) -> String {
    columns(stages).into_iter().fold(String::new(), |mut cells, bytes| {
        write!(cells, " {} |", bytes.map_or_else(String::new, format_bytes)).expect("writing to a string cannot fail");
        cells
    })
}
