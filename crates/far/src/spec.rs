//! What a store is named by: `valkey://USER@HOST:PORT,HOST:PORT/DB?tls&password-file=PATH`.
//!
//! `redis://` means the same, and so do `valkeys://` and `rediss://` with `?tls`. A password never comes out of here as
//! text: neither by `Display` nor by `Debug`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use zeroize::Zeroizing;

/// The environment variable that holds the password if the name of the store and its options do not.
pub const PASSWORD_VARIABLE: &str = "VSWAP_FAR_PASSWORD";
/// What a name of a store looks like.
const EXAMPLE: &str = "valkey://HOST:6379?user=vswap&password-file=PATH";
/// What stands before a host, and whether it means TLS.
const SCHEMES: [(&str, bool); 4] = [
    ("valkey://", false),
    ("redis://", false),
    ("valkeys://", true),
    ("rediss://", true),
];

/// What is wrong with the name of a store, or with its password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; expected is for instance {EXAMPLE}")]
pub struct SpecError {
    what: String,
}

fn wrong<T>(what: String) -> Result<T, SpecError> {
    Err(SpecError { what })
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Name or number of the machine, an IPv6 address without brackets.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

impl FromStr for Address {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Address, SpecError> {
        let Some((host, port)) = text.rsplit_once(':') else {
            return wrong(format!("{text:?} has no port"));
        };
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        if host.is_empty() || (bare.is_none() && host.contains(':')) {
            let what = "is no HOST:PORT (an IPv6 address stands in brackets)";
            return wrong(format!("{text:?} {what}"));
        }
        match port.parse() {
            Ok(port) if port > 0 => Ok(Address {
                host: host.to_owned(),
                port,
            }),
            _ => wrong(format!(
                "{port:?} in {text:?} is no port from 1 to {}",
                u16::MAX
            )),
        }
    }
}

/// A password. It is wiped when it is dropped, and shows itself to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Zeroizing<String>);

impl Password {
    pub(crate) fn new(text: String) -> Password {
        Password(Zeroizing::new(text))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Which servers a store is made of, and how to speak with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FarSpec {
    /// The servers that are named. Of a cluster one is enough; with `sentinel` they are Sentinels; others are stores on
    /// their own.
    pub nodes: Vec<Address>,
    /// The user's name. None for the default user.
    pub user: Option<String>,
    /// A password that was part of the name.
    pub password: Option<Password>,
    /// A file whose first line is the password.
    pub password_file: Option<PathBuf>,
    /// Number of the database. 0 in a cluster.
    pub db: u32,
    /// Whether to use TLS.
    pub tls: bool,
    /// A file with the certificate that signs the servers' ones, as PEM. None for those that the system trusts.
    pub ca: Option<PathBuf>,
    /// The name by which Sentinels know the master.
    pub sentinel: Option<String>,
    /// Whether the servers are a cluster. None to ask them.
    pub cluster: Option<bool>,
}

impl FarSpec {
    /// Whether this is how a store is named.
    #[must_use]
    pub fn names_a_store(text: &str) -> bool {
        SCHEMES.iter().any(|(scheme, _)| text.starts_with(scheme))
    }

    /// The password, from the first of: the name, the file, the environment variable. Reads the file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn find_password(&self) -> Result<Option<Password>, SpecError> {
        if let Some(password) = &self.password {
            return Ok(Some(password.clone()));
        }
        if let Some(path) = &self.password_file {
            return match std::fs::read_to_string(path).map(Zeroizing::new) {
                Ok(text) => {
                    let line = text.lines().next().unwrap_or_default();
                    Ok(Some(Password::new(line.to_owned())))
                }
                Err(error) => wrong(format!(
                    "the password file {} cannot be read: {error}",
                    path.display()
                )),
            };
        }
        let set = std::env::var(PASSWORD_VARIABLE).ok();
        Ok(set.filter(|text| !text.is_empty()).map(Password::new))
    }

    /// The certificate that `ca` names, as PEM. Reads the file.
    pub(crate) fn read_ca(&self) -> Result<Option<Vec<u8>>, SpecError> {
        let Some(path) = &self.ca else {
            return Ok(None);
        };
        match std::fs::read(path) {
            Ok(pem) => Ok(Some(pem)),
            Err(error) => wrong(format!("{} cannot be read: {error}", path.display())),
        }
    }

    fn with_option(&mut self, option: &str) -> Result<(), SpecError> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let text = |value: Option<&str>| match value {
            Some(value) if !value.is_empty() => decoded(value),
            _ => wrong(format!(
                "the option {name:?} has no value: it is {name}=..."
            )),
        };
        let switch = |value: Option<&str>| match value {
            None | Some("yes") => Ok(true),
            Some("no") => Ok(false),
            Some(other) => wrong(format!(
                "{name}={other} is neither {name}=yes nor {name}=no"
            )),
        };
        match name {
            "tls" => self.tls = switch(value)?,
            "cluster" => self.cluster = Some(switch(value)?),
            "ca" => self.ca = Some(text(value)?.into()),
            "user" => self.user = Some(text(value)?),
            "password-file" => self.password_file = Some(text(value)?.into()),
            "sentinel" => self.sentinel = Some(text(value)?),
            "db" => self.db = number(&text(value)?)?,
            _ => {
                let known = "tls, ca, user, password-file, db, sentinel, cluster";
                return wrong(format!("there is no option {name:?}, only {known}"));
            }
        }
        Ok(())
    }

    fn checked(self) -> Result<FarSpec, SpecError> {
        if self.cluster == Some(true) && self.sentinel.is_some() {
            return wrong("a cluster has no Sentinel: it is either ?cluster or ?sentinel".into());
        }
        if self.cluster == Some(true) && self.db != 0 {
            return wrong(format!("a cluster has no database {} but only 0", self.db));
        }
        if self.ca.is_some() && !self.tls {
            return wrong("?ca needs ?tls".into());
        }
        if self.password.is_some() && self.password_file.is_some() {
            return wrong("there are two passwords: one in the name and a password-file".into());
        }
        Ok(self)
    }
}

fn decoded(text: &str) -> Result<String, SpecError> {
    let text = percent_decode_str(text).decode_utf8();
    match text {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => wrong("what stands for % and two digits is no UTF-8".into()),
    }
}

fn number(text: &str) -> Result<u32, SpecError> {
    match text.parse() {
        Ok(number) => Ok(number),
        Err(_) => wrong(format!("{text:?} is no number of a database")),
    }
}

impl FromStr for FarSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<FarSpec, SpecError> {
        let scheme = SCHEMES
            .iter()
            .find(|(scheme, _)| text.starts_with(scheme))
            .copied();
        let Some((scheme, tls)) = scheme else {
            return wrong("it begins with neither valkey:// nor redis://".into());
        };
        let rest = &text[scheme.len()..];
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (Some(login), rest),
            None => (None, rest),
        };
        let (hosts, db) = rest.split_once('/').unwrap_or((rest, ""));
        let mut spec = FarSpec {
            nodes: hosts.split(',').map(str::parse).collect::<Result<_, _>>()?,
            user: None,
            password: None,
            password_file: None,
            db: if db.is_empty() { 0 } else { number(db)? },
            tls,
            ca: None,
            sentinel: None,
            cluster: None,
        };
        if let Some(login) = login {
            let (user, password) = match login.split_once(':') {
                Some((user, password)) => (user, Some(password)),
                None => (login, None),
            };
            spec.user = Some(decoded(user)?).filter(|user| !user.is_empty());
            spec.password = password.map(decoded).transpose()?.map(Password::new);
        }
        for option in options.split('&').filter(|option| !option.is_empty()) {
            spec.with_option(option)?;
        }
        spec.checked()
    }
}

