//! Generates the lines of code that apply a plan: for PyTorch, and for this project's engine.

use std::collections::{BTreeMap, BTreeSet};

use highwater_snapshots::ScopePattern;

use super::change::{Change, Setup};

/// The code that applies a plan to a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// Environment variables and their values, to be set before the program starts.
    pub environment: Vec<(String, String)>,
    /// Lines of code for a program with a `model` and an `optimizer`.
    pub lines: Vec<String>,
}

impl Code {
    /// Returns the environment variables as shell assignments of the form `NAME=value`.
    pub fn environment_words(&self) -> Vec<String> {
        self.environment.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }
}

pub(super) const STATISTICS: &str = "the generated lines that recompute modules with batch normalization are used \
                                     unchanged: otherwise recomputation updates running statistics a second time";

pub(super) const CACHE: &str = "the generated lines disable the key-value cache (use_cache), which training does not \
                                need and recomputation would fill twice";

/// State that forward updates, and that recomputation would update a second time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Updates {
    /// The paths of modules with running statistics.
    pub statistics: BTreeSet<String>,
    /// Whether the program fills a key-value cache.
    pub cache: bool,
}

/// Returns the code that applies the settings, the fused optimizer and the recomputation of `setup` to a PyTorch
/// program; other changes are left out. `recorded` are the settings of its allocator.
pub fn python(setup: &Setup, recorded: &str, updates: &Updates) -> Code {
    let mut code = Code::default();
    if let Some(settings) = &setup.settings {
        let all = if recorded.is_empty() { settings.clone() } else { format!("{recorded},{settings}") };
        code.environment.push(("PYTORCH_CUDA_ALLOC_CONF".to_owned(), all));
    }
    let lines = &mut code.lines;
    if setup.changes.contains(&Change::Fused) {
        lines.extend(FUSED.map(str::to_owned));
    }
    let (updating, others): (Vec<&String>, Vec<&String>) =
        setup.recomputed.iter().flatten().partition(|path| updates.statistics.contains(*path));
    if updating.is_empty() && others.is_empty() {
        return code;
    }
    if !lines.is_empty() {
        lines.push(String::new());
    }
    if updates.cache {
        lines.extend(NO_CACHE.map(str::to_owned));
    }
    let imports = ["import functools", "from torch.utils.checkpoint import checkpoint"];
    if updating.is_empty() {
        lines.extend(imports.map(str::to_owned));
    } else {
        lines.extend(["import contextlib", imports[0], "import torch", imports[1]].map(str::to_owned));
        lines.push(String::new());
        lines.extend(KEEP_STATISTICS.map(str::to_owned));
    }
    for (paths, applied) in [(others, &RECOMPUTE[..]), (updating, &RECOMPUTE_KEEPING[..])] {
        if paths.is_empty() {
            continue;
        }
        lines.extend([String::new(), "for path in [".to_owned()]);
        lines.extend(paths.chunks(6).map(|paths| {
            let quoted: Vec<String> = paths.iter().map(|path| format!("\"{path}\"")).collect();
            format!("    {},", quoted.join(", "))
        }));
        lines.push("]:".to_owned());
        lines.extend(applied.iter().map(|line| (*line).to_owned()));
    }
    code
}

const FUSED: [&str; 6] = [
    "# Before the first step, or pass fused=True where the optimizer is made:",
    "for group in optimizer.param_groups:",
    "    group.update(foreach=False, fused=True)",
    "for parameter, state in optimizer.state.items():",
    "    if \"step\" in state:  # on the CPU: Adagrad has it before the first step",
    "        state[\"step\"] = state[\"step\"].to(parameter.device)",
];
const NO_CACHE: [&str; 5] = [
    "# Training needs no cache of keys and values, and a second forward would fill it twice:",
    "for module in model.modules():",
    "    if getattr(getattr(module, \"config\", None), \"use_cache\", False):",
    "        module.config.use_cache = False",
    "",
];
const RECOMPUTE: [&str; 2] = [
    "    module = model.get_submodule(path)",
    "    module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)",
];
/// Lines that recompute the module at `path` without updating its running statistics a second time.
const RECOMPUTE_KEEPING: [&str; 5] = [
    "    module = model.get_submodule(path)",
    "    contexts = functools.partial(lambda module: (contextlib.nullcontext(), keep_statistics(module)), module)",
    "    module.forward = functools.partial(",
    "        checkpoint, module.forward, use_reentrant=False, context_fn=contexts",
    "    )",
];
const KEEP_STATISTICS: [&str; 12] = [
    "@contextlib.contextmanager",
    "def keep_statistics(module):",
    "    norms = [part for part in module.modules() if isinstance(part, torch.nn.modules.batchnorm._NormBase)]",
    "    kept = [(norm.momentum, norm.num_batches_tracked) for norm in norms]",
    "    for norm in norms:",
    "        norm.momentum, norm.num_batches_tracked = 0.0, None",
    "    try:",
    "        yield",
    "    finally:",
    "        for norm, (momentum, count) in zip(norms, kept):",
    "            norm.momentum, norm.num_batches_tracked = momentum, count",
    "",
];

/// Properties of the program, apart from the changes, that affect the generated Rust code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RustProgram {
    /// The optimizer's rule, such as `AdamW`.
    pub rule: String,
    /// The fields of the rule that differ from its default, such as `learning_rate: 0.1`.
    pub fields: Vec<String>,
    /// Whether the optimizer already steps in backward.
    pub steps_in_backward: bool,
    /// Whether the loss is a mean over the batch rather than a sum.
    pub loss_is_mean: bool,
    /// The settings that the allocator already has.
    pub alloc_conf: String,
    /// The layers that get LoRA adapters.
    pub lora_targets: Vec<String>,
    /// The modules and parameters that are frozen.
    pub frozen: Vec<String>,
}

impl RustProgram {
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

/// Returns the Rust lines that apply `setup` to `program`, which trains a `model` of the engine; imports first.
pub fn rust(setup: &Setup, program: &RustProgram) -> Code {
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
    Code { environment: Vec::new(), lines: all }
}

const ENGINE: &str = "highwater_engine";
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

/// The `use` declarations of the generated lines: names of the engine's crate, by module.
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
        assert_eq!(rust(&setup, &program).lines, expected);
        let split = Setup { changes: vec![Change::MicroBatches(4)], ..Setup::default() };
        let line = "loss.backward()?; // for each of 4 equal parts of the batch, before the optimizer's step";
        assert_eq!(rust(&split, &program).lines, [line], "a loss that is a sum");
        let updating = Updates { statistics: BTreeSet::from(["h.1".to_owned()]), cache: true };
        let Code { environment, lines } =
            python(&Setup { changes: vec![Change::Fused], ..setup }, "max_split_size_mb:64", &updating);
        let conf = "max_split_size_mb:64,expandable_segments:True".to_owned();
        assert_eq!(environment, [("PYTORCH_CUDA_ALLOC_CONF".to_owned(), conf)]);
        let at = |text: &str| lines.iter().position(|line| line == text).unwrap_or_else(|| panic!("{text}: {lines:?}"));
        assert!(
            at("    group.update(foreach=False, fused=True)") < at("        module.config.use_cache = False")
                && at("        module.config.use_cache = False") < at("    \"h.0\",")
                && at("    \"h.0\",") < at("    \"h.1\",")
        );
        assert_eq!(lines.iter().filter(|line| line.contains("context_fn=contexts")).count(), 1, "{lines:?}");
    }
}
