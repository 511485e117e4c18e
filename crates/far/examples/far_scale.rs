//! What one node, ten and a hundred give: `far_scale [STORE]`.
//!
//! Requests, bytes, keys and memory are counted with the real client among simulated servers. What a page costs client
//! and server in processor time is measured at STORE; without one there are no tables. From all that the first tables
//! are arithmetic. The last one is the real client again, which waits for simulated servers: it shares the processors
//! of this machine with them, so it says whether the arithmetic is right where round trips are long, and no more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vswap_engine::{Codec, Page, Storage};
use vswap_far::{AreaId, FarOptions, FarStorage, RunId};

use crate::sample::{WINDOW, packed, read};
use crate::simulated::{Net, Simulated, Speeds};

#[allow(dead_code, reason = "the other example compares pages")]
#[path = "shared/sample.rs"]
mod sample;
#[allow(dead_code, unused_imports, reason = "tests use all of it")]
#[path = "../simulated/mod.rs"]
mod simulated;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Pages of one key.
const SPAN: u64 = 512;
/// Numbers of nodes.
const NODES: [usize; 4] = [1, 3, 10, 100];
/// Round trips in microseconds.
const ROUND_TRIPS_US: [u64; 3] = [50, 200, 1000];
/// Numbers of threads. Each has one window under way.
const THREADS: [usize; 4] = [1, 2, 4, 8];
/// Connections to each node, as `FarOptions::new` has them.
const LANES: usize = 4;
/// The client's network, in Gbit/s.
const NETWORKS: [f64; 2] = [10.0, 25.0];
/// Windows of one measurement at a real store, in each direction.
const WINDOWS: usize = 4096;
/// Ticks of the processor's clock in /proc, a second.
const TICKS: f64 = 100.0;

/// Processor time of one page in microseconds.
#[derive(Clone, Copy)]
struct Cost {
    client: f64,
    node: f64,
}

/// Of writing and of reading.
type Costs = [Cost; 2];

fn options(slots: u64) -> Outcome<FarOptions> {
    let run = RunId::random().ok_or("no random bytes")?;
    let mut options = FarOptions::new(AreaId { run, area: 0 }, slots, Codec::Lz4);
    options.lanes = LANES;
    Ok(options)
}

fn over(net: &Arc<Simulated>, slots: u64) -> Outcome<FarStorage> {
    let spec = net.name().parse()?;
    let net = Arc::new(Net(Arc::clone(net)));
    Ok(FarStorage::open_over(net, &spec, options(slots)?)?)
}

fn write(storage: &FarStorage, slot: u64, packed: &[Vec<u8>]) {
    let payloads: Vec<&[u8]> = packed.iter().map(Vec::as_slice).collect();
    storage.write_packed(slot, &payloads).expect("written");
}

/// Processor time of this process, in seconds.
fn own_cpu() -> Outcome<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, rest) = stat.rsplit_once(')').ok_or("an odd /proc/self/stat")?;
    let times = rest.split_whitespace().skip(11).take(2);
    let ticks = times.map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    Ok(ticks / TICKS)
}

/// Processor time of the server there, in seconds.
fn server_cpu(store: &str) -> Outcome<f64> {
    let url = store.replacen("valkey://", "redis://", 1);
    let mut server = redis::Client::open(url)?.get_connection()?;
    let info: String = redis::cmd("INFO").arg("cpu").query(&mut server)?;
    let used = info
        .lines()
        .filter(|line| line.starts_with("used_cpu_sys:") || line.starts_with("used_cpu_user:"));
    let seconds = used.filter_map(|line| line.split_once(':')?.1.trim().parse::<f64>().ok());
    Ok(seconds.sum())
}

/// What a page costs at a real store, one thread.
fn measured(store: &str) -> Outcome<Costs> {
    let slots = (WINDOWS * WINDOW) as u64;
    let storage = FarStorage::open(&store.parse()?, options(slots)?)?;
    let packed = packed();
    let mut pages = vec![Page::zeroed(); WINDOW];
    let mut cost = |is_read: bool| -> Outcome<Cost> {
        let begun = (own_cpu()?, server_cpu(store)?);
        for slot in (0..slots).step_by(WINDOW) {
            if is_read {
                read(&storage, slot, &mut pages);
            } else {
                write(&storage, slot, &packed);
            }
        }
        let each = |seconds: f64| seconds * 1e6 / slots as f64;
        Ok(Cost {
            client: each(own_cpu()? - begun.0),
            node: each(server_cpu(store)? - begun.1),
        })
    };
    Ok([cost(false)?, cost(true)?])
}

