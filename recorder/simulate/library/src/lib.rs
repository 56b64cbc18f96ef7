//! The library that `highwater simulate` loads into a program. Exports the functions of `highwater-simulate`, which
//! contains all code, under the same names.

extern crate highwater_simulate as _;
