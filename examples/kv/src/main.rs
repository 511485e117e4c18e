//! Reads the options, and serves, fills or verifies.

#![forbid(unsafe_code)]

use std::io::Write;
use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use vswap_arena::{Packing, Size};
use vswap_kv::client::{self, Work};
use vswap_kv::server;
use vswap_kv::store::{Limits, Store};

/// A server of keys and values that are larger than RAM: they lie in an arena of vswap. It speaks redis's protocol.
#[derive(Parser, Debug)]
#[command(name = "vswap-kv", version)]
struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Serve.
    Serve(Serve),
    /// Set the values of a server's keys. They follow from number, seed and version.
    Fill(Keys),
    /// Compare every byte of the values with what `fill` has set.
    Verify(Verify),
}

#[derive(Args, Debug)]
struct Serve {
    /// RAM for the values: in memory and compressed, together. Keys and buffers come on top.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    ram: u64,
    /// Where values go that have no room in RAM, as `vswap run --swap` takes it: a directory for an encrypted file
    /// without a name, an area of `vswap mkswap`, or a store on other machines. May be given again and again.
    #[arg(long, value_name = "DIR:SIZE[,prio=N]")]
    swap: Vec<String>,
    /// How values are compressed.
    #[arg(long, default_value = "auto")]
    codec: Packing,
    /// Where to listen. Port 0 is one that is free.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6379")]
    bind: String,
    /// The longest value.
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = value_size)]
    max_value: usize,
    /// Connections at a time.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,
}

#[derive(Args, Debug)]
struct Keys {
    /// The server.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6379")]
    server: String,
    /// How many keys.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    keys: u64,
    /// The number of the first.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..1_000_000_000_000))]
    first: u64,
    /// What values follow from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The same.
    #[arg(long, default_value_t = 1)]
    version: u64,
    /// Fill in another order than that of the numbers.
    #[arg(long)]
    scattered: bool,
    /// Connections at a time.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1000))]
    connections: u64,
}

#[derive(Args, Debug)]
struct Verify {
    #[command(flatten)]
    keys: Keys,
    /// A key may also have one other value of so many bytes, the same for all: what redis-benchmark sets.
    #[arg(long, value_name = "BYTES")]
    or_other: Option<usize>,
}

impl From<Keys> for Work {
    fn from(keys: Keys) -> Work {
        Work {
            server: keys.server,
            keys: keys.first..keys.first + keys.keys,
            seed: keys.seed,
            version: keys.version,
            connections: keys.connections,
            is_scattered: keys.scattered,
        }
    }
}

fn size(text: &str) -> Result<u64, String> {
    text.size_bytes().map_err(|error| error.to_string())
}

fn value_size(text: &str) -> Result<usize, String> {
    // redis's own limit.
    const MOST: u64 = 512 << 20;
    match size(text)? {
        bytes @ 1..=MOST => usize::try_from(bytes).map_err(|error| error.to_string()),
        _ => Err("expected 1 byte to 512M".to_owned()),
    }
}

fn main() -> ExitCode {
    let done = match Options::parse().verb {
        Verb::Serve(options) => serve(options),
        Verb::Fill(keys) => told("filled", client::fill(&keys.into())),
        Verb::Verify(options) => {
            let verified = client::verify(&options.keys.into(), options.or_other);
            told("verified", verified)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // Nobody may be there to read it.
            let _ = writeln!(std::io::stderr(), "vswap-kv: {why}");
            ExitCode::FAILURE
        }
    }
}

fn say(text: &str) -> Result<(), String> {
    let mut output = std::io::stdout();
    writeln!(output, "{text}")
        .and_then(|()| output.flush())
        .map_err(|error| format!("standard output: {error}"))
}

fn told(what: &str, done: Result<client::Done, client::ClientError>) -> Result<(), String> {
    let done = done.map_err(|error| error.to_string())?;
    say(&format!("{what} {done}"))
}

fn serve(options: Serve) -> Result<(), String> {
    let limits = Limits {
        ram_bytes: options.ram,
        swap: options.swap,
        codec: options.codec,
        value_bytes: options.max_value,
    };
    let cannot = |error: std::io::Error| format!("cannot listen at {}: {error}", options.bind);
    let listener = TcpListener::bind(&options.bind).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let store = Store::new(limits).map_err(|error| error.to_string())?;
    say(&format!("vswap-kv listens at {address}"))?;
    let clients = usize::try_from(options.clients).unwrap_or(usize::MAX);
    server::serve(&listener, &Arc::new(store), clients)
}
