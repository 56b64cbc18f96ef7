//! The library that `highwater simulate` loads into a program. All code is in `highwater-simulate`, whose functions
//! this library exports under the same names.

extern crate highwater_simulate as _;
