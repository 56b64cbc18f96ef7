//! The library that `highwater simulate` loads into a program. All code is in `highwater-simulate`, whose functions it
//! exports under their own names.

extern crate highwater_simulate as _;
