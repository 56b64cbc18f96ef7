//! Determines whether a PyTorch optimizer has a fused implementation, from the files in call stacks.

use highwater_snapshots::ids::StackId;
use highwater_snapshots::tables::Tables;

/// The folder of PyTorch's optimizers and their base class.
const FOLDER: &str = "torch/optim/";
/// The files of optimizers whose fused implementation has a step counter on the device for each parameter.
const COUNTING: [&str; 3] = ["torch/optim/adam.py", "torch/optim/adamw.py", "torch/optim/adagrad.py"];
/// The files of other optimizers with a fused implementation.
const STATELESS: [&str; 1] = ["torch/optim/sgd.py"];

/// The fused implementation of a PyTorch optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusedForm {
    /// PyTorch has no fused implementation of this optimizer.
    Missing,
    /// The fused implementation keeps no more state than the other implementations.
    WithoutCounters,
    /// The fused implementation has a step counter on the device for each parameter; the others have it on the CPU.
    WithCounters,
}

/// Returns the fused implementation of the optimizer in call stack `id`; `None` if it contains no PyTorch optimizer.
pub fn fused_form(tables: &Tables, id: StackId) -> Option<FusedForm> {
    let mut found = None;
    for line in tables.stack_frames(id).flat_map(|frame| tables.frame_lines(frame)) {
        let file = tables.string(line.file).replace('\\', "/");
        if COUNTING.iter().any(|name| file.ends_with(name)) {
            return Some(FusedForm::WithCounters);
        }
        if STATELESS.iter().any(|name| file.ends_with(name)) {
            return Some(FusedForm::WithoutCounters);
        }
        if file.contains(FOLDER) {
            found = Some(FusedForm::Missing);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_notation::trace_from_text;

    #[test]
    fn the_file_of_an_optimizer_shows_whether_it_has_a_fused_form() {
        let form = |stack: &str| {
            let trace = trace_from_text(&format!("alloc a 100 temporary < {stack}")).expect("the text is a trace");
            fused_form(&trace.tables, trace.blocks.stack[0])
        };
        let of =
            |file: &str| form(&format!("/site/torch/optim/{file}:3 step < /site/torch/optim/optimizer.py:5 wrapper"));
        assert_eq!(of("adam.py"), Some(FusedForm::WithCounters));
        assert_eq!(of("adagrad.py"), Some(FusedForm::WithCounters));
        assert_eq!(of("sgd.py"), Some(FusedForm::WithoutCounters));
        for file in ["radam.py", "nadam.py", "rprop.py", "_adafactor.py", "../../lion.py"] {
            assert_eq!(of(file), Some(FusedForm::Missing), "{file}");
        }
        assert_eq!(form("train.py:3 step"), None);
    }
}
