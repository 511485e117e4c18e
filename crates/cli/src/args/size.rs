//! Parses sizes and pauses as people write them, and works out what a size means on this machine.

use std::str::FromStr;
use std::time::Duration;

use vswap_areas::units::{factor, hint, parse_bytes, scaled, split_unit};
use vswap_pager::config::PoolLimit;
use vswap_sys::{process::cgroup, process::procfs};

use crate::failure::Failure;
use crate::output::figures::bytes;

/// The least RAM that a run can work with. vswap itself takes 5 to 6 MiB of it. A Python interpreter with 24 MiB of
/// data gets through with 12 MiB and stands still with 8.
pub const RAM_MIN_BYTES: u64 = 16 << 20;
/// The share of the limit that `auto` leaves to the kernel. Page tables, sockets, pipes and file structures are charged
/// to the container too and grow with the program, but vswap cannot evict them.
pub const AUTO_MARGIN_PERCENT: u64 = 5;
/// `auto` leaves at least this much besides. A run may exceed its limit by this much for a moment, and the kernel's
/// per-process memory is there however small the container is.
pub const AUTO_MARGIN_BYTES: u64 = 32 << 20;

/// What `--ram` was given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RamSize {
    Bytes(u64),
    /// A share of the machine's RAM, or of the container's limit if that is smaller.
    Percent(f64),
    /// The container's limit minus a margin.
    Auto,
}

/// What `--pool` was given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PoolSize {
    /// No pool: pages go straight to the areas.
    Off,
    Bytes(u64),
    /// A share of what `--ram` comes to.
    Percent(f64),
}

/// The RAM of the machine, and how much of it the container may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Available {
    pub machine_bytes: u64,
    pub container_bytes: Option<u64>,
}

impl FromStr for RamSize {
    type Err = String;

    fn from_str(text: &str) -> Result<RamSize, String> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("auto") {
            return Ok(RamSize::Auto);
        }
        let (number, unit) = split_unit(text);
        let value = parse_number(number)?;
        if unit == "%" {
            return if value > 0.0 && value <= 100.0 {
                Ok(RamSize::Percent(value))
            } else {
                Err(format!(
                    "{text} is not a share between 0% and 100%; for example: 50%"
                ))
            };
        }
        let Some(factor) = factor(unit) else {
            return Err(format!(
                "\"{unit}\" is no unit of size: expected K, M, G or T (or KiB, MB, ... or %); \
                 for example: 512M, 1.5GiB, 50%"
            ));
        };
        let size = scaled(value, factor).ok_or_else(|| {
            format!("{text} is more than any machine has; for example: 512M, 1.5GiB")
        })?;
        if size < RAM_MIN_BYTES {
            return Err(format!(
                "{text} is {}: a run needs at least {}{}",
                bytes(size),
                bytes(RAM_MIN_BYTES),
                hint(unit)
            ));
        }
        Ok(RamSize::Bytes(size))
    }
}

/// A limit in bytes. 0 is allowed.
pub fn parse_limit(text: &str) -> Result<u64, String> {
    const EXAMPLES: &str = "for example: 512M, 1.5GiB, 0";
    let bytes = parse_bytes(text, EXAMPLES)?;
    bytes.ok_or_else(|| format!("{text} is more than any machine has; {EXAMPLES}"))
}

fn parse_number(number: &str) -> Result<f64, String> {
    number.parse().map_err(|_| {
        "expected a number and a unit, a share, or auto; for example: 512M, 1.5GiB, 50%, auto"
            .to_owned()
    })
}

impl RamSize {
    /// The limit in bytes.
    pub fn resolve(self, available: Available) -> Result<u64, Failure> {
        let whole = available.whole();
        let (limit, how) = match self {
            RamSize::Bytes(size) => (size, String::new()),
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // at most `whole`
            RamSize::Percent(share) => (
                (whole as f64 * share / 100.0) as u64,
                format!("{share}% of {}", bytes(whole)),
            ),
            RamSize::Auto => {
                let margin = AUTO_MARGIN_BYTES + whole / 100 * AUTO_MARGIN_PERCENT;
                let how = format!("{} less a margin of {}", bytes(whole), bytes(margin));
                (whole.saturating_sub(margin), how)
            }
        };
        if limit < RAM_MIN_BYTES {
            return Err(Failure::own(format!(
                "--ram comes to {} ({how}): a run needs at least {}; name a size, for example --ram 64M",
                bytes(limit),
                bytes(RAM_MIN_BYTES)
            )));
        }
        Ok(limit)
    }
}