/// What the client does among simulated servers, counted.
struct Counted {
    requests: [f64; 2],
    bytes: [f64; 2],
    /// Of keys and names of fields, for each page.
    names: f64,
    /// Bytes of memory that the client keeps for each page that is written.
    kept: f64,
    /// How many keys the fullest of 100 nodes has, beside the average.
    fullest: f64,
}

/// Servers that are near and take no time.
fn at_once() -> Speeds {
    Speeds {
        round_trip: Duration::from_nanos(1),
        command: Duration::ZERO,
        kib: Duration::ZERO,
        client: 0,
        spin: Duration::from_secs(1),
    }
}

/// Bytes of this process in memory.
fn resident() -> Outcome<f64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: f64 = statm
        .split_whitespace()
        .nth(1)
        .ok_or("an odd statm")?
        .parse()?;
    Ok(pages * 4096.0)
}

fn counted() -> Outcome<Counted> {
    let packed = packed();
    // First: memory that others have given back would be used again and not count.
    let kept = kept(&packed)?;
    let mut pages = vec![Page::zeroed(); WINDOW];
    let net = Simulated::new(10, true, 1, at_once());
    let windows = 1024;
    let slots = windows * WINDOW as u64;
    let storage = over(&net, slots)?;
    let mut requests = [0.0; 2];
    let mut bytes = [0.0; 2];
    for is_read in [false, true] {
        let before = net.world().counts;
        for slot in (0..slots).step_by(WINDOW) {
            if is_read {
                read(&storage, slot, &mut pages);
            } else {
                write(&storage, slot, &packed);
            }
        }
        let after = net.world().counts;
        requests[usize::from(is_read)] = (after.requests - before.requests) as f64 / windows as f64;
        let moved = (after.bytes_in - before.bytes_in).max(after.bytes_out - before.bytes_out);
        bytes[usize::from(is_read)] = moved as f64 / slots as f64;
    }
    let names = bytes_of_names(&net) as f64 / slots as f64;
    drop(storage);
    Ok(Counted {
        requests,
        bytes,
        names,
        kept,
        fullest: fullest(&packed)?,
    })
}

/// Bytes of the names of all keys of pages and of their fields.
fn bytes_of_names(net: &Simulated) -> usize {
    let world = net.world();
    let of_key = |(shard, name): (usize, Vec<u8>)| {
        let key = &world.machine(world.master(shard)).data.keys[&name];
        name.len() + key.fields.keys().map(Vec::len).sum::<usize>()
    };
    world.page_keys().into_iter().map(of_key).sum()
}

/// Memory of the client for each page of an area of 8 GiB that is full.
fn kept(packed: &[Vec<u8>]) -> Outcome<f64> {
    let net = Simulated::new(10, true, 1, at_once());
    let slots = 8 << 18;
    let before = resident()?;
    let storage = over(&net, slots)?;
    // Not before: that the servers keep what is written is looked at when they are opened.
    net.world().keeps_nothing = true;
    for slot in (0..slots).step_by(WINDOW) {
        write(&storage, slot, packed);
    }
    let after = resident()?;
    drop(storage);
    Ok((after - before) / slots as f64)
}

/// Of an area of 64 GiB.
fn fullest(packed: &[Vec<u8>]) -> Outcome<f64> {
    let net = Simulated::new(100, true, 1, at_once());
    let slots = 64 << 18;
    let storage = over(&net, slots)?;
    for slot in (0..slots).step_by(usize::try_from(SPAN)?) {
        write(&storage, slot, &packed[..1]);
    }
    let mut keys = [0.0_f64; 100];
    for (shard, _) in net.world().page_keys() {
        keys[shard] += 1.0;
    }
    drop(storage);
    let most = keys.iter().copied().fold(0.0, f64::max);
    Ok(most * 100.0 / keys.iter().sum::<f64>())
}

/// What a second gives, in pages, and what keeps it from being more.
fn bound(cost: Cost, bytes: f64, gbit: f64, at: (usize, u64, usize)) -> (f64, &'static str) {
    let (nodes, round_trip, threads) = at;
    let window = WINDOW as f64;
    // All in microseconds for a window.
    let client = cost.client * window;
    let node = cost.node * window;
    let network = bytes * window * 8.0 / (gbit * 1000.0);
    let round_trip = round_trip as f64;
    let under_way = threads.min(LANES * nodes) as f64;
    let alone = client + node + network + round_trip;
    let parts = [
        (client, "client CPU"),
        (node, "node"),
        (network, "network"),
        (round_trip, "round trip"),
    ];
    let longest = parts
        .into_iter()
        .max_by(|one, other| one.0.total_cmp(&other.0));
    let bounds = [
        (nodes as f64 / node, "node"),
        (1.0 / network, "network"),
        (under_way / alone, longest.map_or("", |(_, name)| name)),
    ];
    let least = bounds
        .into_iter()
        .min_by(|one, other| one.0.total_cmp(&other.0));
    least.map_or((0.0, ""), |(windows, why)| (windows * window * 1e6, why))
}