impl fmt::Display for FarSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "valkeys://" } else { "valkey://" })?;
        match (&self.user, &self.password) {
            (None, None) => {}
            (user, password) => {
                f.write_str(user.as_deref().unwrap_or_default())?;
                f.write_str(if password.is_some() { ":***@" } else { "@" })?;
            }
        }
        for (index, node) in self.nodes.iter().enumerate() {
            write!(f, "{}{node}", if index == 0 { "" } else { "," })?;
        }
        if self.db != 0 {
            write!(f, "/{}", self.db)?;
        }
        let mut mark = '?';
        let mut option = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            let written = write!(f, "{mark}{text}");
            mark = '&';
            written
        };
        if let Some(path) = &self.password_file {
            option(f, format_args!("password-file={}", path.display()))?;
        }
        if let Some(path) = &self.ca {
            option(f, format_args!("ca={}", path.display()))?;
        }
        if let Some(name) = &self.sentinel {
            option(f, format_args!("sentinel={name}"))?;
        }
        match self.cluster {
            Some(true) => option(f, format_args!("cluster")),
            Some(false) => option(f, format_args!("cluster=no")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> FarSpec {
        text.parse().expect(text)
    }

    #[test]
    fn a_name_says_servers_user_and_options() {
        let far = spec("valkey://me:p%40ss@one:6379,[::1]:7000/3?ca=/a.pem&tls&sentinel=main");
        let nodes: Vec<_> = far.nodes.iter().map(Address::to_string).collect();
        assert_eq!(nodes, ["one:6379", "[::1]:7000"]);
        assert_eq!(far.user.as_deref(), Some("me"));
        assert_eq!(far.find_password().unwrap().unwrap().text(), "p@ss");
        assert!(far.tls && far.db == 3 && far.cluster.is_none());
        assert_eq!(far.sentinel.as_deref(), Some("main"));
        assert_eq!(far.ca, Some("/a.pem".into()));
        assert!(spec("rediss://one:1").tls && spec("valkeys://one:1").tls);
        assert_eq!(spec("redis://one:1?cluster").cluster, Some(true));
        assert_eq!(spec("redis://one:1?cluster=no&db=2").db, 2);
        assert!(FarSpec::names_a_store("redis://x") && !FarSpec::names_a_store("/dev/sda"));
    }

    #[test]
    fn nobody_sees_a_password() {
        let far = spec("redis://me:secret@one:1/2?user=you&cluster=no");
        assert_eq!(far.to_string(), "valkey://you:***@one:1/2?cluster=no");
        assert!(!format!("{far:?}{far}").contains("secret"));
        assert_eq!(spec(&spec("redis://:x@a:1").to_string()).nodes.len(), 1);
    }

    #[test]
    fn a_password_comes_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        std::fs::write(&path, "secret\nmore\n").unwrap();
        let far = spec(&format!("valkey://one:1?password-file={}", path.display()));
        assert_eq!(far.find_password().unwrap().unwrap().text(), "secret");
        std::fs::remove_file(&path).unwrap();
        let error = far.find_password().unwrap_err().to_string();
        assert!(error.contains("cannot be read"), "{error}");
    }

    #[test]
    fn errors_say_what_is_wrong_and_give_an_example() {
        for (text, what) in [
            ("http://one:1", "neither valkey://"),
            ("valkey://one", "has no port"),
            ("valkey://", "has no port"),
            ("valkey://one:0", "no port from 1"),
            ("valkey://one:x", "no port from 1"),
            ("valkey://::1:5", "brackets"),
            ("valkey://one:1/x", "no number of a database"),
            ("valkey://one:1?fast", "no option \"fast\""),
            ("valkey://one:1?user", "has no value"),
            ("valkey://one:1?tls=maybe", "neither tls=yes"),
            ("valkey://one:1?ca=/x", "needs ?tls"),
            ("valkey://one:1/2?cluster", "no database 2"),
            ("valkey://one:1?cluster&sentinel=m", "either ?cluster or"),
            ("valkey://a:b@one:1?password-file=x", "two passwords"),
            ("valkey://%ff@one:1", "no UTF-8"),
        ] {
            let error = text.parse::<FarSpec>().unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
            assert!(error.contains(EXAMPLE), "{error}");
        }
    }
}