impl FromStr for PoolSize {
    type Err = String;

    fn from_str(text: &str) -> Result<PoolSize, String> {
        const EXAMPLES: &str = "for example: 128M, 25%, off";
        let text = text.trim();
        if text.eq_ignore_ascii_case("off") {
            return Ok(PoolSize::Off);
        }
        let (number, unit) = split_unit(text);
        let value: f64 = number
            .parse()
            .map_err(|_| format!("expected a size, a share of --ram, or off; {EXAMPLES}"))?;
        match (unit, factor(unit)) {
            _ if value == 0.0 => Ok(PoolSize::Off),
            ("%", _) if value <= 100.0 => Ok(PoolSize::Percent(value)),
            ("%", _) => Err(format!("{text} is more than all of --ram; {EXAMPLES}")),
            (_, Some(factor)) => scaled(value, factor)
                .map(PoolSize::Bytes)
                .ok_or_else(|| format!("{text} is more than any machine has; {EXAMPLES}")),
            (_, None) => Err(format!(
                "\"{unit}\" is no unit of size: expected K, M, G or T (or KiB, MB, ... or %); {EXAMPLES}"
            )),
        }
    }
}

impl PoolSize {
    /// What the pool may take.
    pub fn limit(self) -> PoolLimit {
        match self {
            PoolSize::Off => PoolLimit::Bytes(0),
            PoolSize::Bytes(size) => PoolLimit::Bytes(size),
            PoolSize::Percent(share) => PoolLimit::Percent(share),
        }
    }

    /// The limit in bytes.
    pub fn resolve(self, ram_bytes: u64) -> u64 {
        self.limit().of(ram_bytes)
    }
}

impl Available {
    /// What this machine has.
    pub fn here() -> Result<Available, Failure> {
        let machine = procfs::meminfo().map_err(|error| {
            Failure::own(format!(
                "cannot read the size of the machine's RAM: {error}"
            ))
        })?;
        Ok(Available {
            machine_bytes: machine.total_bytes,
            container_bytes: cgroup::limit().map(|limit| limit.bytes),
        })
    }

    /// What can be shared out: the container's limit, or the machine's RAM.
    pub fn whole(self) -> u64 {
        self.container_bytes
            .map_or(self.machine_bytes, |limit| limit.min(self.machine_bytes))
    }
}

