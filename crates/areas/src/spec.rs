//! An area as users name it: `PATH[:SIZE][,prio=N][,tier=NAME][,discard=once|pages][,packed]`, or the same with a store
//! in place of the path.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use vswap_engine::{Discard, PRIORITY_DEFAULT};
#[cfg(feature = "far")]
use vswap_far::{FarSpec, NbdSpec};

use crate::tier_name::TierName;
use crate::units::parse_area_size;

/// The option that has no value.
const PACKED: &str = "packed";

/// Where an area is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A file, a block device or a directory.
    Disk(PathBuf),
    /// A store on other machines.
    #[cfg(feature = "far")]
    Far(Box<FarSpec>),
    /// An export of a block store.
    #[cfg(feature = "far")]
    Blocks(Box<NbdSpec>),
}

/// A text that names no area. It says what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(String);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Disk(path) => path.display().fmt(f),
            #[cfg(feature = "far")]
            Place::Far(store) => store.fmt(f),
            #[cfg(feature = "far")]
            Place::Blocks(export) => export.fmt(f),
        }
    }
}

#[cfg(feature = "far")]
impl Place {
    /// Refuses to keep pages packed where that has no meaning.
    fn may_be(&self, packed: bool) -> Result<(), SpecError> {
        let why = match self {
            Place::Far(_) => "a store keeps pages packed in any case",
            Place::Blocks(_) => {
                "an export holds an area with a header, in which each page has a place of its own"
            }
            Place::Disk(_) => return Ok(()),
        };
        if packed {
            return Err(SpecError(format!(
                "{self}: packed is for private files, and {why}: leave it out"
            )));
        }
        Ok(())
    }
}

/// One area as the user describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwapSpec {
    /// The text as typed, for the run that will open the area. It may have a password in it.
    text: String,
    /// Where it is.
    pub place: Place,
    /// Size of a private file that does not exist yet, or of an area in a store.
    pub size: Option<u64>,
    /// 0 to 32767, or the default, which is lower than all of these.
    pub priority: i16,
    /// The tier that it belongs to, if it was named.
    pub tier: Option<TierName>,
    /// When the device is told which slots are free. Discarding shrinks a private file, so there it is on by default.
    pub discard: Option<Discard>,
    /// Pages are to be kept as they are packed, several in one place. For private files.
    pub packed: bool,
}

impl SwapSpec {
    /// A private file in a directory, which may grow up to so many bytes.
    #[must_use]
    pub fn private(directory: PathBuf, bytes: u64) -> SwapSpec {
        SwapSpec {
            text: format!("{}:{bytes}B", directory.display()),
            place: Place::Disk(directory),
            size: Some(bytes),
            priority: PRIORITY_DEFAULT,
            tier: None,
            discard: None,
            packed: false,
        }
    }

    /// The same area with an absolute path, for a process that was started in another directory.
    ///
    /// # Errors
    /// The current directory is gone.
    pub fn absolute(&self) -> std::io::Result<SwapSpec> {
        let path = match &self.place {
            Place::Disk(path) => path,
            #[cfg(feature = "far")]
            _ => return Ok(self.clone()),
        };
        let relative = path.display().to_string();
        let path = std::path::absolute(path)?;
        let rest = self.text.strip_prefix(&relative).unwrap_or_default();
        Ok(SwapSpec {
            text: format!("{}{rest}", path.display()),
            place: Place::Disk(path),
            ..self.clone()
        })
    }

    /// The same area in this tier.
    #[must_use]
    pub fn in_tier(self, tier: TierName) -> SwapSpec {
        SwapSpec {
            text: format!("{},tier={tier}", self.text),
            tier: Some(tier),
            ..self
        }
    }

    /// The text as typed. It may have a password in it, so it is for no message.
    #[must_use]
    pub fn as_typed(&self) -> &str {
        &self.text
    }

    /// Is it reached over the network?
    #[must_use]
    pub fn is_remote(&self) -> bool {
        match &self.place {
            Place::Disk(_) => false,
            #[cfg(feature = "far")]
            Place::Far(_) => true,
            #[cfg(feature = "far")]
            Place::Blocks(export) => export.is_remote(),
        }
    }
}

impl FromStr for SwapSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<SwapSpec, SpecError> {
        let (named, options) = if is_url(text) {
            text.split_at(end_of_store(text))
        } else {
            text.split_at(text.find(',').unwrap_or(text.len()))
        };
        let (place, size) = place_and_size(named).map_err(SpecError)?;
        let mut spec = SwapSpec {
            text: text.to_owned(),
            place,
            size,
            priority: PRIORITY_DEFAULT,
            tier: None,
            discard: None,
            packed: false,
        };
        for option in options.split(',').skip(1) {
            spec.set(option).map_err(SpecError)?;
        }
        match &spec.place {
            Place::Disk(_) => Ok(spec),
            #[cfg(feature = "far")]
            place => place.may_be(spec.packed).map(|()| spec),
        }
    }
}

