//! Names of groups: parts separated by slashes. Each part is a group inside the one before, as with directories.

use std::fmt;
use std::str::FromStr;

/// Longest name, in bytes. The name is part of messages and of a line in a table.
const NAME_BYTES_MAX: usize = 255;
/// How many levels of groups there can be. A charge goes through all of them.
const DEPTH_MAX: usize = 8;

/// The name of a group, checked: `NAME` or `NAME/SUB`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(Box<str>);

/// Why a text names no group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupNameError {
    /// Nothing at all, or nothing on one side of a slash.
    #[error(
        "\"{name}\" has an empty part: expected NAME or NAME/SUB, without a slash at either end or two in a row"
    )]
    EmptyPart {
        /// What was given.
        name: String,
    },
    /// A part that means a directory.
    #[error("\"{name}\" has a part \"{part}\": groups have no such parts, name each group itself")]
    Dots {
        /// What was given.
        name: String,
        /// The part.
        part: String,
    },
    /// Characters that would upset a terminal.
    #[error("the name {name:?} has a control character: use letters, digits and the like")]
    Control {
        /// What was given.
        name: String,
    },
    /// Too many bytes.
    #[error("the name has {bytes} bytes, expected at most {NAME_BYTES_MAX}: choose a shorter one")]
    TooLong {
        /// How many.
        bytes: usize,
    },
    /// Too many parts.
    #[error(
        "the name has {parts} parts, expected at most {DEPTH_MAX}: choose one with fewer slashes"
    )]
    TooDeep {
        /// How many.
        parts: usize,
    },
}

impl GroupName {
    /// The name as a text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the group around this one. `None` if that is the root.
    #[must_use]
    pub fn parent(&self) -> Option<GroupName> {
        let (parent, _) = self.0.rsplit_once('/')?;
        Some(GroupName(parent.into()))
    }

    /// The names of all groups around this one, the outermost first, and then its own.
    pub fn with_parents(&self) -> impl Iterator<Item = GroupName> {
        let ends = self.0.match_indices('/').map(|(end, _)| end);
        let ends = ends.chain([self.0.len()]);
        ends.map(|end| GroupName(self.0[..end].into()))
    }

    /// Whether this group is somewhere inside `other`.
    pub(super) fn is_inside(&self, other: &GroupName) -> bool {
        let rest = self.0.strip_prefix(&*other.0);
        rest.is_some_and(|rest| rest.starts_with('/'))
    }
}

impl FromStr for GroupName {
    type Err = GroupNameError;

    fn from_str(text: &str) -> Result<GroupName, GroupNameError> {
        let name = || text.to_owned();
        if text.len() > NAME_BYTES_MAX {
            return Err(GroupNameError::TooLong { bytes: text.len() });
        }
        if text.contains(char::is_control) {
            return Err(GroupNameError::Control { name: name() });
        }
        let parts = text.split('/').count();
        if parts > DEPTH_MAX {
            return Err(GroupNameError::TooDeep { parts });
        }
        for part in text.split('/') {
            match part {
                "" => return Err(GroupNameError::EmptyPart { name: name() }),
                "." | ".." => {
                    let part = part.to_owned();
                    return Err(GroupNameError::Dots { name: name(), part });
                }
                _ => {}
            }
        }
        Ok(GroupName(text.into()))
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn names_are_paths() {
        let name: GroupName = "web/jobs.1/x y".parse().expect("a good name");
        assert_eq!(name.to_string(), "web/jobs.1/x y");
        assert_eq!(
            name.parent().as_ref().map(GroupName::as_str),
            Some("web/jobs.1")
        );
        let all: Vec<String> = name.with_parents().map(|name| name.to_string()).collect();
        assert_eq!(all, ["web", "web/jobs.1", "web/jobs.1/x y"]);
        let web: GroupName = "web".parse().expect("a good name");
        assert_eq!(web.parent(), None);
        assert!(name.is_inside(&web) && !web.is_inside(&name) && !web.is_inside(&web));
        let longer: GroupName = "web2/x".parse().expect("a good name");
        assert!(!longer.is_inside(&web));
    }

    #[test]
    fn what_is_no_name_is_said() {
        let deep = "a/".repeat(DEPTH_MAX) + "a";
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for (text, expected) in [
            ("", "empty part"),
            ("/a", "empty part"),
            ("a/", "empty part"),
            ("a//b", "empty part"),
            ("..", "part \"..\""),
            ("a/./b", "part \".\""),
            ("a/../b", "part \"..\""),
            ("a\u{1b}[2J", "control character"),
            ("a\nb", "control character"),
            (&deep, "9 parts"),
            (&long, "256 bytes"),
        ] {
            let error = text.parse::<GroupName>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains(char::is_control), "{error}");
        }
        assert!(long[1..].parse::<GroupName>().is_ok());
        assert!(deep[2..].parse::<GroupName>().is_ok());
    }
}
