//! Tests the gradient of every operation against central differences.
//!
//! Differences are taken in double precision, where a step of 10⁻⁵ leaves about ten correct digits; the same gradients
//! in single precision are then held against the double ones. Each operation is tried with a gradient that differs from
//! element to element, with the repeated one that a sum gives, and used twice, so that contributions are added up.

use highwater_engine::ops::{AttentionOptions, ConvOptions, ConvTransposeOptions};
use highwater_engine::{Rng, Shape, Tensor};

use crate::grad_harness::{check, check_within};

#[test]
fn sums_and_products_broadcast_both_ways() {
    for shapes in [[vec![2, 3], vec![2, 3]], [vec![2, 1, 3], vec![4, 1]], [vec![], vec![3]], [vec![1, 1], vec![5]]] {
        let shapes = shapes.map(|shape| Shape::from_slice(&shape).unwrap());
        check(shapes, |x| x[0].add(&x[1]));
        check(shapes, |x| x[0].sub(&x[1]));
        check(shapes, |x| x[0].mul(&x[1]));
        check_within([0.5, 2.0], shapes, |x| x[0].div(&x[1]));
    }
    check([[2, 0], [1, 1]], |x| x[0].mul(&x[1])?.add(&x[1]));
}

#[test]
fn a_tensor_may_meet_itself() {
    check([[3, 2]], |x| x[0].mul(&x[0]));
    check([[3, 2]], |x| x[0].add(&x[0]));
    check_within([0.5, 2.0], [[3, 2]], |x| x[0].div(&x[0])?.add(&x[0].square()?));
    check([[3, 3]], |x| x[0].matmul(&x[0]));
}

#[test]
fn sums_may_use_up_an_operand() {
    check([[2, 3], [1, 3]], |x| x[0].mul_scalar(2.0)?.into_add(&x[1]));
    check([[1, 3], [2, 3]], |x| x[0].mul_scalar(2.0)?.into_add(&x[1]));
    check([[2, 3]], |x| x[0].add_scalar(0.5)?.into_relu());
    check([[2, 3]], |x| x[0].exp()?.into_relu()?.into_add(&x[0]));
}

#[test]
fn numbers_scale_and_shift() {
    check([[3]], |x| x[0].neg()?.add_scalar(1.5)?.mul_scalar(-2.5)?.affine(0.5, 3.0));
}

#[test]
fn functions_of_one_number() {
    let shape = || [[3, 5]];
    check(shape(), |x| x[0].exp());
    check_within([0.3, 3.0], shape(), |x| x[0].log());
    check_within([0.3, 3.0], shape(), |x| x[0].sqrt());
    check(shape(), |x| x[0].square());
    check(shape(), |x| x[0].tanh());
    check(shape(), |x| x[0].sin());
    check(shape(), |x| x[0].cos());
    check(shape(), |x| x[0].sigmoid());
    check(shape(), |x| x[0].silu());
    check(shape(), |x| x[0].relu());
    check(shape(), |x| x[0].gelu());
    check(shape(), |x| x[0].gelu_tanh());
}

#[test]
fn functions_of_views() {
    check([[3, 4]], |x| x[0].transpose(0, 1)?.gelu());
    check([[3, 4]], |x| x[0].narrow(1, 1, 2)?.exp());
    check([[3, 1]], |x| x[0].expand([2, 3, 4])?.tanh());
}

#[test]
fn chains_of_functions_overwrite_only_what_has_served() {
    check([[2, 3]], |x| x[0].tanh()?.exp()?.add(&x[0].tanh()?)?.square());
    check_within([0.3, 2.0], [[2, 3]], |x| {
        let y = x[0].log()?;
        y.mul(&y)?.add(&y.exp()?)?.sqrt()
    });
}

#[test]
fn sums_means_and_largest() {
    check([[2, 3, 4]], |x| x[0].sum());
    check([[2, 3, 4]], |x| x[0].mean());
    check([[2, 3, 4]], |x| x[0].sum_axes(&[0, -1]));
    check([[2, 3, 4]], |x| x[0].sum_axes_keep(&[1])?.mul(&x[0]));
    check([[2, 3, 4]], |x| x[0].mean_axes(&[1]));
    check([[2, 3, 4]], |x| x[0].transpose(0, 2)?.mean_axes_keep(&[-1])?.square());
    check([[3, 5]], |x| x[0].max_axis(1));
    check([[3, 5]], |x| x[0].transpose(0, 1)?.max_axis(1)?.square());
}