impl SwapSpec {
    fn set(&mut self, option: &str) -> Result<(), String> {
        match option.split_once('=').unwrap_or((option, "")) {
            ("prio", number) => {
                let priority = number.parse().ok().filter(|number: &i16| *number >= 0);
                self.priority = priority.ok_or_else(|| {
                    format!("prio={number} is no priority: expected 0 to 32767, the highest is used first")
                })?;
            }
            ("tier", name) => {
                self.tier = Some(name.parse().map_err(|error| format!("{error}"))?);
            }
            ("discard", "once") => self.discard = Some(Discard::Once),
            ("discard", "pages") => self.discard = Some(Discard::Pages),
            ("discard", other) => {
                return Err(format!(
                    "discard={other} is unknown: expected discard=once or discard=pages"
                ));
            }
            (PACKED, "") => self.packed = true,
            _ => {
                return Err(format!(
                    "the option \"{option}\" is unknown: expected prio=N, tier=NAME, discard=once|pages or packed"
                ));
            }
        }
        Ok(())
    }
}

/// Did somebody forget the unit? A file of that name may also be meant, if there is one.
fn is_size_without_unit(path: &str, number: &str, text: &str) -> bool {
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number && Path::new(path).exists() && !Path::new(text).exists()
}

/// Is this a store, and no path?
#[cfg(feature = "far")]
fn is_url(text: &str) -> bool {
    FarSpec::names_a_store(text) || NbdSpec::names_an_export(text)
}

#[cfg(not(feature = "far"))]
fn is_url(text: &str) -> bool {
    text.contains("://")
}

/// Where the name of a store ends, and options follow. Its servers have commas between them too.
fn end_of_store(text: &str) -> usize {
    let is_option = |part: &str| {
        let key = part.split_once('=').map_or("", |(key, _)| key);
        let word = part.split(',').next();
        word == Some(PACKED) || !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_lowercase())
    };
    let mut commas = text.match_indices(',').map(|(at, _)| at);
    commas
        .find(|at| is_option(&text[at + 1..]))
        .unwrap_or(text.len())
}

/// What follows the last colon is a size if it is a number with a unit; names of devices may have colons too.
fn place_and_size(text: &str) -> Result<(Place, Option<u64>), String> {
    let (path, size) = match text.rsplit_once(':') {
        Some((path, size))
            if size.starts_with(|first: char| first.is_ascii_digit())
                && size.ends_with(|last: char| last.is_ascii_alphabetic())
                // A port, and what is behind it.
                && !(is_url(text) && size.contains('/')) =>
        {
            (path, Some(parse_area_size(size)?))
        }
        Some((path, number)) if is_size_without_unit(path, number, text) => {
            return Err(format!(
                "there is no {text}; if {number} is the size of an area in {path}, give it a unit: {path}:{number}G"
            ));
        }
        _ => (text, None),
    };
    if is_url(path) {
        return Ok((place_of_url(path)?, size));
    }
    if path.is_empty() {
        return Err(
            "no path: expected a file, a block device or a directory, for example: \
                    /var/tmp:8G"
                .to_owned(),
        );
    }
    Ok((Place::Disk(PathBuf::from(path)), size))
}

#[cfg(feature = "far")]
fn place_of_url(text: &str) -> Result<Place, String> {
    if FarSpec::names_a_store(text) {
        let store = text.parse::<FarSpec>().map_err(|error| error.to_string())?;
        return Ok(Place::Far(Box::new(store)));
    }
    let export = text.parse::<NbdSpec>().map_err(|error| error.to_string())?;
    Ok(Place::Blocks(Box::new(export)))
}

