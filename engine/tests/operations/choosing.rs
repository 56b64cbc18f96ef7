//! Tests operations that select, compare, index or scan elements, against finite differences and PyTorch's values.

use highwater_engine::{DType, Device, Result, Shape, Tensor};

use crate::grad_harness::{check, check_within};
use crate::values_harness::{self, Operation};

/// Written by `data/ops/make_choosing.py`.
const DATA: &str = include_str!("../data/ops/choosing.txt");

const OPERATIONS: &[(&str, Operation)] = &[
    ("lt", |x| x[0].lt(&x[1])),
    ("le", |x| x[0].le(&x[1])),
    ("gt", |x| x[0].gt(&x[1])),
    ("ge", |x| x[0].ge(&x[1])),
    ("eq", |x| x[0].eq(&x[1])),
    ("ne", |x| x[0].ne(&x[1])),
    ("gt_scalar", |x| x[0].gt_scalar(0.5)),
    ("le_broadcast", |x| x[0].le(&x[1])),
    ("eq_whole", |x| x[0].eq_scalar(2.0)),
    ("choose", |x| x[0].gt(&x[1])?.where_cond(&x[0], &x[1].mul_scalar(3.0)?)),
    ("choose_broadcast", |x| x[0].ne_scalar(0.0)?.where_cond(&x[1], &x[2])),
    ("abs", |x| x[0].abs()),
    ("clamp", |x| x[0].clamp(0.5, 1.5)),
    ("clamp_below", |x| x[0].clamp(0.5, f64::INFINITY)),
    ("maximum", |x| x[0].maximum(&x[1])),
    ("minimum", |x| x[0].minimum(&x[1])),
    ("maximum_broadcast", |x| x[0].maximum(&x[1])),
    ("powf", |x| x[0].powf(2.5)),
    ("powi", |x| x[0].powi(3)),
    ("powi_below", |x| x[0].powi(-2)),
    ("powi_nothing", |x| x[0].powi(0)),
    ("cumsum", |x| x[0].cumsum(1)),
    ("cumsum_last", |x| x[0].cumsum(-1)),
    ("cumprod", |x| x[0].cumprod(1)),
    ("cumprod_zeros", |x| x[0].cumprod(-1)),
    ("cumprod_exclusive", |x| x[0].cumprod_exclusive(1)),
    ("cumprod_exclusive_zeros", |x| x[0].cumprod_exclusive(1)),
    ("gather", |x| x[0].gather(1, &x[1])),
    ("gather_first", |x| x[0].gather(0, &x[1])),
    ("scatter_add", |x| x[0].scatter_add(1, &x[1], &x[2])),
    ("split", |x| {
        let parts = x[0].split(3, 1)?;
        parts[1].mul(&parts[0].narrow(1, 0, 1)?)
    }),
    ("chunk", |x| {
        let parts = x[0].chunk(2, 1)?;
        parts[0].add(&parts[1])
    }),
    ("stack", |x| Tensor::stack(&[&x[0], &x[1], &x[0]], 1)),
    ("stack_last", |x| Tensor::stack(&[&x[0], &x[1]], -1)),
    ("var", |x| x[0].var(1)),
    ("var_axes", |x| x[0].var_axes(&[0, 2], 0)),
    ("var_axes_keep", |x| x[0].var_axes_keep(&[1], 1)),
    ("mse_loss", |x| x[0].mse_loss(&x[1])),
    ("frequencies", |x| x[0].frequencies(3)),
];

#[test]
fn results_and_gradients_are_pytorchs() {
    values_harness::check(DATA, OPERATIONS, DType::F64, |_| Some(1e-5));
    values_harness::check(DATA, OPERATIONS, DType::F32, |_| Some(2e-5));
}

fn shapes<const N: usize>(shapes: [&[usize]; N]) -> [Shape; N] {
    shapes.map(|shape| Shape::from_slice(shape).unwrap())
}

/// Numbers that do not move with `like`, but are of its shape and type.
fn fixed(like: &Tensor) -> Tensor {
    let numbers = Tensor::arange(like.elements(), -0.9, 0.37, DType::F64, like.device()).unwrap();
    numbers.reshape(like.shape()).unwrap().to_dtype(like.dtype()).unwrap()
}

