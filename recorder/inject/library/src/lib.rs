//! The library that `highwater run` preloads into a program. All code is in `highwater-inject`, whose functions this
//! library exports under the same names.

extern crate highwater_inject as _;
