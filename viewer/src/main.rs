//! The binary `highwater`.

use std::process::ExitCode;

fn main() -> ExitCode {
    highwater::run(std::env::args_os())
}