#[test]
fn products_of_matrices() {
    check([[3, 4], [4, 2]], |x| x[0].matmul(&x[1]));
    check([[1, 4], [4, 1]], |x| x[0].matmul(&x[1]));
    check([[4, 3], [2, 4]], |x| x[0].transpose(0, 1)?.matmul(&x[1].transpose(0, 1)?));
    check([vec![2, 3, 4], vec![4, 2]].map(|s| Shape::from_slice(&s).unwrap()), |x| x[0].matmul(&x[1]));
    check([vec![3, 4], vec![2, 4, 2]].map(|s| Shape::from_slice(&s).unwrap()), |x| x[0].matmul(&x[1]));
    check([[2, 3, 4], [2, 4, 2]], |x| x[0].matmul(&x[1]));
    check([[2, 1, 3, 4], [1, 3, 4, 2]], |x| x[0].matmul(&x[1]));
    check([[3, 4, 2], [3, 2, 4]], |x| x[0].permute(&[2, 0, 1])?.matmul(&x[1].permute(&[1, 2, 0])?));
    check([[1, 3, 4], [2, 4, 2]], |x| {
        x[0].expand([2, 3, 4])?.matmul(&x[1].transpose(1, 2)?.contiguous()?.transpose(1, 2)?)
    });
    check([[3, 0], [0, 2]], |x| x[0].matmul(&x[1]));
}

#[test]
fn a_chain_of_products_with_one_matrix() {
    check_within([-0.7, 0.7], [[3, 3], [3, 3]], |x| {
        let mut z = x[1].clone();
        for _ in 0..3 {
            z = x[0].matmul(&z)?;
        }
        z.matmul(&x[0])
    });
}

#[test]
fn linear_layers() {
    let shapes = |input: &[usize]| [Shape::from_slice(input).unwrap(), Shape::from([5, 4]), Shape::from([5])];
    for input in [&[3, 4][..], &[2, 3, 4], &[4], &[1, 4], &[0, 4]] {
        check(shapes(input), |x| x[0].linear(&x[1], Some(&x[2])));
        check(shapes(input), |x| x[0].linear(&x[1], None)?.add(&x[2]));
    }
    check([vec![4, 2, 3], vec![5, 4]].map(|s| Shape::from_slice(&s).unwrap()), |x| {
        x[0].permute(&[2, 1, 0])?.linear(&x[1], None)
    });
    check([[3, 4], [4, 5]], |x| x[0].linear(&x[1].transpose(0, 1)?, None));
}

#[test]
fn views_move_gradients_to_their_places() {
    check([[2, 3, 4]], |x| x[0].reshape([6, 4])?.transpose(0, 1)?.reshape([3, 8]));
    check([[2, 3, 4]], |x| x[0].permute(&[2, 0, 1])?.flatten_from(1)?.unsqueeze(-1)?.square());
    check([[2, 3, 4]], |x| x[0].narrow(2, 1, 2)?.add(&x[0].narrow(-1, 2, 2)?));
    check([[2, 3, 4]], |x| x[0].select(1, 2)?.mul(&x[0].select(1, 0)?));
    check([[3, 1]], |x| x[0].expand([2, 3, 2])?.contiguous()?.square());
    check([[3, 1, 2]], |x| x[0].squeeze(-2)?.square()?.matmul(&x[0].squeeze(1)?.transpose(0, 1)?.contiguous()?));
    check([[1, 3, 2]], |x| x[0].permute(&[2, 0, 1])?.contiguous()?.squeeze(1)?.square());
    check([[3, 4]], |x| x[0].narrow(0, 1, 1)?.compact()?.exp());
    check([[2, 0, 4]], |x| x[0].reshape([0])?.exp());
}

#[test]
fn joined_tensors_share_the_gradient() {
    check([[2, 3], [2, 1], [2, 2]], |x| Tensor::concat(&[&x[0], &x[1], &x[2]], 1)?.square());
    check([[2, 3], [1, 3]], |x| Tensor::concat(&[&x[0], &x[1], &x[0]], 0)?.exp());
}

#[test]
fn shares_and_their_logarithms() {
    for axis in [0, 1, 2] {
        check([[2, 3, 4]], move |x| x[0].softmax(axis));
        check([[2, 3, 4]], move |x| x[0].log_softmax(axis));
    }
    check([[3, 4]], |x| x[0].mul_scalar(3.0)?.softmax(-1)?.log());
}

#[test]
fn normalised_rows() {
    let shapes =
        |rows: &[usize], width: usize| [Shape::from_slice(rows).unwrap(), Shape::from(width), Shape::from(width)];
    check(shapes(&[2, 3, 5], 5), |x| x[0].layer_norm(Some(&x[1]), Some(&x[2]), 1e-3));
    check(shapes(&[7], 7), |x| x[0].layer_norm(Some(&x[1]), None, 1e-3)?.mul(&x[2]));
    check(shapes(&[3, 4], 4), |x| x[0].layer_norm(None, Some(&x[1]), 1e-3)?.mul(&x[2]));
    check([[4, 3]], |x| x[0].transpose(0, 1)?.layer_norm(None, None, 1e-3));
    check_within([0.4, 2.0], shapes(&[2, 600], 600).map(|s| s), |x| {
        let narrow = |i: usize| x[i].narrow(-1, 298, 4);
        narrow(0)?.layer_norm(Some(&narrow(1)?.contiguous()?), Some(&narrow(2)?.contiguous()?), 1e-3)
    });
}

