//! AdamW: the update rule over candle's tensors, since candle-nn is not needed for anything else.

use candle_core::{Result, Tensor, Var};
use highwater_recorder::Category;

use crate::guards::{made_as, module, op};

const RATE: f64 = 5e-4;
const DECAY: f64 = 0.01;
const BETAS: [f64; 2] = [0.9, 0.999];
const EPSILON: f64 = 1e-8;

/// Running averages of each parameter's gradient and of its square.
#[derive(Default)]
pub(crate) struct AdamW {
    averages: Vec<[Tensor; 2]>,
    steps: i32,
}

impl AdamW {
    /// Updates the parameters by their gradients, given in the same order.
    pub(crate) fn step(&mut self, parameters: &[(&str, &Var)], gradients: &[Tensor]) -> Result<()> {
        self.steps += 1;
        for (position, ((path, parameter), gradient)) in parameters.iter().zip(gradients).enumerate() {
            module(path, || {
                let former = self.averages.get(position);
                let averages = [
                    average(former.map(|[first, _]| first), gradient, BETAS[0])?,
                    average(former.map(|[_, second]| second), &op("sqr", || gradient.sqr())?, BETAS[1])?,
                ];
                op("adamw", || parameter.set(&self.changed(parameter, &averages)?))?;
                match self.averages.get_mut(position) {
                    Some(former) => *former = averages,
                    None => self.averages.push(averages),
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn changed(&self, parameter: &Var, [first, second]: &[Tensor; 2]) -> Result<Tensor> {
        let [first_share, second_share] = BETAS.map(|beta| 1.0 - beta.powi(self.steps));
        let width = ((second / second_share)?.sqrt()? + EPSILON)?;
        let change = ((first * (RATE / first_share))? / width)?;
        (parameter.as_detached_tensor() * (1.0 - RATE * DECAY))? - change
    }
}

/// Returns the running average updated with `news`; its memory lives as long as the optimizer.
fn average(former: Option<&Tensor>, news: &Tensor, beta: f64) -> Result<Tensor> {
    let state = |run: &dyn Fn() -> Result<Tensor>| made_as(Category::OptimizerState, || op("average", run));
    match former {
        None => state(&|| news * (1.0 - beta)),
        Some(former) => {
            let news = op("average", || news * (1.0 - beta))?;
            let former = op("average", || former * beta)?;
            state(&|| &former + &news)
        }
    }
}
