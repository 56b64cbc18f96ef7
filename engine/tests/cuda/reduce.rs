//! Sums along axes.

use highwater_engine::backend;
use highwater_engine::{DType, Result, Shape, Tensor};

use crate::harness::{Both, FLOATS, Pair, compute, on_both, view};

/// Adds half the sums of whole numbers over `axes` of a view of `shape` to what is there: nothing is rounded, so that
/// any number that is missed or counted twice is seen.
fn assert_sums(both: &Both, shape: &[usize], turn: impl Fn(&Tensor) -> Result<Tensor>, axes: &[usize], dtype: DType) {
    let input = both.whole(Shape::from_slice(shape).expect("few axes"), [-2.0, 3.0], dtype, 1).map(turn);
    let lengths: Vec<usize> = input.cpu.shape().iter().copied().collect();
    let kept = lengths.iter().enumerate().map(|(axis, &length)| if axes.contains(&axis) { 1 } else { length });
    let kept: Vec<usize> = kept.collect();
    let out = both.whole(Shape::from_slice(&kept).expect("few axes"), [-9.0, 9.0], dtype, 2);
    assert_summed(&out, &out, &input);
}

/// `out` is a view of `whole`.
fn assert_summed(whole: &Pair, out: &Pair, input: &Pair) {
    let repeated = out.map(|t| t.expand(*input.cpu.shape()));
    // Added to what is there; instead of it; added to half of that.
    for keep in [1.0, 0.0, 0.5] {
        if keep == 0.0 {
            compute(|on| backend::fill(view(on(out)), f64::NAN));
        }
        compute(|on| backend::sum(view(on(&repeated)), view(on(input)), 0.5, keep));
        whole.assert_equal(&format!("{:?} to {:?}, of which {keep} stays", input.cpu.layout(), out.cpu.layout()));
    }
}

/// The shape with another length of one axis.
fn with_axis(shape: &Shape, axis: usize, length: usize) -> Shape {
    let mut lengths: Vec<usize> = shape.iter().copied().collect();
    lengths[axis] = length;
    Shape::from_slice(&lengths).expect("as many axes")
}

fn as_is(tensor: &Tensor) -> Result<Tensor> {
    Ok(tensor.detach())
}

#[test]
fn sums_over_rows_miss_nothing() {
    on_both(|both| {
        for dtype in FLOATS {
            for shape in [[37, 300], [5, 3], [70, 1], [700, 40], [1, 1]] {
                assert_sums(both, &shape, as_is, &[1], dtype);
            }
            // Rows that begin anywhere.
            assert_sums(both, &[6, 311], |t| t.narrow(1, 3, 295), &[1], dtype);
            // A row is summed by a block, in pieces, and those in parts.
            assert_sums(both, &[3, 20_011], as_is, &[1], dtype);
            assert_sums(both, &[41, 997], as_is, &[0, 1], dtype);
            // As the bias of images: rows of several images.
            assert_sums(both, &[3, 5, 9, 11], as_is, &[0, 2, 3], dtype);
            assert_sums(both, &[2, 3, 90, 70], as_is, &[0, 2, 3], dtype);
        }
    });
}

#[test]
fn sums_over_columns_miss_nothing() {
    on_both(|both| {
        for dtype in FLOATS {
            for shape in [[300, 40], [300, 37], [2, 1500], [1, 64], [3, 5]] {
                assert_sums(both, &shape, as_is, &[0], dtype);
            }
            assert_sums(both, &[6, 50, 24], as_is, &[1], dtype);
            assert_sums(both, &[6, 7, 8, 5], as_is, &[0, 2], dtype);
            assert_sums(both, &[40, 100], |t| t.narrow(1, 8, 48), &[0], dtype);
            // In parts.
            assert_sums(both, &[9_001, 8], as_is, &[0], dtype);
            assert_sums(both, &[9_001, 3], as_is, &[0], dtype);
        }
    });
}

