//! How the agent is linked. Every exec in a run loads it, so it has only two segments and needs no library but libc.
//! std and libgcc_s would cost 120 us in each exec; the agent itself costs less than that.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for argument in [
        "-nostartfiles",
        // Makes libc a dependency, so that the loader initialises libc before the agent.
        "-Wl,--no-as-needed",
        "-lc",
        "-Wl,-z,noseparate-code",
        "-Wl,-z,norelro",
        // What an injector jumps to (entry/attached.rs).
        "-Wl,--entry=vswap_attached",
        "-Wl,--hash-style=gnu",
    ] {
        println!("cargo::rustc-link-arg-cdylib={argument}");
    }
    // For the tests: the target if it is another machine, where what they start needs a runner.
    let [target, host] = ["TARGET", "HOST"].map(|name| std::env::var(name).unwrap_or_default());
    let cross = if target == host { "" } else { &target };
    println!("cargo::rustc-env=VSWAP_CROSS_TARGET={cross}");
}
