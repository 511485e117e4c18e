//! C programs that a test compiles for itself.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::failure::During as _;
use crate::{Context, Outcome, ensure, require_program};

/// A compiler, and the packages that bring it.
#[derive(Debug, Clone, Copy)]
pub struct Compiler {
    name: &'static str,
    provided_by: &'static str,
}

/// With glibc.
pub const GCC: Compiler = Compiler {
    name: "gcc",
    provided_by: "apt packages gcc libc6-dev",
};
/// With musl.
pub const MUSL: Compiler = Compiler {
    name: "musl-gcc",
    provided_by: "apt package musl-tools",
};

/// Compiles `text` to the program `name` in the test's directory. Skips the test if there is no such compiler.
pub fn compile(
    context: &Context,
    compiler: Compiler,
    text: &str,
    name: &str,
    options: &[&str],
) -> Outcome<PathBuf> {
    let path = require_program(compiler.name, compiler.provided_by)?;
    let program = context.place().join(name);
    let source = program.with_extension("c");
    fs::write(&source, text).during(|| format!("write {}", source.display()))?;
    let output = Command::new(path)
        .args(options)
        .arg("-o")
        .args([&program, &source])
        .output()
        .during(|| format!("run {}", compiler.name))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} {options:?} {name}.c: {errors}",
        compiler.name
    );
    Ok(program)
}
