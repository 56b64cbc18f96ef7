//! Runs a program with the stand-in in place of CUDA's libraries, as if there were a GPU.
//!
//!     cargo run --release -p highwater-stand-in --example on_stand_in -- PROGRAM [ARGUMENT…]
//!
//! The variables of [`settings`](highwater_stand_in::settings) set it up. Kernels are compiled by the host's C++
//! compiler when they are first used, and kept beside the library.
#![expect(clippy::print_stderr, reason = "says why the program cannot be run")]

use std::process::{Command, ExitCode};

use highwater_stand_in::Setup;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(program) = words.next() else {
        eprintln!("name a program to run");
        return ExitCode::from(2);
    };
    let mut command = Command::new(&program);
    command.args(words);
    let ready = Setup::new().apply(&mut command);
    // Set and empty: nothing is to look for CUDA's own libraries either.
    command.env("HIGHWATER_CUDA_PATH", "");
    let run = ready.and_then(|()| command.status().map_err(|why| format!("{}: {why}", program.display())));
    match run {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}
