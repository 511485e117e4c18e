//! What `--ram` takes: a size, or the two between which a run follows the machine.

use std::str::FromStr;

use vswap_pager::config::RamRange;

use crate::args::size::{Available, RamSize};
use crate::failure::Failure;
use crate::output::figures::bytes;

/// Stands between the least and the most.
const BETWEEN: &str = "..";

/// What `--ram` was given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ram {
    least: RamSize,
    most: RamSize,
}

impl FromStr for Ram {
    type Err = String;

    fn from_str(text: &str) -> Result<Ram, String> {
        let Some((least, most)) = text.split_once(BETWEEN) else {
            let size = text.parse()?;
            return Ok(Ram {
                least: size,
                most: size,
            });
        };
        if least.trim().is_empty() || most.trim().is_empty() {
            return Err(format!(
                "{text} is half a range: expected the least and the most, for example: 512M..2G, 256M..auto"
            ));
        }
        Ok(Ram {
            least: least.parse()?,
            most: most.parse()?,
        })
    }
}

impl Ram {
    /// The limits in bytes.
    pub fn resolve(self, available: Available) -> Result<RamRange, Failure> {
        let range = RamRange {
            least_bytes: self.least.resolve(available)?,
            most_bytes: self.most.resolve(available)?,
        };
        if range.least_bytes > range.most_bytes {
            return Err(Failure::own(format!(
                "--ram has its least, {}, above its most, {}: write the smaller one first, --ram {}M..{}M",
                bytes(range.least_bytes),
                bytes(range.most_bytes),
                range.most_bytes >> 20,
                range.least_bytes >> 20
            )));
        }
        Ok(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AVAILABLE: Available = Available {
        machine_bytes: 4 << 30,
        container_bytes: None,
    };

    #[test]
    fn one_size_or_two() {
        let range = |text: &str| {
            let ram: Ram = text.parse().expect(text);
            ram.resolve(AVAILABLE).expect(text)
        };
        assert_eq!(range("512M"), RamRange::fixed(512 << 20));
        assert_eq!(range("50%"), RamRange::fixed(2 << 30));
        let two = RamRange {
            least_bytes: 512 << 20,
            most_bytes: 1 << 30,
        };
        assert_eq!(range("512M..25%"), two);
        assert_eq!(range("512M .. 1G"), two);
    }

    #[test]
    fn half_a_range_and_one_upside_down_are_explained() {
        for text in ["..1G", "1G..", ".."] {
            let error = text.parse::<Ram>().expect_err(text);
            assert!(error.contains("512M..2G"), "{error}");
        }
        assert!("1G..2X".parse::<Ram>().is_err());
        let ram: Ram = "64M..32M".parse().expect("two sizes");
        let error = ram.resolve(AVAILABLE).expect_err("upside down").to_string();
        assert_eq!(
            error,
            "--ram has its least, 64 MiB, above its most, 32 MiB: write the smaller one first, --ram 32M..64M"
        );
    }
}
