//! Tests of the app, driven through its accessibility tree and keys, without a window or a graphics card.
#![cfg(feature = "gui")]

mod harness;
mod opening;
mod folder;
mod timeline;
mod steering;
mod direct;
mod finding;
mod seen;
mod layout;
mod long;
mod effects;
mod commands;
mod tree;
mod segments;
mod diff;
#[cfg(feature = "engine")]
mod whatif;
mod plan;
mod keyboard;
mod pictures;
