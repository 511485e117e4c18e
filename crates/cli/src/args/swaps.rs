//! `--swap`: areas, or `none`.

use std::str::FromStr;

use vswap_areas::{SpecError, SwapSpec};

/// One `--swap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SwapOption {
    /// Nothing is to go to disk, whatever happens.
    None,
    /// This area.
    Area(SwapSpec),
}

impl FromStr for SwapOption {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<SwapOption, SpecError> {
        match text {
            "none" => Ok(SwapOption::None),
            _ => text.parse().map(SwapOption::Area),
        }
    }
}

/// Where pages go that find no room in memory.
#[derive(Debug, PartialEq, Eq)]
pub enum Swaps<'a> {
    /// Nothing was said: to a place that is found when it is needed.
    Found,
    /// To these areas; nowhere if there are none.
    Named(Vec<&'a SwapSpec>),
}

impl Swaps<'_> {
    /// What all `--swap` together say.
    ///
    /// # Errors
    /// They contradict one another; for people.
    pub fn of(options: &[SwapOption]) -> Result<Swaps<'_>, String> {
        let area = |option| match option {
            &SwapOption::None => None,
            SwapOption::Area(spec) => Some(spec),
        };
        let areas: Vec<&SwapSpec> = options.iter().filter_map(area).collect();
        match options.len() {
            0 => Ok(Swaps::Found),
            count if areas.is_empty() || areas.len() == count => Ok(Swaps::Named(areas)),
            _ => Err(
                "--swap none says that there are no areas, and others are named: leave one of both out; an area in a \
                 file of that name is --swap ./none"
                    .to_owned(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> SwapSpec {
        text.parse().expect(text)
    }

    #[test]
    fn nothing_said_is_not_the_same_as_none() {
        let options = |words: &[&str]| -> Vec<SwapOption> {
            words.iter().map(|word| word.parse().expect(word)).collect()
        };
        assert_eq!(Swaps::of(&[]), Ok(Swaps::Found));
        let none = options(&["none"]);
        assert_eq!(Swaps::of(&none), Ok(Swaps::Named(Vec::new())));
        let two = options(&["/dev/vdb", "./none:1G"]);
        let named = [parsed("/dev/vdb"), parsed("./none:1G")];
        assert_eq!(Swaps::of(&two), Ok(Swaps::Named(named.iter().collect())));
        let both = options(&["none", "/dev/vdb"]);
        assert!(Swaps::of(&both).expect_err("both").contains("./none"));
    }
}
