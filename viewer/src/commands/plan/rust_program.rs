//! Facts about a built-in step that determine the lines of Rust that apply a plan.

use std::collections::BTreeSet;

use highwater_app::answers::plan::{Change, RustProgram, Setup};
use highwater_engine::scenario::{OptimizerKind, Options, Session};

use super::rerun::Rerun;
use crate::commands::record::running_turn;

impl Rerun {
    /// Returns the facts that determine the lines that apply `setup`.
    ///
    /// # Errors
    /// Returns the reason the step cannot be run.
    pub(super) fn program(&self, setup: &Setup) -> Result<RustProgram, String> {
        let options = &self.options;
        let kind = self.optimizer();
        let rule = match kind {
            Some(OptimizerKind::Sgd) => "Sgd",
            Some(OptimizerKind::Adam) => "Adam",
            Some(OptimizerKind::AdamW8bit) => "AdamW8bit",
            Some(OptimizerKind::AdamW) | None => "AdamW",
        };
        // The default momentum of the scenarios; the rule has none by default.
        let momentum = (kind == Some(OptimizerKind::Sgd)).then(|| options.momentum.unwrap_or(0.9));
        let fields =
            [("learning_rate", options.learning_rate), ("weight_decay", options.weight_decay), ("momentum", momentum)];
        let fields = fields.into_iter().filter_map(|(name, value)| Some(format!("{name}: {:?}", value?)));
        let is_frozen = setup.changes.iter().any(|change| matches!(change, Change::Freeze(_)));
        Ok(RustProgram {
            rule: rule.to_owned(),
            fields: fields.collect(),
            steps_in_backward: options.optimizer_in_backward,
            loss_is_mean: self.loss_is_mean,
            alloc_conf: options.alloc_conf.clone().unwrap_or_default(),
            lora_targets: self.lora_targets().iter().map(|&name| name.to_owned()).collect(),
            frozen: if is_frozen { self.frozen(setup)? } else { Vec::new() },
        })
    }

    fn lora_targets(&self) -> &'static [&'static str] {
        match self.name.as_str() {
            "gpt2" => &["c_attn"],
            "falcon-7b" => &["query_key_value"],
            _ => &["q_proj", "v_proj"],
        }
    }

    /// Returns the modules and parameters that have a gradient in the unchanged step, but not with `setup`.
    fn frozen(&self, setup: &Setup) -> Result<Vec<String>, String> {
        let trained = |setup: &Setup| -> Result<BTreeSet<String>, String> {
            let options = Options { optimizer_in_backward: false, ..self.with(setup, None) };
            let _turn = running_turn();
            let mut session = Session::start(&self.name, &options).map_err(|error| error.to_string())?;
            let gradients = session.gradients().map_err(|error| error.to_string())?;
            Ok(gradients.into_iter().map(|(path, _)| path).collect())
        };
        let (before, after) = (trained(&Setup::default())?, trained(setup)?);
        let mut frozen: Vec<String> = Vec::new();
        for path in before.difference(&after).map(|path| outermost(path, &after)) {
            if !frozen.contains(&path) {
                frozen.push(path);
            }
        }
        Ok(frozen)
    }
}

/// Returns the outermost module that contains `path` but none of `trained`; `path` itself if there is none.
fn outermost(path: &str, trained: &BTreeSet<String>) -> String {
    let ends = path.match_indices('.').map(|(end, _)| end);
    let is_frozen = |module: &str| !trained.iter().any(|other| other.starts_with(module));
    let found = ends.map(|end| &path[..=end]).find(|module| is_frozen(module));
    found.map_or(path, |module| module.trim_end_matches('.')).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frozen_parameters_are_named_by_their_modules() {
        let trained = ["h.1.mlp.weight", "ln.weight", "h.10.mlp.weight"].map(str::to_owned).into();
        for (path, module) in
            [("wte.weight", "wte"), ("h.0.mlp.weight", "h.0"), ("token", "token"), ("ln.bias", "ln.bias")]
        {
            assert_eq!(outermost(path, &trained), module);
        }
    }
}