#[test]
fn attention_with_shared_heads_masks_and_odd_lengths() {
    let own_scale = AttentionOptions { scale: Some(0.3), ..AttentionOptions::causal() };
    for options in [AttentionOptions::default(), AttentionOptions::causal(), own_scale] {
        check([[2, 2, 3, 9], [2, 2, 3, 9], [2, 2, 3, 9]], |x| Tensor::attention(&x[0], &x[1], &x[2], options));
        check([[1, 4, 2, 3], [1, 2, 5, 3], [1, 2, 5, 3]], |x| Tensor::attention(&x[0], &x[1], &x[2], options));
        check([[1, 1, 4, 2], [1, 1, 1, 2], [1, 1, 1, 2]], |x| Tensor::attention(&x[0], &x[1], &x[2], options));
        check([[2, 3, 12]], |x| x[0].attention_packed(2, 1, options));
        check([[1, 1, 6]], |x| x[0].attention_packed(1, 1, options));
    }
}

#[test]
fn attention_of_views() {
    check([[2, 3, 2, 4], [2, 3, 2, 4], [2, 4, 3, 2]], |x| {
        let by_head = |t: &Tensor| t.transpose(1, 2);
        Tensor::attention(&by_head(&x[0])?, &by_head(&x[1])?, &x[2].permute(&[0, 3, 2, 1])?, AttentionOptions::causal())
    });
    check([[1, 3, 6]], |x| {
        x[0].exp()?.transpose(1, 2)?.reshape([1, 3, 6])?.attention_packed(1, 1, AttentionOptions::default())
    });
}

#[test]
fn rows_of_a_table() {
    check([[4, 3]], |x| {
        let indices = Tensor::from_slice(&[1_i64, 3, 1, 0, 1, 3], [2, 3], x[0].device())?;
        x[0].embedding(&indices)?.square()
    });
    check([[5, 2]], |x| {
        // A table that is also the last layer's weight.
        let indices = Tensor::from_slice(&[4_i64, 0, 4], 3, x[0].device())?;
        x[0].embedding(&indices)?.tanh()?.linear(&x[0], None)
    });
}

#[test]
fn losses_from_logits() {
    for ignored in [None, Some(2)] {
        check([[4, 3]], move |x| {
            let targets = Tensor::from_slice(&[2_i64, 0, 1, 2], 4, x[0].device())?;
            x[0].mul_scalar(1.5)?.cross_entropy(&targets, ignored)
        });
    }
    check([[3, 4]], |x| {
        let targets = Tensor::from_slice(&[-100_i64, 3, 0], 3, x[0].device())?;
        x[0].cross_entropy(&targets, Some(-100))?.add(&x[0].mean()?)
    });
}

#[test]
fn convolutions() {
    let with = |stride, padding| ConvOptions { stride, padding, ..ConvOptions::default() };
    let shapes =
        |image: [usize; 4], kernel: [usize; 4]| [Shape::from(image), Shape::from(kernel), Shape::from(kernel[0])];
    check(shapes([2, 3, 4, 4], [5, 3, 2, 2]), |x| x[0].conv2d(&x[1], Some(&x[2]), with([2, 2], [0, 0])));
    check(shapes([1, 2, 5, 4], [3, 2, 3, 3]), |x| x[0].conv2d(&x[1], Some(&x[2]), with([1, 1], [1, 1])));
    check(shapes([2, 1, 5, 6], [2, 1, 3, 2]), |x| {
        x[0].conv2d(&x[1], None, with([2, 3], [0, 2]))?.add(&x[2].reshape([2, 1, 1])?)
    });
    check(shapes([2, 3, 2, 2], [4, 3, 1, 1]), |x| x[0].conv2d(&x[1], Some(&x[2]), ConvOptions::default()));
}

