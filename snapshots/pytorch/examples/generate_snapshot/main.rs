//! Writes a PyTorch memory snapshot of any size, as CPython pickles one, to measure readers.
//!
//! ```text
//! cargo run --release -p highwater-snapshots --example generate_snapshot -- --events 1140000 --out f.pickle
//! cargo run --release -p highwater-snapshots --example generate_snapshot -- --oldest-first 1000000 --out fifo.pickle
//! ```
//!
//! The events are those of a training run on an allocator with PyTorch's rules; the same options give the same bytes.
//! What a reader must find in the file is printed as JSON. Memory is needed for what is alive, not for the events.

mod allocator;
mod pickle;
mod program;
mod snapshot;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use program::Plan;

const USAGE: &str = "usage: generate_snapshot --out FILE [--events N] [--oldest-first BLOCKS] [--devices N]
                         [--depth FRAMES] [--stacks N] [--seed N]

  --events N             events in all, 100000 if not said
  --oldest-first BLOCKS  in place of training: that many blocks of some 1 MiB, then each freed, the oldest first
  --devices N            devices that share the events, 1 if not said
  --depth FRAMES         frames of a stack, 40 if not said
  --stacks N             distinct stacks, 4000 if not said
  --seed N               another run of the same kind, 0 if not said";

fn options() -> Result<(Plan, PathBuf), String> {
    let mut plan = Plan { events: 100_000, oldest_first: None, devices: 1, depth: 40, stacks: 4_000, seed: 0 };
    let mut out = None;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|why| format!("{word} {value}: {why}"));
        match word.as_str() {
            "--out" => out = Some(PathBuf::from(value)),
            "--events" => plan.events = number()?,
            "--oldest-first" => plan.oldest_first = Some(number()?),
            "--devices" => plan.devices = number()?.clamp(1, 64),
            "--depth" => plan.depth = number()?.min(1_000),
            "--stacks" => plan.stacks = number()?.clamp(1, 10_000_000),
            "--seed" => plan.seed = number()?,
            _ => return Err(format!("there is no option {word}")),
        }
    }
    Ok((plan, out.ok_or("--out is missing")?))
}

fn main() -> ExitCode {
    let (plan, path) = match options() {
        Ok(options) => options,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "{why}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let written = File::create(&path).and_then(|file| {
        let mut file = BufWriter::with_capacity(1 << 20, file);
        let found = snapshot::write(&plan, &mut file)?;
        file.flush()?;
        writeln!(std::io::stdout(), "{found}")
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "cannot write {}: {why}", path.display());
            ExitCode::FAILURE
        }
    }
}
