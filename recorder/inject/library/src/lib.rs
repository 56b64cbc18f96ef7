//! The library that `highwater run` has the loader put into a program. All of it is in `highwater-inject`, whose functions
//! it exports under their own names.

extern crate highwater_inject as _;
