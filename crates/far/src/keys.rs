//! Names of keys: `vswap:RUN:AREA:CLUSTER.BASE` for a cluster of slots, `vswap:run:RUN:AREA` for the run itself.
//!
//! No part of them is in braces, so the keys of one area spread over all nodes of a cluster.

use std::fmt;
use std::str::FromStr;

use aes_gcm::aead::Generate;

use crate::slots::Home;
use crate::topology::{Place, hash_of};

/// What all keys begin with.
pub(crate) const PREFIX: &str = "vswap:";
/// What the keys of runs begin with.
pub(crate) const RUN_PREFIX: &str = "vswap:run:";

/// The number of a run: random, so that no two runs anywhere share keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(u128);

impl RunId {
    /// A number that nobody else has. None if the system gives no random bytes.
    #[must_use]
    pub fn random() -> Option<RunId> {
        let bytes = <[u8; 16]>::try_generate().ok()?;
        Some(RunId(u128::from_ne_bytes(bytes)))
    }

    pub(crate) fn number(self) -> u128 {
        self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for RunId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<RunId, Self::Err> {
        u128::from_str_radix(text, 16).map(RunId)
    }
}

/// One area of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AreaId {
    /// The run.
    pub run: RunId,
    /// The number of the area among those of the run.
    pub area: u32,
}

impl AreaId {
    /// The key of a cluster's hash. `copy` is 0, or 1 for the second copy.
    pub(crate) fn place(self, home: Home, copy: usize) -> Place {
        let AreaId { run, area } = self;
        let Home {
            cluster,
            base,
            salt,
        } = home;
        let mut key = format!("{PREFIX}{run}:{area}:{cluster:x}.{base:x}").into_bytes();
        let family = hash_of(&key);
        if copy > 0 {
            key.extend_from_slice(format!(".{copy}.{salt:x}").as_bytes());
        }
        Place { key, family, copy }
    }

    /// The key that lives as long as the run does.
    pub(crate) fn registry(self) -> String {
        let AreaId { run, area } = self;
        format!("{RUN_PREFIX}{run}:{area}")
    }

    /// A key that a probe may write. Each number gives another.
    pub(crate) fn probe(self, number: u32) -> String {
        let AreaId { run, area } = self;
        format!("{PREFIX}{run}:{area}:probe.{number:x}")
    }

    /// Whose key it is. None for one that no vswap has made.
    pub(crate) fn of_key(key: &[u8]) -> Option<AreaId> {
        let key = std::str::from_utf8(key).ok()?;
        let rest = key
            .strip_prefix(RUN_PREFIX)
            .or_else(|| key.strip_prefix(PREFIX))?;
        let mut parts = rest.split(':');
        let run = parts.next()?;
        let area = parts.next()?.parse().ok()?;
        (run.len() == 32).then_some(AreaId {
            run: run.parse().ok()?,
            area,
        })
    }
}

impl fmt::Display for AreaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.run, self.area)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_whose_it_is_and_clusters_differ() {
        let run = RunId::random().unwrap();
        assert_eq!(run.to_string().parse(), Ok(run));
        let id = AreaId { run, area: 7 };
        let home = Home {
            cluster: 3,
            base: 9,
            salt: 1,
        };
        let (first, second) = (id.place(home, 0), id.place(home, 1));
        assert_ne!(first.key, second.key);
        assert_eq!(first.family, second.family);
        for key in [
            first.key,
            second.key,
            id.registry().into(),
            id.probe(1).into(),
        ] {
            assert_eq!(AreaId::of_key(&key), Some(id));
            assert!(!key.contains(&b'{'));
        }
        let later = Home { base: 10, ..home };
        assert_ne!(id.place(later, 0).key, id.place(home, 0).key);
        for key in ["vswap:x", "other:1", "vswap:run:12:1", "vswap:"] {
            assert_eq!(AreaId::of_key(key.as_bytes()), None);
        }
    }
}
