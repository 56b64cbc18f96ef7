//! The list of scenarios, and lookup by name.

use super::definition::{Scenario, ScenarioInfo};
use super::error::ScenarioError;
use super::options::{OptimizerKind, Options};
use super::{branch, chain, fcn, language, nerf, rnn, small, vit};
use crate::optim::Form;

/// Options of every scenario.
const COMMON: [&str; 14] = [
    "--device",
    "--steps",
    "--optimizer",
    "--foreach",
    "--no-foreach",
    "--fused",
    "--learning-rate",
    "--weight-decay",
    "--momentum",
    "--optimizer-in-backward",
    "--no-recompute",
    "--capacity",
    "--alloc-conf",
    "--seed",
];

const MAY_BE_ZERO: [&str; 1] = ["--padding"];

const SCENARIOS: &[Scenario] = &[
    vit::VIT_L_16,
    nerf::TINY_NERF,
    fcn::FCN,
    branch::FROZEN_BRANCH,
    chain::MATMUL_CHAIN,
    rnn::RNN,
    language::FALCON_7B,
    language::LLAMA_3_8B,
    language::GPT2,
    small::VIT_SMALL,
    small::MLP,
];
const INFOS: &[ScenarioInfo] = &{
    let mut infos = [SCENARIOS[0].info; SCENARIOS.len()];
    let mut next = 0;
    while next < infos.len() {
        infos[next] = SCENARIOS[next].info;
        next += 1;
    }
    infos
};

/// Returns all scenarios.
pub fn all() -> &'static [ScenarioInfo] {
    INFOS
}

/// Returns the default optimizer of scenario `name`; `None` if the scenario updates no parameters or is unknown.
pub fn optimizer_of(name: &str) -> Option<OptimizerKind> {
    SCENARIOS.iter().find(|scenario| scenario.info.name == name)?.optimizer
}

/// Returns the scenario called `name`. Fails if there is none, or if `options` are unsupported, invalid or in conflict.
pub(crate) fn find(name: &str, options: &Options) -> Result<&'static Scenario, ScenarioError> {
    let scenario = SCENARIOS.iter().find(|scenario| scenario.info.name == name);
    let unknown = || ScenarioError::UnknownScenario {
        name: name.to_owned(),
        known: INFOS.iter().map(|info| info.name).collect(),
    };
    let scenario = scenario.ok_or_else(unknown)?;
    let info = &scenario.info;
    for (option, value) in options.given() {
        let has_it = info.options.contains(&option) || (option == "--variant" && !info.variants.is_empty());
        if !has_it {
            let known = COMMON.iter().chain(info.options).copied().collect();
            return Err(ScenarioError::UnknownOption { scenario: info.name, option, known });
        }
        if value == "0" && !MAY_BE_ZERO.contains(&option) {
            return Err(ScenarioError::OptionValue { option, value, need: "expected at least 1" });
        }
    }
    check_conflicts(options)?;
    if let Some(variant) = &options.variant
        && !info.variants.iter().any(|known| known.name == variant)
    {
        let known = info.variants.iter().map(|variant| variant.name).collect();
        return Err(ScenarioError::UnknownVariant { scenario: info.name, name: variant.clone(), known });
    }
    Ok(scenario)
}

fn check_conflicts(options: &Options) -> Result<(), ScenarioError> {
    if options.accumulate.is_some_and(|count| count > 1) && options.optimizer_in_backward {
        let reason = "an optimizer in backward would update each parameter before the gradients of all micro-batches \
                      are accumulated; step after backward";
        return Err(ScenarioError::Conflict { option: "--accumulate", other: "--optimizer-in-backward", reason });
    }
    let form = match options.form {
        Some(Form::Foreach) => Some("--foreach"),
        Some(Form::PerTensor) => Some("--no-foreach"),
        _ => None,
    };
    if let (Some(option), Some(OptimizerKind::AdamW8bit)) = (form, options.optimizer) {
        let reason = "adamw8bit always updates each parameter in one fused pass; omit this option";
        return Err(ScenarioError::Conflict { option, other: "--optimizer adamw8bit", reason });
    }
    Ok(())
}
