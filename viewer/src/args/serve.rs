//! The options of `highwater serve`.

use std::path::PathBuf;

use clap::Args;

use super::CategoryChoice;

/// `highwater serve`.
#[derive(Clone, Debug, Args)]
pub struct ServeArguments {
    /// Recordings; `-` is standard input. Recordings that are still being written are followed
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Port to listen on [default: a free one]
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// Address to listen on, for other computers to connect to without ssh [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub host: Option<String>,
    /// Open the page in a browser on this computer
    #[arg(long)]
    pub open: bool,
    /// The categories.
    #[command(flatten)]
    pub categories: CategoryChoice,
}