#[test]
fn both_sides_of_a_choice_have_gradients() {
    for shapes in
        [shapes([&[2, 3], &[2, 3]]), shapes([&[2, 1, 3], &[4, 1]]), shapes([&[], &[3]]), shapes([&[0, 2], &[2]])]
    {
        check(shapes, |x| x[0].gt(&x[1])?.where_cond(&x[0], &x[1].mul(&x[0])?));
        check(shapes, |x| x[0].gt_scalar(0.3)?.to_dtype(DType::U8)?.where_cond(&x[1].square()?, &x[0]));
        check(shapes, |x| x[0].maximum(&x[1]));
        check(shapes, |x| x[0].minimum(&x[1])?.square());
    }
    check([[3, 2]], |x| x[0].gt_scalar(0.0)?.where_cond(&x[0], &fixed(&x[0])));
    check([[3, 2]], |x| x[0].gt_scalar(0.0)?.where_cond(&fixed(&x[0]), &x[0]));
    check([[3, 2]], |x| fixed(&x[0]).maximum(&x[0])?.mul(&x[0].minimum(&fixed(&x[0]))?));
}

#[test]
fn pieces_have_the_slopes_of_their_sides() {
    for shape in [shapes([&[3, 7]]), shapes([&[]]), shapes([&[0]]), shapes([&[2, 0, 3]])] {
        check(shape, |x| x[0].abs());
        check(shape, |x| x[0].clamp(-1.0, 0.75)?.mul(&x[0]));
        check(shape, |x| x[0].powi(3));
        check(shape, |x| x[0].powi(2)?.powi(2));
    }
    check([[4, 5]], |x| x[0].transpose(0, 1)?.abs()?.transpose(0, 1)?.clamp(0.5, 1.0));
    check([[5]], |x| x[0].expand([3, 5])?.abs());
    check_within([0.3, 2.0], [[4]], |x| x[0].powf(-1.5)?.add(&x[0].powf(0.5)?));
}

#[test]
fn more_numbers_than_one_task_takes_keep_their_slopes_apart() {
    let device = Device::cpu();
    let count = 40_003;
    let x = Tensor::arange(count, -20_000.0, 1.0, DType::F32, &device).unwrap();
    x.set_requires_grad(true).unwrap();
    x.abs().unwrap().sum().unwrap().backward().unwrap();
    let expected: Vec<f32> =
        (0..count).map(|i| (i as f32 - 20_000.0).signum() * f32::from(u8::from(i != 20_000))).collect();
    assert_eq!(x.take_grad().unwrap().to_vec::<f32>().unwrap(), expected);
}

#[test]
fn running_sums_and_products_along_any_axis() {
    for shape in [shapes([&[2, 3, 4]]), shapes([&[3, 1, 2]]), shapes([&[1, 2, 0]]), shapes([&[2, 0, 2]])] {
        for axis in [0, 1, -1] {
            check(shape, |x| x[0].cumsum(axis));
            check(shape, |x| x[0].cumsum_exclusive(axis)?.mul(&x[0]));
            check(shape, |x| x[0].cumprod(axis));
            check(shape, |x| x[0].cumprod_exclusive(axis)?.square());
        }
    }
    check([[3, 4]], |x| x[0].transpose(0, 1)?.cumprod(1)?.mul(&x[0].transpose(0, 1)?.cumsum(0)?));
    // The result is read by others as well, which compute it again.
    check([[2, 4]], |x| {
        let y = x[0].add_scalar(0.5)?.cumprod(1)?;
        y.mul(&x[0])?.add(&y.exp()?)
    });
}

#[test]
fn places_are_gathered_and_added_to() {
    let places = |numbers: &[i64], shape: &[usize], beside: &Tensor| {
        Tensor::from_slice(numbers, Shape::from_slice(shape).unwrap(), beside.device()).unwrap()
    };
    let few = |x: &[Tensor]| places(&[2, 0, 2, 1, 1, 0], &[2, 3], &x[0]);
    let none = |x: &[Tensor]| places(&[], &[0, 3], &x[0]);
    check([[3, 4]], |x| x[0].gather(0, &few(x)));
    check([[4, 3]], |x| x[0].transpose(0, 1)?.gather(0, &few(x))?.square());
    check([[3, 3], [2, 3]], |x| x[0].scatter_add(0, &few(x), &x[1])?.mul(&x[0]));
    check([[3, 3]], |x| fixed(&x[0]).scatter_add(0, &few(x), &x[0].narrow(0, 0, 2)?));
    check([[3, 3]], |x| x[0].gather(0, &none(x))?.sum()?.add(&x[0].sum()?));
    check(shapes([&[3, 3], &[0, 3]]), |x| x[0].scatter_add(0, &none(x), &x[1]));
    // Whole numbers and truths can be picked as well.
    let table = Tensor::from_slice(&[10_i64, 20, 30], 3, &Device::cpu()).unwrap();
    let picked = table.gather(0, &places(&[2, 2, 0], &[3], &table)).unwrap();
    assert_eq!(picked.to_vec::<i64>().unwrap(), [30, 30, 10]);
}

