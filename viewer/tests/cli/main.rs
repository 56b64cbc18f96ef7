//! Tests the output of each command for a small recording, and of the binary for invalid input.

mod sample;
mod answers;
mod figures;
mod csv;
mod reasons;
mod names;
mod gate;
mod devices;
mod partial;
mod incomplete;
mod binary;
mod long;
mod reserved;
mod rotated;
mod convert;
mod serve;
mod mcp;
#[cfg(feature = "run")]
mod run;
mod join;
mod symbolize;
mod fleet;
#[cfg(feature = "parquet")]
mod tables;
#[cfg(all(feature = "parquet", feature = "engine"))]
mod query;
#[cfg(feature = "gui")]
mod render;
#[cfg(all(target_os = "linux", feature = "engine", feature = "gui", feature = "parquet", feature = "simulate"))]
mod schema;
#[cfg(feature = "engine")]
mod questions;
#[cfg(feature = "engine")]
mod record;
#[cfg(feature = "engine")]
mod top;
#[cfg(feature = "engine")]
mod oom;
#[cfg(feature = "engine")]
mod whatif;
#[cfg(feature = "engine")]
mod plan;
#[cfg(feature = "engine")]
mod verdicts;
#[cfg(feature = "engine")]
mod pasted_lines;
#[cfg(feature = "engine")]
mod cuda;
