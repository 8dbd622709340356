//! The shared library's name for the loader ends in the version of the interface, so that one with another interface is never
//! loaded in its place. A build for size packs the addresses that the loader adjusts.

use std::env::var;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=FIREBRAND_RELOCATIONS");
    // The number is that of `FB_ABI_VERSION`; a test compares them.
    let (version, os) = (1, var("CARGO_CFG_TARGET_OS").unwrap_or_default());
    match os.as_str() {
        "linux" | "android" | "freebsd" | "netbsd" | "openbsd" => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfirebrand_c.so.{version}");
        }
        "macos" | "ios" => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libfirebrand_c.{version}.dylib");
        }
        _ => {}
    }
    // The tables of ops hold 25,000 addresses, 24 bytes each unless packed. Loaders know that from glibc 2.36 and musl 1.2.4 on; one that
    // does not says so. A linker that does not know it warns and goes on.
    let small = matches!(var("OPT_LEVEL").as_deref(), Ok("s" | "z"));
    if os == "linux" && small && var("FIREBRAND_RELOCATIONS").as_deref() != Ok("plain") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,pack-relative-relocs");
    }
}
