//! Names the library like the driver's, so that a program that opens the driver by name finds it. Strips debug
//! information, which is needed only for the recorded program, since the viewer embeds the library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-cdylib=-Wl,--strip-debug");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-soname,libcuda.so.1");
}
