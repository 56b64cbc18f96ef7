//! The functions that replace the driver's, and the lookups through which programs call them.
#![expect(unsafe_code, reason = "declares functions that C calls")]

mod hook;
mod blocks;
mod pages;
mod arrays;
mod contexts;
mod lookup;
// Tests do not replace the C library's functions.
#[cfg(not(test))]
mod endings;
