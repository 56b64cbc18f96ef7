//! Casts between dtypes.

use highwater_engine::backend;
use highwater_engine::{DType, Tensor};

use crate::harness::{Both, Pair, on_both, run};

/// Values at the limits of dtypes, between neighbours of narrow ones, infinities and NaN.
fn numbers(both: &Both, dtype: DType) -> Pair {
    if dtype == DType::I64 {
        let whole = [
            0,
            1,
            -1,
            255,
            256,
            -7,
            65_505,
            65_519,
            65_520,
            16_777_217,
            (1 << 53) + 1,
            (1 << 62) + 1,
            i64::MAX,
            i64::MIN,
        ];
        return both.pair(Tensor::from_slice(&whole, whole.len(), &both.cpu).expect("they fill it"));
    }
    let fractions = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -0.0,
        0.5,
        -0.5,
        0.999_999_9,
        1.0,
        1.003_906_25,
        1.005_859_375,
        -3.7,
        255.0,
        255.9,
        256.0,
        2049.0,
        65_519.0,
        65_520.0,
        16_777_217.0,
        1e-8,
        6e-8,
        3e-5,
        9.2e18,
        9.3e18,
        -9.3e18,
        1e20,
        3.4e38,
        1e39,
        1e300,
    ];
    let wide = Tensor::from_slice(&fractions, fractions.len(), &both.cpu).expect("they fill it");
    both.pair(wide.to_dtype(dtype).expect("numbers become numbers"))
}

#[test]
fn every_type_becomes_every_other() {
    on_both(|both| {
        for from in DType::ALL {
            let input = numbers(both, from);
            for to in DType::ALL {
                let out = both.full(*input.cpu.shape(), 3.0, to);
                run(|of| backend::cast(of(&out), of(&input)));
                out.assert_equal(&format!("from {from}"));
                if to == DType::I64 {
                    let whole = [&out.cpu, &out.cuda].map(|t| t.to_vec::<i64>().expect("they can be read"));
                    assert_eq!(whole[0], whole[1], "from {from}");
                }
            }
        }
    });
}

#[test]
fn layouts_change_along_with_types() {
    on_both(|both| {
        for (from, to) in [
            (DType::F32, DType::Bf16),
            (DType::Bf16, DType::F32),
            (DType::F16, DType::F64),
            (DType::U8, DType::F32),
            (DType::F64, DType::Bool),
            (DType::I64, DType::U8),
        ] {
            for shape in [[0, 3], [5, 32], [7, 19], [3, 1500]] {
                for (name, input) in both.layouts(shape, |both, shape| both.whole(shape, [0.0, 200.0], from, 1)) {
                    let wide = both.full([shape[0], shape[1] + 16], 3.0, to);
                    for place in [3, 16] {
                        let out = wide.map(|t| t.narrow(1, place, shape[1]));
                        run(|of| backend::cast(of(&out), of(&input)));
                        wide.assert_equal(&format!("from {from}, {name}, {shape:?}"));
                    }
                }
            }
        }
    });
}
