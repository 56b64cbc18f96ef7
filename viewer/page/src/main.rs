//! `cargo page`: builds the app for browsers, and stores it where the next build of `highwater` embeds it.
//!
//! Requires the WebAssembly target: `rustup target add wasm32-unknown-unknown`. `cargo page dev` compiles it in the
//! profile `dev`, in less time, as a larger and slower module.

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use flate2::Compression;
use flate2::write::GzEncoder;
use wasm_bindgen_cli_support::Bindgen;

const TARGET: &str = "wasm32-unknown-unknown";

/// The Cargo profile if the first argument names none.
const PROFILE: &str = "web";

const NAME: &str = "app";

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // Nothing else could report that standard error cannot be written.
            let _ = writeln!(std::io::stderr(), "error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), Box<dyn Error>> {
    let target = target_folder()?;
    let profile = std::env::args().nth(1).unwrap_or_else(|| PROFILE.to_owned());
    compile(&target, &profile)?;
    let profile_folder = if profile == "dev" { "debug" } else { &profile };
    let module = target.join(TARGET).join(profile_folder).join("highwater_app.wasm");
    let folder = target.join("page");
    let unpacked = folder.join("unpacked");
    let mut bindgen = Bindgen::new();
    bindgen.input_path(&module).out_name(NAME).no_modules(true)?;
    bindgen.typescript(false).remove_name_section(true).remove_producers_section(true);
    bindgen.generate(&unpacked).map_err(|why| format!("wasm-bindgen failed on {}: {why}", module.display()))?;
    let mut sizes = Vec::new();
    for (from, to) in [(format!("{NAME}_bg.wasm"), "app.wasm.gz"), (format!("{NAME}.js"), "app.js.gz")] {
        let bytes = fs::read(unpacked.join(from))?;
        let packed = gzip(&bytes)?;
        sizes.push(format!("{to} {:.2} MiB ({:.2} MiB unpacked)", mebibytes(&packed), mebibytes(&bytes)));
        fs::write(folder.join(to), packed)?;
    }
    let mut out = std::io::stdout();
    writeln!(out, "{}: {}", folder.display(), sizes.join(", "))?;
    writeln!(out, "`highwater` includes it from its next build on.")?;
    Ok(())
}

/// Returns Cargo's target folder, two levels above this program's file.
fn target_folder() -> Result<PathBuf, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let folder = program.parent().and_then(Path::parent).ok_or("this program is not in a target folder of Cargo")?;
    Ok(folder.to_owned())
}

fn compile(target: &Path, profile: &str) -> Result<(), Box<dyn Error>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let words = "rustc -p highwater-app --lib --crate-type cdylib --features gui --locked --target";
    let mut command = Command::new(cargo);
    command.args(words.split(' ')).arg(TARGET).args(["--profile", profile]).arg("--target-dir").arg(target);
    let status = command.status().map_err(|why| format!("cannot run cargo: {why}"))?;
    if !status.success() {
        return Err(format!(
            "the app cannot be compiled; if the target is missing, `rustup target add {TARGET}` installs it"
        )
        .into());
    }
    Ok(())
}

fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(bytes)?;
    packed.finish()
}

fn mebibytes(bytes: &[u8]) -> f64 {
    bytes.len() as f64 / f64::from(1 << 20)
}
