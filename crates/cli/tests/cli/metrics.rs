//! `--metrics`: what a run tells Prometheus, and what it does not let clients do to it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Scratch, eventually, kill, output, text, wait};

/// How long the endpoint waits for a request, and a little.
const REQUEST_PATIENCE: Duration = Duration::from_secs(3);

/// A run with an endpoint. Its figures are in `address`.
struct Run {
    vswap: Child,
    address: String,
}

impl Run {
    /// At a port that the kernel chooses.
    fn start(scratch: &Scratch) -> Run {
        Run::of(scratch, scratch.vswap().args(["run", "--ram", "256M"]), "0")
    }

    fn of(scratch: &Scratch, command: &mut Command, address: &str) -> Run {
        let said = scratch.path().join("said");
        let vswap = command
            .args(["--metrics", address, "--swap"])
            .arg(format!("{}:16M", scratch.path().display()))
            .args(["--", "sleep", "1000"])
            .stdout(Stdio::null())
            .stderr(fs::File::create(&said).expect("a file"))
            .spawn()
            .expect("vswap starts");
        let address = eventually("where the figures are", || {
            let text = fs::read_to_string(&said).expect("readable");
            let (_, rest) = text.split_once("figures are at http://")?;
            Some(rest.split_once("/metrics")?.0.to_owned())
        });
        Run { vswap, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("set");
        stream
    }

    fn get(&self, accept: &str) -> String {
        let head = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n");
        ask(self.connect(), head.as_bytes())
    }

    /// A text in which the process of the run is known already.
    fn figures(&self) -> String {
        eventually("figures of the process", || {
            let text = self.get("*/*");
            let is_known = text.contains("vswap_process_swapped_bytes{");
            is_known.then_some(text)
        })
    }

    fn end(mut self) {
        kill("TERM", self.vswap.id());
        wait(&mut self.vswap);
    }
}

/// Sends all of it and returns whatever comes back until the end.
fn ask(mut stream: impl Read + Write, request: &[u8]) -> String {
    // Who is refused may be so before all of it is sent.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    text(&answer)
}

/// The names of samples in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let lines = text.lines().filter(|line| line.starts_with("vswap_"));
    lines
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect()
}

/// All words that begin like a metric.
fn named_in(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.split(|c| !is_part(c))
        .filter(|word| word.starts_with("vswap_"))
        .collect()
}

#[test]
fn a_run_tells_its_figures_in_both_formats() {
    let scratch = Scratch::new();
    let run = Run::start(&scratch);
    assert!(run.address.starts_with("127.0.0.1:"), "{}", run.address);
    let open = run.figures();
    let (head, body) = open.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    assert!(
        head.contains(&format!("Content-Length: {}", body.len())),
        "{head}"
    );
    let limit = format!(
        "vswap_memory_limit_bytes{{run=\"{}\"}} {}",
        run.vswap.id(),
        256 << 20
    );
    assert!(body.contains(&limit), "{body}");
    assert!(
        body.contains("program=\"sleep\"") && body.ends_with("# EOF\n"),
        "{body}"
    );
    let plain = run.get("text/plain");
    assert!(plain.contains("text/plain; version=0.0.4"), "{plain}");
    assert_eq!(names(&open), names(&plain));
    run.end();
}

#[test]
fn what_the_examples_name_exists() {
    let scratch = Scratch::new();
    let run = Run::start(&scratch);
    let figures = run.figures();
    let there = names(&figures);
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/metrics");
    for name in ["alerts.yml", "grafana.json"] {
        let text = fs::read_to_string(examples.join(name)).expect(name);
        let named = named_in(&text);
        assert!(named.len() > 5, "{name}: {named:?}");
        let missing: Vec<&&str> = named.difference(&there).collect();
        assert!(missing.is_empty(), "{name}: there is no {missing:?}");
    }
    let dashboard = fs::read(examples.join("grafana.json")).expect("read");
    let dashboard: serde_json::Value = serde_json::from_slice(&dashboard).expect("JSON");
    assert!(dashboard["panels"].as_array().expect("panels").len() > 10);
    run.end();
}

#[test]
fn a_socket_is_its_owners_and_goes_with_the_run() {
    let scratch = Scratch::new();
    let socket = scratch.path().join("v.sock");
    let mut run = scratch
        .vswap()
        .args(["run", "--ram", "256M", "--quiet", "--metrics"])
        .arg(&socket)
        .args(["--", "sleep", "1000"])
        .spawn()
        .expect("vswap starts");
    let stream = eventually("a socket", || UnixStream::connect(&socket).ok());
    let mode = fs::metadata(&socket).expect("metadata").mode();
    assert_eq!(mode & 0o7777, 0o600);
    let answer = ask(stream, b"GET /metrics HTTP/1.0\r\n\r\n");
    assert!(answer.contains("vswap_memory_limit_bytes"), "{answer}");
    kill("TERM", run.id());
    wait(&mut run);
    assert!(!socket.exists());
}

#[test]
fn what_cannot_be_had_is_refused_before_the_program_starts() {
    let scratch = Scratch::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("address").to_string();
    let file = scratch.path().join("file");
    fs::write(&file, "mine").expect("written");
    let nowhere = scratch.path().join("no/where");
    let started = scratch.path().join("started");
    for (address, words) in [
        ("nonsense", "for example: 127.0.0.1:9100"),
        (taken.as_str(), "choose another port"),
        ("192.0.2.1:9100", "this machine has no such address"),
        (file.to_str().expect("text"), "there is a file of this name"),
        (nowhere.to_str().expect("text"), "make the directory first"),
    ] {
        let refused = output(
            scratch
                .vswap()
                .args(["run", "--ram", "256M", "--metrics", address, "--", "touch"])
                .arg(&started),
        );
        let message = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(125), "{address}: {message}");
        assert!(message.contains(words), "{address}: {message}");
        assert!(!started.exists(), "{address}");
    }
    assert_eq!(fs::read_to_string(&file).expect("read"), "mine");
}

#[test]
fn strange_requests_are_refused() {
    let scratch = Scratch::new();
    let run = Run::start(&scratch);
    let long = format!("GET /metrics HTTP/1.1\r\nA: {}", "b".repeat(100_000));
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("\u{0}\u{1}\r\n\r\n", "400"),
        (&long, "431"),
    ] {
        let answer = ask(run.connect(), request.as_bytes());
        let expected = format!("HTTP/1.1 {status} ");
        let shown: String = request.chars().take(40).collect();
        assert!(answer.starts_with(&expected), "{shown}: {answer}");
    }
    let head = ask(run.connect(), b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(
        head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    run.end();
}

#[test]
fn silent_clients_hold_nobody_up_for_long() {
    let scratch = Scratch::new();
    let run = Run::start(&scratch);
    run.figures();
    let began = Instant::now();
    // More than are served at once. Some of them say a little.
    let mut silent: Vec<TcpStream> = (0..40).map(|_| run.connect()).collect();
    for stream in silent.iter_mut().step_by(2) {
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ");
    }
    eventually("an answer to the next", || {
        let answer = run.get("*/*");
        answer.contains("vswap_memory_limit_bytes").then_some(())
    });
    assert!(began.elapsed() < REQUEST_PATIENCE, "{:?}", began.elapsed());
    for mut stream in silent {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{}", text(&rest));
    }
    // Nor does a client that is silent hold up the end.
    let _silent = run.connect();
    let began = Instant::now();
    run.end();
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
}
