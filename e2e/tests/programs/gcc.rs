//! gcc compiles a large generated file with optimisation. The output of the compiled program is known beforehand.
//!
//! The program computes what the generator computes, so a wrong compiler shows, even if it is wrong natively too.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use vswap_e2e::failure::During;
use vswap_e2e::records::{checksum, mix};
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, require_program};

/// A third of what cc1 needs here. Its trees compress 2.5 times with lz4, which would not fit, and 4.5 times with zstd.
const LIMIT_BYTES: u64 = 88 * MIB;
const FUNCTIONS: u64 = 300;
const STEPS: u64 = 12;
const CELLS: u64 = 1_600_000;

pub fn test(context: &Context) -> Outcome {
    let gcc = require_program("gcc", "apt packages gcc libc6-dev")?;
    let source = context.place().join("large.c");
    let expected = write_source(&source)?;
    context.compare(LIMIT_BYTES, |launcher| {
        let options = ["-O1", "-o", "large"];
        let job = Job::new(&gcc)
            .args(options)
            .arg(&source)
            .vswap_options(["--codec", "zstd"]);
        launcher.run(&job)?;
        let binary = launcher.place().join("large");
        let output = Command::new(&binary)
            .output()
            .during(|| "run what gcc made".to_owned())?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            said == expected,
            "the compiled program says {said}, expected {expected}"
        );
        let bytes = fs::read(&binary).during(|| format!("read {}", binary.display()))?;
        Ok(checksum(&bytes))
    })
}

fn cell(index: u64) -> u32 {
    u32::try_from(mix(index) & 63).unwrap_or_default()
}

/// One statement of a function: what it is in C, and what it does.
enum Step {
    /// `if (x & mask) y += x * factor; else x ^= y >> shift;`
    Branch { mask: u32, factor: u32, shift: u32 },
    /// `for (i < turns) x += table[(x + i + offset) % CELLS] ^ y;`
    Loop { turns: u32, offset: u32 },
    /// `switch (x % 5)`
    Switch { flip: u32 },
}

fn low(value: u64, bits: u32) -> u32 {
    u32::try_from(value & ((1 << bits) - 1)).unwrap_or_default()
}

fn step(function: u64, number: u64) -> Step {
    let seed = mix(function * 100 + number);
    match number % 3 {
        0 => Step::Branch {
            mask: low(seed, 8),
            factor: low(seed >> 8, 16),
            shift: 1 + low(seed >> 24, 4),
        },
        1 => Step::Loop {
            turns: 1 + low(seed, 2),
            offset: low(seed >> 16, 16),
        },
        _ => Step::Switch {
            flip: low(seed, 16),
        },
    }
}

impl Step {
    fn write(&self, into: &mut String) {
        // Writing to a String never fails.
        let _always = match self {
            Step::Branch {
                mask,
                factor,
                shift,
            } => {
                writeln!(
                    into,
                    " if (x & {mask}u) y += x * {factor}u; else x ^= y >> {shift};"
                )
            }
            Step::Loop { turns, offset } => writeln!(
                into,
                " for (uint32_t i = 0; i < {turns}u; i++) x += table[(x + i + {offset}u) % {CELLS}u] ^ y;"
            ),
            Step::Switch { flip } => writeln!(
                into,
                " switch (x % 5u) {{ case 0: y ^= {flip}u; break; case 1: x += y; break; \
                 case 2: y -= x >> 3; break; default: x = (x << 5) | (x >> 27); }}"
            ),
        };
    }

    fn apply(&self, x: &mut u32, y: &mut u32) {
        match *self {
            Step::Branch { mask, factor, .. } if *x & mask != 0 => {
                *y = y.wrapping_add(x.wrapping_mul(factor));
            }
            Step::Branch { shift, .. } => *x ^= *y >> shift,
            Step::Loop { turns, offset } => {
                for i in 0..turns {
                    let index = u64::from(x.wrapping_add(i).wrapping_add(offset)) % CELLS;
                    *x = x.wrapping_add(cell(index) ^ *y);
                }
            }
            Step::Switch { flip } => match *x % 5 {
                0 => *y ^= flip,
                1 => *x = x.wrapping_add(*y),
                2 => *y = y.wrapping_sub(*x >> 3),
                _ => *x = x.rotate_left(5),
            },
        }
    }
}

/// Writes the source and returns what the program made from it must print.
fn write_source(path: &Path) -> Outcome<String> {
    let mut text = String::from("#include <stdio.h>\n#include <stdint.h>\n");
    let _always = writeln!(text, "static const uint32_t table[{CELLS}] = {{");
    for index in 0..CELLS {
        let end = if index % 16 == 15 { ",\n" } else { "," };
        let _always = write!(text, "{}u{end}", cell(index));
    }
    text.push_str("};\n");
    let (mut x, mut y) = (1u32, 2u32);
    let mut calls = String::new();
    for function in 0..FUNCTIONS {
        let flip = low(mix(function), 16);
        let _always = writeln!(
            text,
            "static uint32_t f{function}(uint32_t a, uint32_t b) {{ uint32_t x = a ^ {flip}u, y = b;"
        );
        let (mut inner_x, mut inner_y) = (x ^ flip, y);
        for number in 0..STEPS {
            let step = step(function, number);
            step.write(&mut text);
            step.apply(&mut inner_x, &mut inner_y);
        }
        text.push_str(" return x + y; }\n");
        let _always = writeln!(calls, " x = f{function}(x, y); y += x;");
        x = inner_x.wrapping_add(inner_y);
        y = y.wrapping_add(x);
    }
    let _always = writeln!(
        text,
        "int main(void) {{ uint32_t x = 1, y = 2;\n{calls} printf(\"%u %u\\n\", x, y); return 0; }}"
    );
    fs::write(path, text).during(|| format!("write {}", path.display()))?;
    Ok(format!("{x} {y}\n"))
}
