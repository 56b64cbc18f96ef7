//! Strips debug information from the library: only the recorded program's source lines are needed, and the viewer
//! embeds the library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-cdylib=-Wl,--strip-debug");
}
