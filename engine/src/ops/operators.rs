//! The operators `+`, `-`, `*` and `/` between tensors and with scalars, and unary `-`.
//!
//! An operator can fail like the method that it calls, so it returns a [`Result`]. Its operands are tensors, by
//! value or by reference, and scalars of type `f64`; one operand can also be the result of another operator, so that a
//! chain needs one `?`:
//!
//! ```
//! # use highwater_engine::{DType, Device, Result, Tensor};
//! # fn main() -> Result<()> {
//! # let device = Device::cpu();
//! let [x, y, z] = [1.0, 2.0, 3.0].map(|value| Tensor::full(2, value, DType::F32, &device));
//! let (x, y, z) = (x?, y?, z?);
//! let sum = (&x * &y + &z)?;
//! let shifted = (2.0 * &sum)? - 1.0;
//! assert_eq!(shifted?.to_vec::<f32>()?, [9.0, 9.0]);
//! # Ok(())
//! # }
//! ```
//!
//! Rust permits no operator between two results, or between a result and a scalar, so write `?` after one of the
//! operators, as above. A division by a scalar multiplies by its inverse. The result of `+` overwrites the memory of a
//! left operand that is passed by value, if the memory is not shared.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::{Result, Tensor};

trait Operand {
    fn into_tensor(self) -> Result<Tensor>;
}

impl Operand for Tensor {
    fn into_tensor(self) -> Result<Tensor> {
        Ok(self)
    }
}

impl Operand for &Tensor {
    fn into_tensor(self) -> Result<Tensor> {
        Ok(self.clone())
    }
}

impl Operand for Result<Tensor> {
    fn into_tensor(self) -> Result<Tensor> {
        self
    }
}

/// Defines an operator by functions of two tensors, of a tensor and a scalar, and of a scalar and a tensor.
macro_rules! operator {
    ($operator:ident::$name:ident = $of_tensors:expr, $with_scalar:expr, $of_scalar:expr) => {
        operator! {
            $operator::$name = $of_tensors;
            Tensor, Tensor; Tensor, &Tensor; &Tensor, Tensor; &Tensor, &Tensor;
            Result<Tensor>, Tensor; Result<Tensor>, &Tensor; Tensor, Result<Tensor>; &Tensor, Result<Tensor>;
        }
        operator!($operator::$name = $with_scalar, $of_scalar; Tensor; &Tensor;);
    };
    ($operator:ident::$name:ident = $of_tensors:expr; $($left:ty, $right:ty;)+) => {
        $(impl $operator<$right> for $left {
            type Output = Result<Tensor>;

            fn $name(self, right: $right) -> Result<Tensor> {
                let of_tensors: fn(Tensor, &Tensor) -> Result<Tensor> = $of_tensors;
                of_tensors(self.into_tensor()?, &right.into_tensor()?)
            }
        })+
    };
    ($operator:ident::$name:ident = $with_scalar:expr, $of_scalar:expr; $($tensor:ty;)+) => {
        $(impl $operator<f64> for $tensor {
            type Output = Result<Tensor>;

            fn $name(self, scalar: f64) -> Result<Tensor> {
                let with_scalar: fn(&Tensor, f64) -> Result<Tensor> = $with_scalar;
                with_scalar(&self.into_tensor()?, scalar)
            }
        }

        impl $operator<$tensor> for f64 {
            type Output = Result<Tensor>;

            fn $name(self, tensor: $tensor) -> Result<Tensor> {
                let of_scalar: fn(f64, &Tensor) -> Result<Tensor> = $of_scalar;
                of_scalar(self, &tensor.into_tensor()?)
            }
        })+
    };
}

operator! { Add::add =
    |left, right| left.into_add(right),
    |x, scalar| x.add_scalar(scalar),
    |scalar, x| x.add_scalar(scalar)
}
operator! { Sub::sub =
    |left, right| Tensor::sub(&left, right),
    |x, scalar| x.add_scalar(-scalar),
    |scalar, x| x.affine(-1.0, scalar)
}
operator! { Mul::mul =
    |left, right| Tensor::mul(&left, right),
    |x, scalar| x.mul_scalar(scalar),
    |scalar, x| x.mul_scalar(scalar)
}
operator! { Div::div =
    |left, right| Tensor::div(&left, right),
    |x, scalar| x.mul_scalar(1.0 / scalar),
    divide
}

fn divide(scalar: f64, x: &Tensor) -> Result<Tensor> {
    let inverse = x.powi(-1)?;
    if scalar == 1.0 { Ok(inverse) } else { inverse.mul_scalar(scalar) }
}

impl Neg for &Tensor {
    type Output = Result<Tensor>;

    fn neg(self) -> Result<Tensor> {
        Tensor::neg(self)
    }
}

impl Neg for Tensor {
    type Output = Result<Self>;

    fn neg(self) -> Result<Self> {
        Self::neg(&self)
    }
}
