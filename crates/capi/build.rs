//! How the library is linked: it has its name, with a version of the interface, inside.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A program that was linked with this interface is not loaded with another one.
    println!("cargo::rustc-link-arg-cdylib=-Wl,-soname,libvswap.so.0");
    // The handler of SIGBUS and the arena's threads stay: to unload what they run would be the end of the process.
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
}