#[test]
fn convolutions_in_groups_and_with_gaps() {
    let shapes = |image: [usize; 4], kernel: [usize; 4], outputs: usize| {
        [Shape::from(image), Shape::from(kernel), Shape::from(outputs)]
    };
    let with = |dilation, groups| ConvOptions { padding: [1, 2], dilation, groups, ..ConvOptions::default() };
    check(shapes([2, 4, 4, 3], [6, 2, 2, 2], 6), |x| x[0].conv2d(&x[1], Some(&x[2]), with([2, 1], 2)));
    check(shapes([1, 3, 3, 4], [3, 1, 3, 3], 3), |x| x[0].conv2d(&x[1], Some(&x[2]), with([1, 2], 3))?.tanh());
    check(shapes([2, 4, 2, 2], [6, 2, 1, 1], 6), |x| {
        x[0].exp()?.conv2d(&x[1], Some(&x[2]), ConvOptions { groups: 2, ..ConvOptions::default() })
    });
    let transposed = ConvTransposeOptions { dilation: [2, 1], groups: 2, ..ConvTransposeOptions::default() };
    check(shapes([1, 4, 2, 3], [4, 3, 2, 2], 6), |x| x[0].conv_transpose2d(&x[1], Some(&x[2]), transposed));
    // An input that nobody else holds gives its memory to its gradient.
    check(shapes([2, 4, 2, 2], [4, 1, 3, 2], 2), |x| {
        x[0].mul_scalar(2.0)?.conv_transpose2d(&x[1], Some(&x[2]), transposed)?.square()
    });
    check([[1, 4, 3, 2], [4, 1, 2, 2]], |x| x[0].conv_transpose2d_part(&x[1], None, transposed, [[1, 0], [3, 2]]));
}

#[test]
fn normalized_groups_of_channels() {
    let shapes = |shape: &[usize]| [Shape::from_slice(shape).unwrap(), Shape::from(shape[1]), Shape::from(shape[1])];
    check(shapes(&[2, 4, 3]), |x| x[0].group_norm(2, Some(&x[1]), Some(&x[2]), 1e-2));
    check(shapes(&[3, 4]), |x| x[0].mul_scalar(2.0)?.group_norm(1, Some(&x[1]), None, 1e-2)?.mul(&x[2]));
    check(shapes(&[2, 2, 2, 2]), |x| x[0].group_norm(2, None, Some(&x[1]), 1e-2)?.mul(&x[2].sum()?));
    check([[2, 3, 4]], |x| x[0].transpose(1, 2)?.group_norm(2, None, None, 1e-2));
    // The next operation saves the recipe, not the result.
    check([Shape::from([2, 4, 2, 2]), Shape::from(4), Shape::from([3, 4, 1, 1])], |x| {
        x[0].group_norm(2, Some(&x[1]), None, 1e-2)?.conv2d(&x[2], None, ConvOptions::default())
    });
}

#[test]
fn padding_passes_the_gradient_of_its_inside() {
    check([[2, 3]], |x| x[0].pad(&[[1, 0], [2, 1]], 0.5)?.square());
    check([[2, 3, 2]], |x| x[0].transpose(0, 2)?.pad(&[[1, 2]], -1.0)?.exp());
    check([[2, 1, 3, 3], [2, 1, 2, 2]], |x| {
        x[0].pad(&[[1, 0], [0, 1]], 0.0)?.conv2d(&x[1], None, ConvOptions::default())
    });
}

#[test]
fn largest_and_smallest_elements_along_an_axis() {
    check([[3, 5]], |x| x[0].min_axis(0)?.mul(&x[0].max_axis(0)?));
    check([[3, 5]], |x| x[0].topk(3, 1)?.0.square());
    check([[3, 5]], |x| x[0].transpose(0, 1)?.topk(2, 0)?.0.mul(&x[0].topk(2, 1)?.0.transpose(0, 1)?));
}

#[test]
fn operators_are_the_methods_that_they_stand_for() {
    check_within([0.5, 2.0], [[2, 3], [2, 3], [1, 3]], |x| {
        let [x, y, z] = [&x[0], &x[1], &x[2]];
        let sum = (x * y + z)?;
        let quotient = (x / (y - z.mul_scalar(0.1)?))? + 2.0 * y;
        (-((1.0 - &sum)? / 3.0)?)? - (quotient? * (1.5 / (z + 0.5)?)?)
    });
    // An operand by value may be overwritten, one by reference may not.
    check([[2, 3]], |x| x[0].exp()? + x[0].exp()? * &x[0]);
}

#[test]
fn chance_draws_the_same_in_backward() {
    check([[5, 3]], |x| x[0].dropout(0.4, &mut Rng::new(3))?.square());
}

#[test]
fn an_encoder_block() {
    let shapes = [
        Shape::from([2, 3, 4]),
        Shape::from(4),
        Shape::from([12, 4]),
        Shape::from([4, 4]),
        Shape::from([8, 4]),
        Shape::from([4, 8]),
    ];
    check_within([-0.8, 0.8], shapes, |x| {
        let attended = x[0].layer_norm(Some(&x[1]), None, 1e-2)?.linear(&x[2], None)?;
        let attended = attended.attention_packed(2, 2, AttentionOptions::default())?.linear(&x[3], None)?;
        let middle = attended.into_add(&x[0])?;
        middle.layer_norm(Some(&x[1]), None, 1e-2)?.linear(&x[4], None)?.gelu()?.linear(&x[5], None)?.into_add(&middle)
    });
}
