//! The library that `highwater run` preloads into a program. All code is in `highwater-inject`, whose functions it
//! exports under their own names.

extern crate highwater_inject as _;
