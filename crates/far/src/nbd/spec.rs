//! How an export of a block store is named: `nbd://HOST[:PORT]/[EXPORT]`, or `nbd+unix:///[EXPORT]?socket=PATH` on this
//! machine.
//!
//! These are the addresses that other clients of the protocol take too. TLS is refused here, and by whom it is meant.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::spec::Address;

/// What an address of an export looks like.
const EXAMPLE: &str = "nbd://HOST:10809/EXPORT or nbd+unix:///EXPORT?socket=PATH";
const OVER_TCP: &str = "nbd://";
const OVER_UNIX: &str = "nbd+unix://";
/// These mean TLS.
const WITH_TLS: [&str; 2] = ["nbds://", "nbds+unix://"];
/// The port that is registered for the protocol.
const PORT: u16 = 10809;
/// The protocol's limit.
const NAME_BYTES_MAX: usize = 4096;
/// Letters of a name that stand as they are.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// What is wrong with the address of an export.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; expected is {EXAMPLE}")]
pub struct NbdSpecError {
    what: String,
}

fn wrong<T>(what: impl Into<String>) -> Result<T, NbdSpecError> {
    Err(NbdSpecError { what: what.into() })
}

/// Where a block store listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NbdServer {
    /// On a machine of the network.
    Tcp(Address),
    /// On a socket of this machine.
    Unix(PathBuf),
}

impl fmt::Display for NbdServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdServer::Tcp(address) => address.fmt(f),
            NbdServer::Unix(path) => path.display().fmt(f),
        }
    }
}

/// An export of a block store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NbdSpec {
    /// Who has it.
    pub server: NbdServer,
    /// Its name. Empty for the server's default.
    pub export: String,
    /// Whether to make an area of it whatever lies there.
    pub force: bool,
}

impl NbdSpec {
    /// Whether this is how an export is named.
    #[must_use]
    pub fn names_an_export(text: &str) -> bool {
        let mut schemes = [OVER_TCP, OVER_UNIX].into_iter().chain(WITH_TLS);
        schemes.any(|scheme| text.starts_with(scheme))
    }

    /// Whether its server is reached over the network.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        matches!(self.server, NbdServer::Tcp(_))
    }
}

/// Without options, as it is called in lists.
impl fmt::Display for NbdSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = utf8_percent_encode(&self.export, ENCODED);
        match &self.server {
            NbdServer::Tcp(address) => write!(f, "{OVER_TCP}{address}/{export}"),
            NbdServer::Unix(path) => {
                write!(f, "{OVER_UNIX}/{export}?socket={}", path.display())
            }
        }
    }
}

impl FromStr for NbdSpec {
    type Err = NbdSpecError;

    fn from_str(text: &str) -> Result<NbdSpec, NbdSpecError> {
        if let Some(scheme) = WITH_TLS.iter().find(|scheme| text.starts_with(**scheme)) {
            return without_tls(scheme);
        }
        let (rest, over_unix) = match (text.strip_prefix(OVER_UNIX), text.strip_prefix(OVER_TCP)) {
            (Some(rest), _) => (rest, true),
            (None, Some(rest)) => (rest, false),
            (None, None) => return wrong("it does not begin with nbd://"),
        };
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
        let (mut socket, mut force) = (None, false);
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=').unwrap_or((option, "")) {
                ("socket", path) if !path.is_empty() => socket = Some(decoded(path)?),
                ("force", "" | "yes") => force = true,
                ("tls" | "tls-certificates" | "tls-psk-file", _) => {
                    return without_tls(&format!("?{option}"));
                }
                _ => {
                    return wrong(format!(
                        "there is no option {option:?}, only socket=PATH, force"
                    ));
                }
            }
        }
        let server = match (over_unix, socket) {
            (true, Some(path)) if host.is_empty() => NbdServer::Unix(path.into()),
            (true, Some(_)) => {
                return wrong(format!("a socket of this machine has no host {host:?}"));
            }
            (true, None) => return wrong("nbd+unix:// wants ?socket=PATH"),
            (false, Some(_)) => return wrong("?socket is for nbd+unix://"),
            (false, None) => NbdServer::Tcp(address(host)?),
        };
        let export = decoded(export)?;
        if export.len() > NAME_BYTES_MAX || export.contains('\0') {
            return wrong("the name of its export is longer than 4096 bytes, or has a zero in it");
        }
        Ok(NbdSpec {
            server,
            export,
            force,
        })
    }
}

fn without_tls<T>(named: &str) -> Result<T, NbdSpecError> {
    wrong(format!(
        "{named} means TLS, which vswap does not speak with block stores: what it writes is encrypted and \
         authenticated without it; where the server wants TLS, put a tunnel in between"
    ))
}

fn address(host: &str) -> Result<Address, NbdSpecError> {
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.contains(']'));
    let with_port = match has_port {
        true => host.to_owned(),
        false => format!("{host}:{PORT}"),
    };
    with_port
        .parse()
        .or_else(|_| wrong(format!("{host:?} is no HOST:PORT")))
}

fn decoded(text: &str) -> Result<String, NbdSpecError> {
    match percent_decode_str(text).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => wrong("what stands for % and two digits is no UTF-8"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        for (text, shown) in [
            ("nbd://far", "nbd://far:10809/"),
            ("nbd://far:1/disk", "nbd://far:1/disk"),
            ("nbd://[::1]/a/b?force", "nbd://[::1]:10809/a/b"),
            ("nbd://[::1]:7/a%3Ab", "nbd://[::1]:7/a%3Ab"),
            ("nbd+unix:///x?socket=/run/s", "nbd+unix:///x?socket=/run/s"),
            ("nbd+unix://?socket=/s", "nbd+unix:///?socket=/s"),
        ] {
            let spec: NbdSpec = text.parse().expect(text);
            assert_eq!(spec.to_string(), shown);
            assert_eq!(spec.force, text.ends_with("force"));
            assert_eq!(spec.is_remote(), text.starts_with("nbd:"));
            let again: NbdSpec = shown.parse().expect(shown);
            assert_eq!((again.server, again.export), (spec.server, spec.export));
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, expected) in [
            ("nbd:///x", "no HOST:PORT"),
            ("nbd://far:0/x", "no HOST:PORT"),
            ("nbd://far/x?fast", "no option \"fast\""),
            ("nbd://far/x?tls", "does not speak with block stores"),
            ("nbds://far/x", "does not speak with block stores"),
            ("nbd+unix:///x", "wants ?socket"),
            ("nbd+unix://far/x?socket=/s", "no host"),
            ("nbd://far/x?socket=/s", "is for nbd+unix"),
            ("nbd://far/%ff", "no UTF-8"),
            ("nbd://far/%00", "zero in it"),
        ] {
            let error = text.parse::<NbdSpec>().expect_err(text).to_string();
            assert!(
                error.contains(expected) && error.contains(EXAMPLE),
                "{text}: {error}"
            );
            assert!(NbdSpec::names_an_export(text));
        }
        assert!(!NbdSpec::names_an_export("valkey://far:1"));
    }
}
