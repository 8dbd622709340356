//! The shared library's name for the loader ends in the version of the interface, so that one with another interface is never
//! loaded in its place.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The number is that of `FB_ABI_VERSION`; a test compares them.
    let (version, os) = (1, std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default());
    match os.as_str() {
        "linux" | "android" | "freebsd" | "netbsd" | "openbsd" => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfirebrand_c.so.{version}");
        }
        "macos" | "ios" => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libfirebrand_c.{version}.dylib");
        }
        _ => {}
    }
}
