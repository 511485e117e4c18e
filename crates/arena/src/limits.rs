//! What a group of an arena may have.

use std::str::FromStr;

use vswap_areas::TierName;
use vswap_engine::GroupLimits;

use crate::areas::Areas;
use crate::error::ArenaError;
use crate::size::{Size, SizeError};

/// What a group and those inside it may have together. What is not said is not limited.
///
/// Reads itself from a text too: `swap-max=1G,pool-max=64M,tier-max=far=0,no-writeback`.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    swap_max: Option<Result<u64, SizeError>>,
    pool_max: Option<Result<u64, SizeError>>,
    tier_max: Vec<(String, Result<u64, SizeError>)>,
    no_writeback: bool,
}

impl Limits {
    /// No limits.
    #[must_use]
    pub fn new() -> Limits {
        Limits::default()
    }

    /// The most that it may have in swap areas.
    #[must_use]
    pub fn swap_max(mut self, size: impl Size) -> Limits {
        self.swap_max = Some(size.size_bytes());
        self
    }

    /// The most that it may have in the compressed pool, as it is packed.
    #[must_use]
    pub fn pool_max(mut self, size: impl Size) -> Limits {
        self.pool_max = Some(size.size_bytes());
        self
    }

    /// The most that it may have in the areas of a tier. With 0 it has nothing there.
    #[must_use]
    pub fn tier_max(mut self, tier: &str, size: impl Size) -> Limits {
        self.tier_max.push((tier.to_owned(), size.size_bytes()));
        self
    }

    /// Its pages go to no area. They leave for the pool alone.
    #[must_use]
    pub fn no_writeback(mut self) -> Limits {
        self.no_writeback = true;
        self
    }

    /// As the engine has them.
    pub(crate) fn resolve(&self, areas: &Areas) -> Result<GroupLimits, ArenaError> {
        let bytes = |size: &Option<Result<u64, SizeError>>| {
            size.clone().unwrap_or(Ok(GroupLimits::NO_LIMIT))
        };
        let mut limits = GroupLimits {
            swap_max_bytes: bytes(&self.swap_max)?,
            pool_max_bytes: bytes(&self.pool_max)?,
            writeback: !self.no_writeback,
            ..GroupLimits::default()
        };
        for (name, size) in &self.tier_max {
            let name: TierName = name.parse()?;
            let tier = areas.tier(&name).ok_or_else(|| ArenaError::UnknownTier {
                tier: name.to_string(),
                known: areas.tier_names(),
            })?;
            limits.tier_max_bytes[tier.index()] = size.clone()?;
        }
        Ok(limits)
    }
}

impl FromStr for Limits {
    type Err = ArenaError;

    fn from_str(text: &str) -> Result<Limits, ArenaError> {
        let mut words = text
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty());
        words.try_fold(Limits::new(), |limits, word| {
            let wrong = || ArenaError::Limit {
                text: word.to_owned(),
            };
            match word.split_once('=').unwrap_or((word, "")) {
                ("swap-max", size) => Ok(limits.swap_max(size)),
                ("pool-max", size) => Ok(limits.pool_max(size)),
                ("tier-max", tier) => {
                    let (name, size) = tier.split_once('=').ok_or_else(wrong)?;
                    Ok(limits.tier_max(name, size))
                }
                ("no-writeback", "") => Ok(limits.no_writeback()),
                _ => Err(wrong()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_or_refused() {
        let none = Areas::none();
        let of = |text: &str| {
            text.parse::<Limits>()
                .and_then(|limits| limits.resolve(&none))
        };
        assert_eq!(of("").expect("none"), GroupLimits::default());
        let limits = of("swap-max=1G, pool-max=64M,tier-max=default=0,no-writeback").expect("good");
        assert_eq!(
            (limits.swap_max_bytes, limits.pool_max_bytes),
            (1 << 30, 64 << 20)
        );
        assert_eq!((limits.tier_max_bytes[0], limits.writeback), (0, false));
        for (wrong, expected) in [
            ("swap=1G", "swap-max=SIZE"),
            ("no-writeback=yes", "no-writeback"),
            ("swap-max=lots", "no size"),
            ("tier-max=far", "tier-max=NAME=SIZE"),
            ("tier-max=far=0", "no tier far here, only default"),
            ("tier-max=a b=0", "no name of a tier"),
        ] {
            let error = of(wrong).expect_err(wrong).to_string();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }
}
