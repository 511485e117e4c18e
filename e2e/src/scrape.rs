//! Reads the figures that `--metrics` serves at a socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::failure::During;
use crate::{Outcome, ensure};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// OpenMetrics, for `scrape`.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0";
/// The text format of Prometheus.
pub const PROMETHEUS: &str = "text/plain; version=0.0.4";

/// The figures in one of these formats.
pub fn scrape(socket: &Path, format: &str) -> Outcome<String> {
    let place = || format!("read figures at {}", socket.display());
    let mut stream = UnixStream::connect(socket).during(place)?;
    stream.set_read_timeout(Some(PATIENCE)).during(place)?;
    let head = format!("GET /metrics HTTP/1.1\r\nHost: vswap\r\nAccept: {format}\r\n\r\n");
    stream.write_all(head.as_bytes()).during(place)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).during(place)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let is_served = head.starts_with("HTTP/1.1 200") && head.contains(format);
    ensure!(is_served, "the figures come as {head}");
    Ok(body.to_owned())
}

/// The value of a sample, by its name and labels as they are written.
pub fn sample(figures: &str, name: &str) -> Option<f64> {
    let mut lines = figures.lines();
    let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.parse().ok()
}
