//! Channel dropout.

use rayon::prelude::*;

use super::elements::write;
use super::elementwise::copy_if;
use super::number::{Float, Real, with_float};
use crate::Result;
use crate::backend::View;
use crate::rng::Draw;

pub(crate) fn dropout_channels(out: View<'_>, input: Option<View<'_>>, share: f64, draw: Draw) -> Result<()> {
    copy_if(out, input)?;
    let places: usize = out.layout.shape()[2..].iter().product();
    if places == 0 {
        return Ok(());
    }
    with_float!("dropout2d", out.dtype, T => {
        let mut memory = write::<T>(out, "dropout2d")?;
        let factor = <<T as Float>::Real as Real>::of(1.0 / (1.0 - share));
        memory.par_chunks_mut(places).enumerate().for_each(|(channel, numbers)| {
            let number = draw.uniforms((channel / 4) as u64)[channel % 4];
            let kept = if f64::from(number) < share { Real::ZERO } else { factor };
            numbers.iter_mut().for_each(|element| *element = T::store(element.load() * kept));
        });
        Ok(())
    })
}
