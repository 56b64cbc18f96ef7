//! Functions of the elements at one place.

use highwater_engine::backend::{self, Binary, Ternary, Unary};
use highwater_engine::{DType, Shape};

use crate::harness::{FLOATS, on_both, view};

const UNARY: [Unary; 13] = [
    Unary::Affine { scale: -1.5, shift: 0.25 },
    Unary::Exp,
    Unary::Log,
    Unary::Sqrt,
    Unary::Square,
    Unary::Tanh,
    Unary::Sin,
    Unary::Cos,
    Unary::Sigmoid,
    Unary::Silu,
    Unary::Relu,
    Unary::Gelu,
    Unary::GeluTanh,
];

#[test]
fn functions_of_one_number_are_those_of_the_processor() {
    on_both(|both| {
        for dtype in FLOATS {
            for function in UNARY {
                for shape in [Shape::from([5, 7]), Shape::from([0, 3]), Shape::from(1), Shape::from([3, 1031])] {
                    let input = both.uniform(shape, [0.1, 3.0], dtype, 1);
                    let out = both.full(shape, 9.0, dtype);
                    backend::unary(view(&out.cpu), function, Some(view(&input.cpu))).expect("the processor computes");
                    backend::unary(view(&out.cuda), function, Some(view(&input.cuda))).expect("a kernel starts");
                    out.assert_close(&format!("{function:?}"), 2e-6, 1e-6);
                    backend::unary(view(&input.cpu), function, None).expect("the processor computes");
                    backend::unary(view(&input.cuda), function, None).expect("a kernel starts");
                    input.assert_close(&format!("{function:?} in place"), 2e-6, 1e-6);
                }
            }
        }
    });
}

#[test]
fn operands_may_lie_in_any_layout() {
    on_both(|both| {
        for dtype in [DType::F32, DType::Bf16] {
            let left = both.normal([6, 40], dtype, 1).map(|t| t.transpose(0, 1)?.narrow(0, 3, 30));
            let right = both.normal([6], dtype, 2).map(|t| t.expand([30, 6]));
            let wide = both.full([30, 11], 7.0, dtype);
            let out = wide.map(|t| t.narrow(1, 2, 6));
            backend::binary(view(&out.cpu), Binary::Mul, Some(view(&left.cpu)), view(&right.cpu)).expect("it computes");
            backend::binary(view(&out.cuda), Binary::Mul, Some(view(&left.cuda)), view(&right.cuda))
                .expect("it starts");
            let add = Ternary::AddMul(0.5);
            backend::ternary(view(&out.cpu), add, view(&left.cpu), view(&right.cpu)).expect("it computes");
            backend::ternary(view(&out.cuda), add, view(&left.cuda), view(&right.cuda)).expect("it starts");
            wide.assert_close("what is beside the output stays as it was", 1e-6, 0.0);
        }
    });
}
