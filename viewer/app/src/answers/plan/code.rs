//! The lines to paste that apply a plan: for PyTorch, and for this project's engine.

use highwater_snapshots::scope_pattern::ScopePattern;

use super::change::Change;
use super::step::Setup;

/// Returns the lines of Python and of a shell that apply `setup` to a program whose allocator has the settings `recorded`.
pub fn python(setup: &Setup, recorded: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(settings) = &setup.settings {
        let all = if recorded.is_empty() { settings.clone() } else { format!("{recorded},{settings}") };
        lines.extend([format!("export PYTORCH_CUDA_ALLOC_CONF={all}   # before the program starts"), String::new()]);
    }
    if setup.changes.contains(&Change::Fused) {
        lines.push("optimizer = torch.optim.AdamW(…, fused=True)   # or your optimizer".to_owned());
    }
    let modules = setup.recomputed.as_deref().unwrap_or_default();
    if !modules.is_empty() {
        lines.extend(["import functools", "from torch.utils.checkpoint import checkpoint", ""].map(str::to_owned));
        lines.push("for path in [".to_owned());
        lines.extend(modules.chunks(6).map(|paths| {
            let quoted: Vec<String> = paths.iter().map(|path| format!("\"{path}\"")).collect();
            format!("    {},", quoted.join(", "))
        }));
        lines.push("]:".to_owned());
        lines.push("    module = model.get_submodule(path)".to_owned());
        lines
            .push("    module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)".to_owned());
    }
    lines
}

/// Returns the lines of Rust that apply `setup` to a model of the engine, which is trained with `optimizer`.
pub fn rust(setup: &Setup, optimizer: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let has = |change: Change| setup.changes.contains(&change);
    let rule = if has(Change::EightBit) {
        "AdamW8bit::default()".to_owned()
    } else if has(Change::Fused) {
        format!("{optimizer} {{ form: Form::Fused, ..{optimizer}::default() }}")
    } else {
        format!("{optimizer}::default()")
    };
    if let Some(settings) = &setup.settings {
        lines.push(format!("let device = Device::cuda_with(0, None, \"{settings}\".parse()?)?;"));
    }
    for pattern in ScopePattern::joined(setup.recomputed.as_deref().unwrap_or_default()) {
        lines.push(format!("checkpoint_scopes(&model, \"{pattern}\");"));
    }
    if has(Change::InBackward) {
        lines.push(format!("run_in_backward(&{rule}, &model.parameters())?;"));
    } else if has(Change::EightBit) || has(Change::Fused) {
        lines.push(format!("let mut optimizer = RuleOptimizer::new({rule}, model.parameters())?;"));
    }
    for change in &setup.changes {
        match change {
            Change::MicroBatches(count) => lines.extend([
                format!("let mut accumulation = Accumulation::new({count})?;"),
                "accumulation.backward(&loss)?;   // for the loss of each micro-batch, before the optimizer's step"
                    .to_owned(),
            ]),
            Change::Bf16 => lines.push("let mut init = Init::new(&device, DType::Bf16, seed);".to_owned()),
            _ => {}
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_a_plan_has_its_line() {
        let setup = Setup {
            changes: vec![Change::EightBit, Change::InBackward],
            recomputed: Some(vec!["h.0".to_owned(), "h.1".to_owned()]),
            settings: Some("expandable_segments:True".to_owned()),
        };
        let expected = [
            "let device = Device::cuda_with(0, None, \"expandable_segments:True\".parse()?)?;",
            "checkpoint_scopes(&model, \"h.{0-1}\");",
            "run_in_backward(&AdamW8bit::default(), &model.parameters())?;",
        ];
        assert_eq!(rust(&setup, "AdamW"), expected);
        let lines = python(&Setup { changes: vec![Change::Fused], ..setup }, "max_split_size_mb:64");
        assert!(lines[0].starts_with("export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,expandable_segments:True"));
        assert!(lines.contains(&"    \"h.0\", \"h.1\",".to_owned()), "{lines:?}");
    }
}