#[cfg(not(feature = "far"))]
fn place_of_url(text: &str) -> Result<Place, String> {
    Err(format!(
        "{text} names a store on other machines, and this build knows none: build it with the feature far"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> SwapSpec {
        text.parse().expect(text)
    }

    #[test]
    fn paths_sizes_and_options() {
        let disk = |path: &str| Place::Disk(path.into());
        let plain = parsed("/dev/vdb");
        assert_eq!(
            (plain.place, plain.size, plain.priority, plain.discard),
            (disk("/dev/vdb"), None, PRIORITY_DEFAULT, None)
        );
        let full = parsed("/var/tmp/x:8G,prio=5,discard=pages");
        assert_eq!(
            (full.place, full.size, full.priority, full.discard),
            (disk("/var/tmp/x"), Some(8 << 30), 5, Some(Discard::Pages))
        );
        assert_eq!(full.tier, None);
        let tier = parsed("/dev/vdb,tier=fast,prio=5").tier.expect("named");
        assert_eq!(tier.to_string(), "fast");
        let colon = parsed("/dev/disk/by-path/pci-0000:00:05.0");
        assert_eq!(colon.size, None, "not a size: {colon:?}");
        assert_eq!(parsed("a,discard=once").discard, Some(Discard::Once));
        let packed = parsed("/var/tmp:8G,packed,prio=5");
        assert!(packed.packed && packed.priority == 5 && !full.packed);
        let again = packed
            .absolute()
            .expect("a directory")
            .as_typed()
            .to_owned();
        assert!(parsed(&again).packed);
    }

    #[cfg(feature = "far")]
    #[test]
    fn stores_with_sizes_and_options() {
        let nodes = |spec: &SwapSpec| match &spec.place {
            #[cfg(feature = "far")]
            Place::Far(store) => store.nodes.len(),
            other => panic!("{other}"),
        };
        let one = parsed("valkey://far:6379");
        assert_eq!((nodes(&one), one.size), (1, None));
        let sized = parsed("redis://user:secret@far:6379/3:8G,prio=5");
        assert_eq!(
            (nodes(&sized), sized.size, sized.priority),
            (1, Some(8 << 30), 5)
        );
        assert!(!sized.place.to_string().contains("secret"));
        let three = parsed("valkey://a:1,b:2,c:3?tls&user=u:64M,discard=pages");
        assert_eq!((nodes(&three), three.size), (3, Some(64 << 20)));
        assert_eq!(three.discard, Some(Discard::Pages));
        let again = parsed(three.absolute().expect("no directory").as_typed());
        assert_eq!(again, three);
        assert!(three.is_remote() && !parsed("valkey").is_remote());
        let error = "valkey://:8G".parse::<SwapSpec>().expect_err("no host");
        assert!(error.0.contains("valkey://"), "{error}");
    }

    #[cfg(feature = "far")]
    #[test]
    fn exports_with_sizes_and_options() {
        let shown = |spec: &SwapSpec| match &spec.place {
            Place::Blocks(export) => export.to_string(),
            other => panic!("{other}"),
        };
        let plain = parsed("nbd://far:10809/disk");
        assert_eq!(shown(&plain), "nbd://far:10809/disk");
        assert_eq!(plain.size, None);
        let sized = parsed("nbd://far/disk?force:8G,prio=5,tier=slow");
        assert_eq!(shown(&sized), "nbd://far:10809/disk");
        assert_eq!((sized.size, sized.priority), (Some(8 << 30), 5));
        let here = parsed("nbd+unix:///disk?socket=/run/nbd.sock:64M,discard=once");
        assert_eq!(shown(&here), "nbd+unix:///disk?socket=/run/nbd.sock");
        assert_eq!(here.size, Some(64 << 20));
        assert!(plain.is_remote() && !here.is_remote());
        let error = "nbds://far/disk:8G".parse::<SwapSpec>();
        assert!(error.expect_err("TLS").0.contains("TLS"));
    }

    #[cfg(feature = "far")]
    #[test]
    fn only_private_files_are_packed() {
        for (text, expected) in [
            (
                "valkey://far:6379:8G,packed",
                "a store keeps pages packed in any case",
            ),
            ("nbd://far/disk:8G,packed", "an area with a header"),
        ] {
            let error = text.parse::<SwapSpec>().expect_err(text);
            assert!(
                error.0.contains(expected) && error.0.ends_with("leave it out"),
                "{error}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_what_was_expected() {
        for (text, expected) in [
            ("", "no path"),
            (":8G", "no path"),
            ("x,prio=-1", "0 to 32767"),
            ("x,prio=32768", "0 to 32767"),
            ("x,prio=", "0 to 32767"),
            ("x,pri=5", "\"pri=5\" is unknown"),
            ("x,tier=", "no name of a tier"),
            ("x,discard=now", "discard=once or discard=pages"),
            ("x,packed=no", "\"packed=no\" is unknown"),
            ("x:8Q", "no unit"),
            ("x:4K", "at least"),
            ("/tmp:8", "give it a unit: /tmp:8G"),
        ] {
            let error = text.parse::<SwapSpec>().expect_err(text);
            assert!(error.0.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn an_absolute_one_keeps_what_follows_the_path() {
        let spec = parsed("x:1G,prio=3").absolute().expect("a directory");
        let again = parsed(spec.as_typed());
        let Place::Disk(path) = &again.place else {
            panic!("{}", again.place);
        };
        assert!(path.is_absolute() && path.ends_with("x"));
        assert_eq!((again.size, again.priority), (Some(1 << 30), 3));
    }
}