/// A pause such as `5ms`, `250us`, `1s`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split_unit(text.trim());
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err("expected a time with its unit us, ms or s; for example: 5ms".to_owned()),
    };
    let value: f64 = number
        .parse()
        .map_err(|_| "expected a number and a unit; for example: 5ms")?;
    Duration::try_from_secs_f64(value * seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    #[test]
    fn pools_are_sizes_shares_or_nothing() {
        for (text, expected) in [
            ("off", 0),
            ("0", 0),
            ("0%", 0),
            ("25%", GIB / 4),
            ("100%", GIB),
            ("128M", 128 * MIB),
            ("1.5g", GIB + GIB / 2),
        ] {
            let pool: PoolSize = text.parse().expect(text);
            assert_eq!(pool.resolve(GIB), expected, "{text}");
        }
        for (text, expected) in [
            ("", "expected a size"),
            ("-1", "expected a size"),
            ("101%", "more than all of --ram"),
            ("1Q", "no unit"),
        ] {
            let error = text.parse::<PoolSize>().expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn limits_are_sizes_from_zero_up() {
        for (text, expected) in [
            ("0", 0),
            ("4096", 4096),
            ("128M", 128 * MIB),
            ("1.5g", 3 * GIB / 2),
        ] {
            assert_eq!(parse_limit(text), Ok(expected), "{text}");
        }
        for (text, expected) in [
            ("", "expected a number"),
            ("-1", "expected a number"),
            ("max", "expected a number"),
            ("1Q", "no unit"),
            ("50%", "no unit"),
            ("99999999T", "more than any machine"),
        ] {
            let error = parse_limit(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    fn parse(text: &str) -> Result<RamSize, String> {
        text.parse()
    }

    #[test]
    fn sizes_as_people_write_them() {
        for (text, expected) in [
            ("512M", 512 * MIB),
            ("512m", 512 * MIB),
            ("512MiB", 512 * MIB),
            ("512 MiB", 512 * MIB),
            ("512MB", 512_000_000),
            ("1g", GIB),
            ("1.5GiB", 3 * GIB / 2),
            ("0.25T", GIB * 256),
            ("65536k", 64 * MIB),
            ("536870912", 512 * MIB),
            (" 16M ", 16 * MIB),
        ] {
            assert_eq!(parse(text), Ok(RamSize::Bytes(expected)), "{text}");
        }
        assert_eq!(parse("50%"), Ok(RamSize::Percent(50.0)));
        assert_eq!(parse("12.5 %"), Ok(RamSize::Percent(12.5)));
        assert_eq!(parse("auto"), Ok(RamSize::Auto));
        assert_eq!(parse("AUTO"), Ok(RamSize::Auto));
    }

    #[test]
    fn bad_sizes_say_what_is_wrong_and_give_an_example() {
        for (text, part) in [
            ("", "expected a number"),
            ("-5M", "expected a number"),
            ("many", "expected a number"),
            ("1.2.3G", "expected a number"),
            ("inf", "expected a number"),
            ("5X", "\"X\" is no unit"),
            ("5MM", "\"MM\" is no unit"),
            ("0%", "between 0% and 100%"),
            ("150%", "between 0% and 100%"),
            ("1M", "at least 16 MiB"),
            ("512", "in bytes, write 512M"),
            ("9999999T", "more than any machine"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn shares_are_of_the_container_where_it_is_smaller() {
        let machine = Available {
            machine_bytes: 16 * GIB,
            container_bytes: None,
        };
        let container = Available {
            machine_bytes: 16 * GIB,
            container_bytes: Some(2 * GIB),
        };
        let unlimited = Available {
            machine_bytes: 16 * GIB,
            container_bytes: Some(64 * GIB),
        };
        assert_eq!(RamSize::Percent(50.0).resolve(machine), Ok(8 * GIB));
        assert_eq!(RamSize::Percent(50.0).resolve(container), Ok(GIB));
        assert_eq!(RamSize::Percent(50.0).resolve(unlimited), Ok(8 * GIB));
        assert_eq!(RamSize::Bytes(GIB).resolve(container), Ok(GIB));
    }

    #[test]
    fn auto_leaves_the_margin() {
        let container = Available {
            machine_bytes: 16 * GIB,
            container_bytes: Some(2000 * MIB),
        };
        assert_eq!(
            RamSize::Auto.resolve(container),
            Ok(2000 * MIB - 32 * MIB - 100 * MIB)
        );
        let tiny = Available {
            machine_bytes: 16 * GIB,
            container_bytes: Some(40 * MIB),
        };
        let error = RamSize::Auto
            .resolve(tiny)
            .expect_err("too small")
            .to_string();
        assert!(error.contains("40 MiB less a margin of 34 MiB"), "{error}");
        let share = RamSize::Percent(1.0)
            .resolve(tiny)
            .expect_err("too small")
            .to_string();
        assert!(share.contains("1% of 40 MiB"), "{share}");
    }

    #[test]
    fn pauses() {
        assert_eq!(parse_duration("5ms"), Ok(Duration::from_millis(5)));
        assert_eq!(parse_duration("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(parse_duration("0.5s"), Ok(Duration::from_millis(500)));
        for bad in ["5", "ms", "5m", "", "-1ms"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
