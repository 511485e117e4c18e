//! A trace: which pages a program touched, in order.
//!
//! A file of one line for each touch: process id in decimal, number of the page in hexadecimal. Pages get numbers from
//! 0 on in the order of process and address, because vswap's hand sweeps in the order of addresses.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Touches by number of the page.
#[derive(Debug)]
pub struct Trace {
    /// How many different pages there are.
    pub pages: usize,
    /// The touches, in order.
    pub touches: Vec<usize>,
}

impl Trace {
    /// The trace of touches by process and page.
    pub fn of(touches: &[(u32, u64)]) -> Trace {
        let mut known = touches.to_vec();
        known.sort_unstable();
        known.dedup();
        let number = |touch| known.binary_search(touch).unwrap_or_default();
        Trace {
            pages: known.len(),
            touches: touches.iter().map(number).collect(),
        }
    }
}

/// One line of the file.
pub fn line(pid: u32, page: u64) -> String {
    format!("{pid} {page:x}\n")
}

/// Reads a file.
///
/// # Errors
/// It cannot be read, has another content, or says of no touch.
pub fn read(path: &Path) -> Result<Trace, String> {
    let cannot = |error| format!("cannot read {}: {error}", path.display());
    let lines = BufReader::new(File::open(path).map_err(cannot)?).lines();
    let mut touches = Vec::new();
    for (line, number) in lines.zip(1..) {
        let line = line.map_err(cannot)?;
        let touch = parse(&line).ok_or_else(|| {
            let name = path.display();
            format!(
                "{name}, line {number}: \"{line}\" is not a process and a page; `vswap-policy record` makes such files"
            )
        })?;
        touches.push(touch);
    }
    if touches.is_empty() {
        return Err(format!("{} has no touch in it", path.display()));
    }
    Ok(Trace::of(&touches))
}

fn parse(line: &str) -> Option<(u32, u64)> {
    let (pid, page) = line.split_once(' ')?;
    Some((pid.parse().ok()?, u64::from_str_radix(page, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_numbered_by_process_and_address() {
        let trace = Trace::of(&[(7, 0x20), (7, 0x10), (5, 0x30), (7, 0x20)]);
        assert_eq!(trace.pages, 3);
        assert_eq!(trace.touches, [2, 1, 0, 2]);
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        assert_eq!(parse(line(7, 0xabc).trim_end()), Some((7, 0xabc)));
        assert_eq!(parse("7"), None);
        assert_eq!(parse("7 x"), None);
    }
}
