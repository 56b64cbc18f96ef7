//! Strips debug information from the library. Only the source lines of the recorded program are needed, and the viewer
//! embeds the library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-cdylib=-Wl,--strip-debug");
}
