//! A scenario and its options as arguments, as after `highwater record`.

use std::str::FromStr;

use highwater_engine::DType;
use highwater_engine::optim::Form;
use highwater_engine::scenario::{Checkpoint, OptimizerKind, Options};

/// The scenario and the options of a command. The error says which word is wrong.
pub fn parse(command: &str) -> Result<(String, Options), String> {
    let mut words = command.split_whitespace();
    let name = words.next().ok_or("no scenario is named")?.to_owned();
    let mut options = Options::default();
    while let Some(word) = words.next() {
        match word {
            "--checkpoint" => options.checkpoint = Checkpoint::BLOCKS,
            "--foreach" => options.form = Some(Form::Foreach),
            "--no-foreach" => options.form = Some(Form::PerTensor),
            "--fused" => options.form = Some(Form::Fused),
            "--optimizer-in-backward" => options.optimizer_in_backward = true,
            "--uses" => options.uses = true,
            "--no-recompute" => options.no_recompute = true,
            _ => {
                let value = words.next().ok_or_else(|| format!("{word} has no value"))?;
                give(&mut options, word, value)?;
            }
        }
    }
    Ok((name, options))
}

fn give(options: &mut Options, word: &str, value: &str) -> Result<(), String> {
    fn number<N: FromStr>(word: &str, value: &str) -> Result<Option<N>, String> {
        value.parse().map(Some).map_err(|_| format!("{word} cannot be {value}"))
    }
    let dtype = || DType::from_name(value).map(Some).ok_or_else(|| format!("{word} cannot be {value}"));
    let sizes = &mut options.sizes;
    let size = match word {
        "--batch" => &mut sizes.batch,
        "--seq" => &mut sizes.seq,
        "--width" => &mut sizes.width,
        "--layers" => &mut sizes.layers,
        "--heads" => &mut sizes.heads,
        "--key-heads" => &mut sizes.key_heads,
        "--hidden" => &mut sizes.hidden,
        "--freeze" => &mut sizes.freeze,
        "--vocab" => &mut sizes.vocab,
        "--positions" => &mut sizes.positions,
        "--classes" => &mut sizes.classes,
        "--image" => &mut sizes.image,
        "--patch" => &mut sizes.patch,
        "--samples" => &mut sizes.samples,
        "--chunk" => &mut sizes.chunk,
        "--padding" => &mut sizes.padding,
        "--lora" => &mut options.lora,
        _ => {
            match word {
                "--dtype" => options.dtype = dtype()?,
                "--autocast" => options.autocast = dtype()?,
                "--adapters" => options.adapters = dtype()?,
                "--variant" => options.variant = Some(value.to_owned()),
                "--optimizer" => {
                    options.optimizer = Some(value.parse::<OptimizerKind>().map_err(|why| why.to_string())?);
                }
                "--momentum" => options.momentum = number(word, value)?,
                "--weight-decay" => options.weight_decay = number(word, value)?,
                _ => return Err(format!("the harness does not know {word}")),
            }
            return Ok(());
        }
    };
    *size = number(word, value)?;
    Ok(())
}