#[test]
fn parts_and_their_union() {
    check([[2, 5]], |x| Tensor::concat(&x[0].split(2, 1)?.iter().rev().collect::<Vec<_>>(), 1));
    check([[4, 3]], |x| x[0].chunk(3, 0)?[0].mul(&x[0].chunk(2, 0)?[1]));
    check([[2, 3], [2, 3]], |x| Tensor::stack(&[&x[0], &x[1]], 0)?.square());
    check(shapes([&[2, 0], &[2, 0]]), |x| Tensor::stack(&[&x[0], &x[1]], -1));
    let device = Device::accounting(1 << 30);
    let x = Tensor::zeros([10, 4], DType::F32, &device).unwrap();
    let lengths = |parts: Vec<Tensor>| parts.iter().map(|part| part.shape()[0]).collect::<Vec<_>>();
    let before = device.allocator().stats().requested_bytes.all.current;
    assert_eq!(lengths(x.split(4, 0).unwrap()), [4, 4, 2]);
    assert_eq!(lengths(x.chunk(4, 0).unwrap()), [3, 3, 3, 1]);
    assert_eq!(lengths(x.split_by(&[1, 0, 9], 0).unwrap()), [1, 0, 9]);
    assert_eq!(lengths(x.narrow(0, 0, 0).unwrap().split(4, 0).unwrap()), [0]);
    assert_eq!(device.allocator().stats().requested_bytes.all.current, before, "parts are views");
}

#[test]
fn spreads_and_errors() {
    check([[2, 3, 4]], |x| x[0].var(1));
    check([[2, 3, 4]], |x| x[0].transpose(0, 2)?.var_axes(&[1], 0)?.sqrt());
    check([[2, 3, 4]], |x| x[0].var_axes_keep(&[0, -1], 1)?.mul(&x[0]));
    check([[3], [3]], |x| x[0].mse_loss(&x[1]));
    check([[2, 3]], |x| x[0].mse_loss(&fixed(&x[0])));
    check([[2, 3]], |x| fixed(&x[0]).mse_loss(&x[0].mul_scalar(2.0)?));
    check([[2, 3]], |x| x[0].exp()?.mse_loss(&x[0])?.mul(&x[0].mse_loss(&x[0].square()?)?));
    let nothing = Tensor::zeros([2, 0], DType::F64, &Device::cpu()).unwrap();
    assert!(nothing.mse_loss(&nothing).unwrap().item().unwrap().is_nan());
    assert!(nothing.var_axes(&[1], 0).unwrap().to_vec::<f64>().unwrap().iter().all(|x| x.is_nan()));
    assert!(Tensor::ones(1, DType::F64, &Device::cpu()).unwrap().var(1).unwrap().item().unwrap().is_nan());
}

#[test]
fn coordinates_have_their_waves() {
    check_within([-1.0, 1.0], [[4, 2]], |x| x[0].frequencies(3));
    check([[3, 2]], |x| x[0].frequencies(0));
    check([[2, 0]], |x| x[0].frequencies(2));
    check_within([-1.0, 1.0], [[2, 3], [4, 15]], |x| x[0].frequencies(2)?.linear(&x[1], None)?.tanh());
}

#[test]
fn comparisons_know_every_type_and_what_is_no_number() {
    let device = Device::cpu();
    let truths = |tensor: Result<Tensor>| tensor.unwrap().to_f64_vec().unwrap();
    let odd = Tensor::from_slice(&[1.0, f64::NAN, f64::INFINITY], 3, &device).unwrap();
    assert_eq!(truths(odd.eq(&odd)), [1.0, 0.0, 1.0]);
    assert_eq!(truths(odd.ne_scalar(1.0)), [0.0, 1.0, 1.0]);
    assert_eq!(truths(odd.ge_scalar(0.0)), [1.0, 0.0, 1.0]);
    for dtype in DType::ALL {
        let bits = Tensor::from_slice(&[0.0, 1.0], 2, &device).unwrap().to_dtype(dtype).unwrap();
        assert_eq!(truths(bits.gt_scalar(0.5)), [0.0, 1.0], "{dtype}");
        assert_eq!(truths(bits.lt(&bits.narrow(0, 1, 1).unwrap())), [1.0, 0.0], "{dtype}");
    }
    let tenth = Tensor::from_slice(&[0.1_f32], 1, &device).unwrap();
    assert_eq!(truths(tenth.eq_scalar(0.1)), [1.0], "the number is rounded as the tensor's was");
    assert!(truths(tenth.narrow(0, 0, 0).unwrap().gt(&tenth)).is_empty());
}

