//! `latency-proxy`: a network with latency, in front of a server on this machine.
//!
//! Every byte that goes through it, in either direction, arrives after the delay. The delay is latency, not a limit of
//! throughput: what follows does not wait for what is under way. Stopped with SIGSTOP it is a network that drops
//! packets: connections stay, new ones seem to be made, and nothing arrives until SIGCONT.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::thread::set_current_timer_slack;

/// Bytes that are taken in at once.
const CHUNK: usize = 64 * 1024;
/// Chunks under way, in one direction of a connection: with full ones 64 MiB.
const UNDER_WAY: usize = 1024;

#[derive(Parser)]
#[command(version, about = "Pass connections on to a server, with latency")]
struct Options {
    /// Where connections come in, such as 127.0.0.1:17001.
    #[arg(long)]
    listen: String,
    /// The server.
    #[arg(long)]
    to: String,
    /// How long a byte takes, in each direction, in microseconds: a round trip takes twice as long.
    #[arg(long)]
    delay_us: u64,
}

/// What has come in, and when it goes out.
type Due = (Instant, Vec<u8>);

fn main() -> ExitCode {
    let options = Options::parse();
    match serve(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let (listen, to) = (&options.listen, &options.to);
            eprintln!("latency-proxy: from {listen} to {to}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until it is killed.
fn serve(options: &Options) -> io::Result<()> {
    // A sleep of 100 us takes 50 us longer otherwise. Threads inherit it.
    set_current_timer_slack(Some(NonZeroU64::MIN))?;
    let listener = TcpListener::bind(&options.listen)?;
    let delay = Duration::from_micros(options.delay_us);
    for client in listener.incoming() {
        let client = client?;
        // A server that is away is one that closes the connection at once.
        if let Ok(server) = TcpStream::connect(&options.to) {
            join(&client, &server, delay)?;
        }
    }
    Ok(())
}

/// Passes on in both directions.
fn join(client: &TcpStream, server: &TcpStream, delay: Duration) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    pass(client.try_clone()?, server.try_clone()?, delay)?;
    pass(server.try_clone()?, client.try_clone()?, delay)
}

fn pass(from: TcpStream, to: TcpStream, delay: Duration) -> io::Result<()> {
    let (sender, receiver) = sync_channel(UNDER_WAY);
    let thread = |name: &str| Builder::new().name(name.to_owned());
    thread("take-in").spawn(move || take_in(from, delay, &sender))?;
    thread("give-out").spawn(move || give_out(to, &receiver))?;
    Ok(())
}

/// Ends with the connection, and then the other thread ends too.
fn take_in(mut from: TcpStream, delay: Duration, sender: &SyncSender<Due>) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(length @ 1..) = from.read(&mut chunk) {
        let due = Instant::now() + delay;
        let Some(taken) = chunk.get(..length) else {
            return;
        };
        if sender.send((due, taken.to_vec())).is_err() {
            return;
        }
    }
}

fn give_out(mut to: TcpStream, receiver: &Receiver<Due>) {
    for (due, bytes) in receiver {
        sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // Whoever waits for more is told; it may be closed already.
    let _ = to.shutdown(Shutdown::Both);
}
