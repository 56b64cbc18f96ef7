//! Hooks: the functions that stand in for the driver's, and how a program comes to call them.
#![expect(unsafe_code, reason = "declares functions that C calls")]

mod hook;
mod blocks;
mod pages;
mod arrays;
mod contexts;
mod lookup;
