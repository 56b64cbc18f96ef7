//! The lines to paste that apply a plan: for PyTorch, and for this project's engine.

use std::collections::{BTreeMap, BTreeSet};

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

/// What the lines of Rust depend on, beside the changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RustProgram {
    /// The optimizer's rule: `AdamW`.
    pub rule: String,
    /// The fields of the rule that differ from its default: `learning_rate: 0.1`.
    pub fields: Vec<String>,
    /// Whether the optimizer already steps in backward.
    pub steps_in_backward: bool,
    /// Whether the loss is a mean over the batch, and not a sum.
    pub loss_is_mean: bool,
    /// The settings that the allocator already has.
    pub alloc_conf: String,
    /// The layers that get LoRA adapters.
    pub lora_targets: Vec<String>,
    /// The modules and parameters that are frozen.
    pub frozen: Vec<String>,
}

impl RustProgram {
    /// Returns the optimizer's rule with the changes of `setup`, and the names to import for it.
    fn rule_with(&self, setup: &Setup) -> (String, Vec<&str>) {
        let is_eight_bit = setup.changes.contains(&Change::EightBit);
        let name = if is_eight_bit { "AdamW8bit" } else { &self.rule };
        let is_fused = setup.changes.contains(&Change::Fused) && !is_eight_bit;
        let form = is_fused.then(|| "form: Form::Fused".to_owned());
        let fields: Vec<String> = self.fields.iter().cloned().chain(form).collect();
        let rule = match fields.is_empty() {
            true => format!("{name}::default()"),
            false => format!("{name} {{ {}, ..{name}::default() }}", fields.join(", ")),
        };
        (rule, if is_fused { vec![name, "Form"] } else { vec![name] })
    }
}

/// Returns the lines of Rust that apply `setup` to `program`, which trains a `model` of the engine. The lines that import
/// names come first.
pub fn rust(setup: &Setup, program: &RustProgram) -> Vec<String> {
    let (mut imports, mut lines) = (Imports::default(), Vec::new());
    let has = |change: Change| setup.changes.contains(&change);
    if let Some(settings) = &setup.settings {
        imports.add("", &["Device"]);
        let recorded = &program.alloc_conf;
        let all = if recorded.is_empty() { settings.clone() } else { format!("{recorded},{settings}") };
        lines.push(format!("let device = Device::cuda_with(0, None, \"{all}\".parse()?)?;"));
    }
    for change in &setup.changes {
        match change {
            Change::Bf16 => {
                imports.add("", &["DType"]);
                imports.add("nn", &["Init"]);
                lines.push("let mut init = Init::new(&device, DType::Bf16, seed); // for the model".to_owned());
            }
            Change::Lora(rank) => {
                imports.add("nn", &["LoraOptions"]);
                let targets = quoted(&program.lora_targets);
                lines.push(format!("let lora = LoraOptions::new({rank}, &[{targets}]); // for the model"));
            }
            Change::Freeze(_) => {
                lines.push(format!("let frozen = [{}];", quoted(&program.frozen)));
                lines.extend(FREEZE.map(str::to_owned));
            }
            _ => {}
        }
    }
    for pattern in ScopePattern::joined(setup.recomputed.as_deref().unwrap_or_default()) {
        imports.add("nn", &["checkpoint_scopes"]);
        lines.push(format!("checkpoint_scopes(&model, \"{pattern}\")?;"));
    }
    let is_new_rule = has(Change::EightBit) || has(Change::Fused);
    if has(Change::InBackward) || is_new_rule {
        imports.add("nn", &["Module"]);
        let (rule, names) = program.rule_with(setup);
        imports.add("optim", &names);
        if has(Change::InBackward) || program.steps_in_backward {
            imports.add("optim", &["run_in_backward"]);
            lines.push(format!("run_in_backward(&{rule}, &model.parameters())?; // instead of an optimizer"));
        } else {
            imports.add("optim", &["RuleOptimizer"]);
            lines.push(format!("let mut optimizer = RuleOptimizer::new({rule}, model.parameters())?;"));
        }
    }
    for change in &setup.changes {
        let Change::MicroBatches(count) = change else { continue };
        lines.push(format!(
            "// For each of {count} equal parts of the batch, instead of loss.backward() and the optimizer's step:"
        ));
        if program.loss_is_mean {
            imports.add("optim", &["Accumulation"]);
            lines.insert(lines.len() - 1, format!("let mut accumulation = Accumulation::new({count})?;"));
            lines.push("accumulation.backward(&loss)?;".to_owned());
            lines.push("accumulation.step(&mut optimizer)?;".to_owned());
        } else {
            lines.pop();
            lines.push(format!(
                "loss.backward()?; // for each of {count} equal parts of the batch, before the optimizer's step"
            ));
        }
    }
    let mut all = imports.lines();
    all.extend((!all.is_empty()).then(String::new));
    all.extend(lines);
    all
}

/// The engine's crate.
const ENGINE: &str = "highwater_engine";
/// Freezes the parameters of the modules named in `frozen`.
const FREEZE: [&str; 6] = [
    "for parameter in model.parameters() {",
    "    let is_within = |name: &str| format!(\"{}.\", parameter.path).starts_with(&format!(\"{name}.\"));",
    "    if frozen.into_iter().any(is_within) {",
    "        parameter.tensor.set_requires_grad(false)?;",
    "    }",
    "}",
];

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

/// The names of the engine that lines use, by module.
#[derive(Default)]
struct Imports<'a>(BTreeMap<&'static str, BTreeSet<&'a str>>);

impl<'a> Imports<'a> {
    fn add(&mut self, module: &'static str, names: &[&'a str]) {
        self.0.entry(module).or_default().extend(names);
    }

    fn lines(&self) -> Vec<String> {
        let line = |(module, names): (&&str, &BTreeSet<&str>)| {
            let path = if module.is_empty() { ENGINE.to_owned() } else { format!("{ENGINE}::{module}") };
            let names: Vec<&str> = names.iter().copied().collect();
            match names[..] {
                [one] => format!("use {path}::{one};"),
                _ => format!("use {path}::{{{}}};", names.join(", ")),
            }
        };
        self.0.iter().map(line).collect()
    }
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
            "use highwater_engine::Device;",
            "use highwater_engine::nn::{Module, checkpoint_scopes};",
            "use highwater_engine::optim::{AdamW8bit, run_in_backward};",
            "",
            "let device = Device::cuda_with(0, None, \"max_split_size_mb:64,expandable_segments:True\".parse()?)?;",
            "checkpoint_scopes(&model, \"h.{0-1}\")?;",
            "run_in_backward(&AdamW8bit { learning_rate: 0.1, ..AdamW8bit::default() }, &model.parameters())?; // instead \
             of an optimizer",
        ];
        let program = RustProgram {
            rule: "AdamW".to_owned(),
            fields: vec!["learning_rate: 0.1".to_owned()],
            alloc_conf: "max_split_size_mb:64".to_owned(),
            ..RustProgram::default()
        };
        assert_eq!(rust(&setup, &program), expected);
        let split = Setup { changes: vec![Change::MicroBatches(4)], ..Setup::default() };
        let line = "loss.backward()?; // for each of 4 equal parts of the batch, before the optimizer's step";
        assert_eq!(rust(&split, &program), [line], "a loss that is a sum");
        let lines = python(&Setup { changes: vec![Change::Fused], ..setup }, "max_split_size_mb:64");
        assert!(lines[0].starts_with("export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,expandable_segments:True"));
        assert!(lines.contains(&"    \"h.0\", \"h.1\",".to_owned()), "{lines:?}");
    }
}
