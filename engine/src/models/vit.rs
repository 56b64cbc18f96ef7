//! ViT, the vision transformer, with torchvision's structure and names.

use crate::nn::{
    Child, EncoderBlock, EncoderSize, Filling, Init, LayerNorm, Linear, LinearFilling, Module, PatchEmbedding, Sequence,
};
use crate::{Error, Result, Tensor};

/// Sizes of a vision transformer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VitSize {
    /// Height and width of the images in pixels.
    pub image: usize,
    /// Height and width of a patch in pixels, which must divide the image size.
    pub patch: usize,
    /// Number of encoder blocks.
    pub layers: usize,
    /// Sizes of each block.
    pub block: EncoderSize,
    /// Number of classes.
    pub classes: usize,
}

impl VitSize {
    /// torchvision's `vit_l_16`, with 304,326,632 parameters.
    pub const L_16: Self = Self {
        image: 224,
        patch: 16,
        layers: 24,
        block: EncoderSize { width: 1024, heads: 16, hidden: 4096, epsilon: 1e-6 },
        classes: 1000,
    };

    /// A small model that trains quickly on a CPU.
    pub const SMALL: Self = Self {
        image: 32,
        patch: 4,
        layers: 4,
        block: EncoderSize { width: 64, heads: 4, hidden: 256, epsilon: 1e-6 },
        classes: 10,
    };

    /// Returns the number of tokens per image, one for each patch and the class token.
    pub fn tokens(&self) -> usize {
        (self.image / self.patch).pow(2) + 1
    }
}

/// A vision transformer (Dosovitskiy et al., 2021), which maps `[batch, 3, image, image]` to `[batch, classes]`.
#[derive(Debug)]
pub struct VisionTransformer {
    class_token: Tensor,
    conv_proj: Child<PatchEmbedding>,
    encoder: Child<Encoder>,
    heads: Child<Heads>,
}

#[derive(Debug)]
struct Encoder {
    pos_embedding: Tensor,
    layers: Child<Sequence<EncoderBlock>>,
    ln: Child<LayerNorm>,
}

#[derive(Debug)]
struct Heads {
    head: Child<Linear>,
}

impl VisionTransformer {
    /// Creates a model of these sizes, initialized as in torchvision, where the head is zero.
    ///
    /// # Errors
    /// Fails if the patch size does not divide the image size, if the number of heads does not divide the hidden size,
    /// or if memory cannot be allocated.
    pub fn new(init: &mut Init, size: VitSize) -> Result<Self> {
        if size.patch == 0 || !size.image.is_multiple_of(size.patch) {
            let what = format!(
                "patches of {} pixels do not tile an image of {} pixels; give a patch size that divides it",
                size.patch, size.image
            );
            return Err(Error::Setting { op: "vit", what });
        }
        let width = size.block.width;
        let zeros = LinearFilling { weight: Filling::Zeros, bias: Some(Filling::Zeros) };
        let head = |init: &mut Init| Linear::filled(init, [width, size.classes], zeros);
        Ok(Self {
            class_token: init.parameter([1, 1, width], Filling::Zeros)?,
            conv_proj: Child::new("conv_proj", init, |init| PatchEmbedding::new(init, [3, size.patch, width]))?,
            encoder: Child::new("encoder", init, |init| Encoder::new(init, size))?,
            heads: Child::new("heads", init, |init| Ok(Heads { head: Child::new("head", init, head)? }))?,
        })
    }

    /// Embeds images as tokens, with the class token first.
    fn tokens(&self, images: &Tensor) -> Result<Tensor> {
        let patches = self.conv_proj.forward(images)?;
        let class_token = self.class_token.expand([patches.shape()[0], 1, patches.shape()[2]])?;
        Tensor::concat(&[&class_token, &patches], 1)
    }
}

impl Module for VisionTransformer {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let tokens = self.tokens(images)?;
        let class_token = self.encoder.forward_into(tokens)?;
        self.heads.forward(&class_token)
    }

    crate::visit_fields!(class_token, conv_proj, encoder, heads);
}

impl Encoder {
    fn new(init: &mut Init, size: VitSize) -> Result<Self> {
        let VitSize { layers, block, .. } = size;
        Ok(Self {
            pos_embedding: init.parameter([1, size.tokens(), block.width], Filling::Normal { deviation: 0.02 })?,
            layers: Child::new("layers", init, |init| {
                Sequence::new(layers, init, |_, init| EncoderBlock::new(init, block))
            })?,
            ln: Child::new("ln", init, |init| LayerNorm::new(init, block.width, block.epsilon))?,
        })
    }
}

impl Module for Encoder {
    /// Returns the class token of each image, `[batch, width]`. The position embedding is added in place. Only the
    /// class token is normalized, because the other tokens are not used.
    fn forward_into(&self, tokens: Tensor) -> Result<Tensor> {
        let positioned = tokens.into_add(&self.pos_embedding)?;
        let class_token = self.layers.forward(&positioned)?.select(1, 0)?.compact()?;
        self.ln.forward(&class_token)
    }

    crate::visit_fields!(pos_embedding, layers, ln);
}

impl Module for Heads {
    fn forward(&self, class_token: &Tensor) -> Result<Tensor> {
        self.head.forward(class_token)
    }

    crate::visit_fields!(head);
}