fn thousands(pages: f64) -> String {
    format!("{:.0}", pages / 1000.0)
}

/// Thousand pages a second by arithmetic.
fn print_bounds(costs: Costs, bytes: [f64; 2], gbit: f64) {
    println!(
        "\nby arithmetic, {gbit} Gbit/s at the client, thousand pages/s written / read, and what holds back reads"
    );
    println!(
        "| nodes | round trip | 1 thread | 2 threads | 4 threads | 8 threads | bottleneck of 1 | of 8 |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for nodes in NODES {
        for round_trip in ROUND_TRIPS_US {
            let mut row = format!("| {nodes} | {round_trip} us |");
            let of = |threads, way: usize| {
                bound(costs[way], bytes[way], gbit, (nodes, round_trip, threads))
            };
            for threads in THREADS {
                let (out, back) = (of(threads, 0).0, of(threads, 1).0);
                row += &format!(" {} / {} |", thousands(out), thousands(back));
            }
            println!("{row} {} | {} |", of(1, 1).1, of(8, 1).1);
        }
    }
}

/// Thousand pages a second of the real client among simulated servers, written and read.
fn simulated(nodes: usize, round_trip: u64, threads: usize, costs: Costs) -> Outcome<(f64, f64)> {
    // A window is one command, or three in MULTI: the server's work is by the byte.
    let kib = (costs[0].node + costs[1].node) / 2.0 / 1.9;
    let speeds = Speeds {
        round_trip: Duration::from_micros(round_trip),
        command: Duration::ZERO,
        kib: Duration::from_secs_f64(kib / 1e6),
        client: 1_250_000_000,
        spin: Duration::from_micros(80),
    };
    let net = Simulated::new(nodes, true, 1, speeds);
    let windows = 256 / threads;
    let slots = (threads * windows) as u64 * SPAN;
    let storage = over(&net, slots)?;
    let packed = packed();
    let run = |is_read: bool| {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (storage, packed) = (&storage, &packed);
                scope.spawn(move || {
                    let mut pages = vec![Page::zeroed(); WINDOW];
                    for window in 0..windows {
                        let slot = (thread * windows + window) as u64 * SPAN;
                        if is_read {
                            read(storage, slot, &mut pages);
                        } else {
                            write(storage, slot, packed);
                        }
                    }
                });
            }
        });
        (threads * windows * WINDOW) as f64 / begun.elapsed().as_secs_f64()
    };
    // Once more: the first time makes connections and keys.
    run(false);
    let done = (run(false), run(true));
    drop(storage);
    Ok(done)
}

fn print_simulated(costs: Costs) -> Outcome<()> {
    println!(
        "\nsimulated, thousand pages/s written / read; the client and its servers share this machine"
    );
    println!("| nodes | round trip | 1 thread | 2 threads | 4 threads | 8 threads |");
    println!("|---|---|---|---|---|---|");
    for nodes in NODES {
        for round_trip in ROUND_TRIPS_US {
            let mut row = format!("| {nodes} | {round_trip} us |");
            for threads in THREADS {
                let (out, back) = simulated(nodes, round_trip, threads, costs)?;
                row += &format!(" {} / {} |", thousands(out), thousands(back));
            }
            println!("{row}");
        }
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let counted = counted()?;
    let [requests_out, requests_in] = counted.requests;
    println!("requests of a window: {requests_out:.2} out, {requests_in:.2} in");
    let [bytes_out, bytes_in] = counted.bytes;
    println!("bytes of a page on the way: {bytes_out:.0} out, {bytes_in:.0} in");
    println!(
        "bytes in the client for a page in the store: {:.1}",
        counted.kept
    );
    let per_gib = (1 << 18) as f64;
    println!("keys for a GiB: {:.0}", per_gib / SPAN as f64);
    println!(
        "KiB of keys and names of fields for a GiB: {:.0}",
        counted.names * per_gib / 1024.0
    );
    println!(
        "keys of the fullest of 100 nodes: {:.2} of the average",
        counted.fullest
    );
    let Some(store) = std::env::args().nth(1) else {
        println!(
            "no tables: name a store of one server, at which a page's processor time is measured"
        );
        return Ok(());
    };
    let costs = measured(&store)?;
    let [out, back] = costs;
    println!(
        "processor time of a page, us: client {:.2} out, {:.2} in",
        out.client, back.client
    );
    println!(
        "processor time of a page, us: node {:.2} out, {:.2} in",
        out.node, back.node
    );
    for gbit in NETWORKS {
        print_bounds(costs, counted.bytes, gbit);
    }
    print_simulated(costs)
}
