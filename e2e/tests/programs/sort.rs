//! `sort` of a shuffled file, all of it in memory. Every line of the output is known beforehand.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use vswap_e2e::failure::During;
use vswap_e2e::{Context, Job, MIB, Outcome, ensure, require_program};

const LIMIT_BYTES: u64 = 92 * MIB;
/// Lines are shuffled within blocks of this many. If the whole file were shuffled, every comparison of the last merges
/// would be in another page, and the test would measure random faults for minutes. Here a merge works in two blocks at
/// a time.
const BLOCK_LINES: u64 = 16_384;
const BLOCKS: u64 = 128;
const LINES: u64 = BLOCKS * BLOCK_LINES;
/// Odd, so it has no common factor with either power of two, and multiplying by it shuffles.
const SHUFFLE: u64 = 5_237;

pub fn test(context: &Context) -> Outcome {
    let sort = require_program("sort", "apt package coreutils")?;
    let input = context.place().join("shuffled");
    write_shuffled(&input)?;
    context.compare(LIMIT_BYTES, |launcher| {
        // The temporary directory does not exist. So a sort that spills to disk would fail instead of cheating.
        let options = ["-S", "900M", "--parallel=2", "-T", "/nonexistent"];
        let job = Job::new(&sort).args(options).arg(&input).env("LC_ALL", "C");
        let ended = launcher.run(&job)?;
        check_sorted(&ended.stdout)
    })
}

/// The number of the line at this place of the input. Blocks are shuffled, and so are the lines in each.
fn number_at(place: u64) -> u64 {
    let (block, within) = (place / BLOCK_LINES, place % BLOCK_LINES);
    block * SHUFFLE % BLOCKS * BLOCK_LINES + within * SHUFFLE % BLOCK_LINES
}

fn line(number: u64, into: &mut String) {
    use std::fmt::Write as _;
    into.clear();
    // Writing to a String never fails.
    let _always = writeln!(
        into,
        "order {number:010} from the warehouse at the harbour, to be delivered before noon: {}",
        number.wrapping_mul(0x9e37_79b9) & 0xffff
    );
}

fn write_shuffled(path: &Path) -> Outcome {
    let during = || format!("write {}", path.display());
    let mut file = BufWriter::new(File::create(path).during(during)?);
    let mut text = String::new();
    for place in 0..LINES {
        line(number_at(place), &mut text);
        file.write_all(text.as_bytes()).during(during)?;
    }
    file.flush().during(during)
}

fn check_sorted(path: &Path) -> Outcome<u64> {
    let mut file = BufReader::new(File::open(path).during(|| format!("open {}", path.display()))?);
    let (mut got, mut expected) = (String::new(), String::new());
    for number in 0..LINES {
        got.clear();
        file.read_line(&mut got)
            .during(|| format!("read {}", path.display()))?;
        line(number, &mut expected);
        ensure!(
            got == expected,
            "line {number} is {got:?}, expected {expected:?}"
        );
    }
    got.clear();
    let more = file
        .read_line(&mut got)
        .during(|| format!("read {}", path.display()))?;
    ensure!(more == 0, "there is more after {LINES} lines: {got:?}");
    Ok(LINES)
}
