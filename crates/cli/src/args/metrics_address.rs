//! What `--metrics` is given: where the figures are to be had.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// Longest path of a socket, as the kernel has it.
const SOCKET_PATH_BYTES_MAX: usize = 107;

const EXPECTED: &str = "expected HOST:PORT with a numeric host, a port alone (of 127.0.0.1), or the path of a socket, \
                        with a / in it; for example: 127.0.0.1:9100, [::1]:9100, 9100, /run/user/1000/vswap.sock";

/// Where the figures are to be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsAddress {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A unix socket that is to be made here.
    Socket(PathBuf),
}

impl MetricsAddress {
    /// Can nobody on another machine reach it?
    pub fn is_local(&self) -> bool {
        match self {
            MetricsAddress::Tcp(address) => address.ip().is_loopback(),
            MetricsAddress::Socket(_) => true,
        }
    }
}

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<MetricsAddress, String> {
        if text.contains('/') {
            return match text.len() {
                0..=SOCKET_PATH_BYTES_MAX if !text.contains('\0') => {
                    Ok(MetricsAddress::Socket(text.into()))
                }
                long => Err(format!(
                    "the path has {long} bytes, and that of a socket at most {SOCKET_PATH_BYTES_MAX}: choose a \
                     shorter one"
                )),
            };
        }
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        let port_of_loopback = port
            .parse()
            .ok()
            .filter(|_| host.is_empty() || host == "localhost");
        let address = match port_of_loopback {
            Some(port) => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            None => text.parse().ok(),
        };
        address
            .map(MetricsAddress::Tcp)
            .ok_or_else(|| format!("it is no address: {EXPECTED}"))
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetricsAddress::Tcp(address) => write!(f, "http://{address}/metrics"),
            MetricsAddress::Socket(path) => {
                write!(f, "http://localhost/metrics on {}", path.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_addresses_and_paths() {
        for (text, expected) in [
            ("127.0.0.1:9100", "http://127.0.0.1:9100/metrics"),
            ("9100", "http://127.0.0.1:9100/metrics"),
            (":9100", "http://127.0.0.1:9100/metrics"),
            ("localhost:9100", "http://127.0.0.1:9100/metrics"),
            ("[::1]:9100", "http://[::1]:9100/metrics"),
            ("0.0.0.0:0", "http://0.0.0.0:0/metrics"),
            ("./v.sock", "http://localhost/metrics on ./v.sock"),
        ] {
            let address: MetricsAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), expected);
            assert_eq!(address.is_local(), !text.starts_with("0.0.0.0"));
        }
    }

    #[test]
    fn what_is_no_address_is_said_with_what_was_expected() {
        for text in [
            "",
            "here",
            "host:9100",
            "127.0.0.1",
            "127.0.0.1:70000",
            "::1:",
            "-1",
        ] {
            let error = text.parse::<MetricsAddress>().expect_err(text);
            assert!(error.contains("[::1]:9100"), "{text}: {error}");
        }
        let long = format!("/{}", "x".repeat(SOCKET_PATH_BYTES_MAX));
        let error = long.parse::<MetricsAddress>().expect_err("long");
        assert!(error.contains("at most 107"), "{error}");
    }
}