#[test]
fn sums_may_be_over_any_layout() {
    on_both(|both| {
        for dtype in [DType::F32, DType::F16] {
            assert_sums(both, &[40, 30], |t| t.transpose(0, 1), &[0], dtype);
            assert_sums(both, &[40, 30], |t| t.transpose(0, 1), &[1], dtype);
            assert_sums(both, &[4, 5, 6, 7], |t| t.permute(&[2, 0, 3, 1]), &[1, 2], dtype);
            assert_sums(both, &[4, 5, 6, 7], |t| t.permute(&[3, 1, 0, 2]), &[0], dtype);
            assert_sums(both, &[4, 5, 6, 7], |t| t.permute(&[3, 1, 0, 2]), &[], dtype);
            // Nothing lies beside anything.
            assert_sums(both, &[300, 4], |t| t.narrow(1, 2, 1), &[0], dtype);
            assert_sums(both, &[30, 20, 4], |t| t.narrow(2, 1, 1), &[0, 2], dtype);
            // The input is repeated.
            assert_sums(both, &[1, 1], |t| t.expand([30, 20]), &[0, 1], dtype);
            assert_sums(both, &[30, 1], |t| t.expand([30, 20]), &[0], dtype);
            assert_sums(both, &[], as_is, &[], dtype);
            // There is nothing to sum, or nothing to sum to.
            assert_sums(both, &[0, 5], as_is, &[0], dtype);
            assert_sums(both, &[5, 0], as_is, &[0], dtype);
        }
    });
}

#[test]
fn sums_go_to_any_layout_and_leave_what_lies_beside() {
    on_both(|both| {
        for dtype in [DType::F32, DType::Bf16] {
            let input = both.whole([6, 9_001, 5], [-2.0, 3.0], dtype, 1);
            let wide = both.whole([9, 8], [-9.0, 9.0], dtype, 2);
            assert_summed(
                &wide,
                &wide.map(|t| t.narrow(0, 2, 5)?.narrow(1, 1, 6)?.transpose(0, 1)?.unsqueeze(1)),
                &input,
            );
            let wide = both.whole([6, 3, 2], [-9.0, 9.0], dtype, 3);
            assert_summed(&wide, &wide.map(|t| t.narrow(1, 1, 1)?.narrow(2, 1, 1)), &input);
        }
    });
}

#[test]
fn sums_of_fractions_are_those_of_doubles_within_rounding() {
    on_both(|both| {
        for (shape, axis) in [([3, 20_011], 1), ([9_001, 8], 0), ([9_001, 3], 0), ([300, 37], 1)] {
            for dtype in FLOATS {
                let (input, out) = (
                    both.uniform(shape, [0.0, 2.0], dtype, 1),
                    both.full(with_axis(&Shape::from(shape), axis, 1), 0.25, dtype),
                );
                let [exact, from] = [&out.cpu, &input.cpu].map(|t| t.to_dtype(DType::F64).expect("wider numbers"));
                for (to, from) in [(&exact, &from), (&out.cuda, &input.cuda)] {
                    let repeated = to.expand(shape).expect("a view");
                    backend::sum(view(&repeated), view(from), 0.125, 1.0).expect("it sums");
                }
                let found = Pair { cpu: exact.to_dtype(dtype).expect("numbers"), cuda: out.cuda };
                let most = if dtype.size() == 2 { 1.5e-7 } else { 1e-6 };
                found.assert_close(&format!("{shape:?} over {axis}"), most, 0.0);
            }
        }
    });
}

#[test]
fn a_stream_without_a_workspace_sums_as_well() {
    on_both(|both| {
        let stream = both.cuda.new_stream().expect("a stream");
        let input = both.whole([9_001, 8], [-2.0, 3.0], DType::F32, 1);
        let out = both.full([1, 8], 0.0, DType::F32);
        let repeated = out.map(|t| t.expand([9_001, 8]));
        let entered = stream.enter();
        compute(|on| backend::sum(view(on(&repeated)), view(on(&input)), 1.0, 1.0));
        out.assert_equal("beside the default stream");
        drop(entered);
    });
}
