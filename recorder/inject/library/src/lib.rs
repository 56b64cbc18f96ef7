//! The library that `highwater run` preloads into a program. Exports the functions of `highwater-inject`, which
//! contains all code, under the same names.

extern crate highwater_inject as _;
