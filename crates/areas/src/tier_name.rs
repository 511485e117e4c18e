//! The name of a tier: areas that are limited together. The engine knows tiers by number.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name, in bytes.
const NAME_MAX: usize = 32;
/// The tier of areas for which nobody has named one.
const DEFAULT: &str = "default";

/// A tier's name: letters, digits, `-` and `_`, at most 32 of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TierName(String);

/// Why a text is no name of a tier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is no name of a tier: expected at most 32 letters, digits, - and _, for example: fast"
)]
pub struct TierNameError(String);

impl Default for TierName {
    fn default() -> TierName {
        TierName(DEFAULT.to_owned())
    }
}

impl TryFrom<String> for TierName {
    type Error = TierNameError;

    fn try_from(name: String) -> Result<TierName, TierNameError> {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_good) {
            Ok(TierName(name))
        } else {
            Err(TierNameError(name))
        }
    }
}

impl FromStr for TierName {
    type Err = TierNameError;

    fn from_str(name: &str) -> Result<TierName, TierNameError> {
        name.to_owned().try_into()
    }
}

impl From<TierName> for String {
    fn from(name: TierName) -> String {
        name.0
    }
}

impl fmt::Display for TierName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_words() {
        for good in ["a", "fast-1", "far_ssd", &"x".repeat(32)] {
            assert_eq!(good.parse::<TierName>().expect(good).to_string(), good);
        }
        for bad in ["", "a b", "a/b", "a=b", "é", "a,b", &"x".repeat(33)] {
            assert!(bad.parse::<TierName>().is_err(), "{bad}");
        }
    }
}
