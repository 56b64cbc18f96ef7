//! Gives the library the file name of the driver, so that a program that opens the driver by name finds this library.
//! Strips debug information to reduce the size of the viewer, which embeds the library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-cdylib=-Wl,--strip-debug");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-soname,libcuda.so.1");
}