#[test]
fn wrong_places_types_and_lengths_are_errors_that_name_them() {
    let device = Device::cpu();
    let zeros = |shape: &[usize]| Tensor::zeros(Shape::from_slice(shape).unwrap(), DType::F32, &device).unwrap();
    let said = |outcome: Result<Tensor>, words: &[&str]| {
        let text = outcome.unwrap_err().to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    let places = Tensor::from_slice(&[0_i64, 3], [1, 2], &device).unwrap();
    said(zeros(&[2, 3]).gather(1, &places), &["gather", "index 3", "0 to 2"]);
    said(zeros(&[2, 0]).gather(1, &places), &["gather", "index 0"]);
    said(zeros(&[2, 3]).scatter_add(1, &places.neg_places(), &zeros(&[1, 2])), &["scatter_add", "index -1"]);
    said(zeros(&[2, 3]).scatter_add(1, &places, &zeros(&[1, 3])), &["[1, 2]", "[1, 3]", "one index for each"]);
    said(zeros(&[0, 3]).gather(1, &places), &["[0, 3]", "[1, 2]"]);
    said(zeros(&[2, 3]).gather(1, &zeros(&[1, 2])), &["gather", "f32", "i64"]);
    said(zeros(&[2]).where_cond(&zeros(&[2]), &zeros(&[2])), &["where", "f32", "bool or u8"]);
    said(zeros(&[2]).gt(&Tensor::zeros(2, DType::F64, &device).unwrap()), &["gt", "f64", "same dtype"]);
    said(zeros(&[2]).maximum(&zeros(&[3])), &["maximum", "[2]", "[3]"]);
    said(zeros(&[2]).clamp(f64::NAN, 1.0), &["clamp", "NaN"]);
    said(zeros(&[2, 3]).cumsum(2), &["cumsum", "axis 2"]);
    said(places.cumprod(0), &["cumprod", "i64"]);
    said(places.argmax(0), &["argmax", "i64"]);
    said(zeros(&[2, 0]).argmin(1), &["argmin", "[2, 0]", "must not be empty"]);
    said(zeros(&[2, 3]).topk(4, -1).map(|(largest, _)| largest), &["topk", "4 elements along axis 1", "has 3"]);
    said(&zeros(&[2]) + &zeros(&[3]), &["add", "[2]", "[3]"]);
    said((&zeros(&[2]) + &zeros(&[3])) * zeros(&[2]), &["add", "[2]", "[3]"]);
    said(1.0 - &places, &["affine", "i64"]);
    said(zeros(&[2]).mse_loss(&zeros(&[1, 2])), &["mse_loss", "[1, 2]"]);
    said(zeros(&[2, 2]).var_axes(&[0, -2], 0), &["var", "at most once"]);
    said(Tensor::stack(&[&zeros(&[2]), &zeros(&[3])], 0), &["stack", "[3]"]);
    said(Tensor::stack(&[], 0), &["at least one"]);
    said(zeros(&[]).frequencies(2), &["frequencies", "at least one axis"]);
    let parts = |outcome: Result<Vec<Tensor>>| outcome.map(|parts| parts[0].clone());
    said(parts(zeros(&[4]).split(0, 0)), &["split", "part length 0"]);
    said(parts(zeros(&[4]).chunk(0, 0)), &["chunk", "at least 1"]);
    said(parts(zeros(&[4]).split_by(&[1, 2], 0)), &["[1, 2]", "3", "4"]);
}

/// Places below 0, which is no place.
trait NegPlaces {
    fn neg_places(&self) -> Tensor;
}

impl NegPlaces for Tensor {
    fn neg_places(&self) -> Tensor {
        let wrong: Vec<i64> = self.to_vec::<i64>().unwrap().iter().map(|place| place - 1).collect();
        Self::from_slice(&wrong, self.shape(), self.device()).unwrap()
    }
}
