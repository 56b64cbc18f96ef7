//! Names the library as the driver's, so that a program that opens the driver by name gets it, and strips debug
//! information, which only the recorded program needs: the viewer embeds the library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-cdylib=-Wl,--strip-debug");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-soname,libcuda.so.1");
}
