//! The lease: every key has a time to live, which one thread renews while the area does. What a machine leaves that
//! loses its power is gone after that time.
//!
//! The same thread writes copies anew that are missing (`mend.rs`).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::{Value, cmd};

use crate::area::Area;
use crate::exchange::Request;
use crate::suspects::Why;
use crate::topology::{Kind, Place};
use crate::write::unlink;

/// Keys that one batch renews or deletes.
const BATCH: usize = 256;
/// Renewals within a lease.
const RENEWALS: u32 = 3;
/// How soon a renewal that failed is tried again, as a part of the lease.
const RETRIES: u32 = 12;
/// How long one batch may take. What fails is tried again soon.
const BRIEFLY: Duration = Duration::from_secs(2);
/// How often the thread looks whether copies are to be written again.
const LOOK: Duration = Duration::from_millis(200);
/// How long deleting everything may take at the end.
const GOODBYE: Duration = Duration::from_secs(10);

/// The thread that renews.
pub(crate) struct Keeper {
    area: Arc<Area>,
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Keeper {
    /// Registers the run, then renews. None if the system gives no thread.
    pub(crate) fn start(area: Arc<Area>) -> Option<Keeper> {
        let is_known = area.register();
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (of_thread, stopped) = (Arc::clone(&area), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("vswap-lease".into())
            .spawn(move || keep(&of_thread, &stopped, is_known))
            .ok()?;
        Some(Keeper {
            area,
            stop,
            thread: Mutex::new(Some(thread)),
        })
    }
}

impl Keeper {
    /// Ends the thread and deletes all keys, once. Blocks for some seconds if the store does not answer.
    pub(crate) fn end(&self) {
        *lock(&self.stop.0) = true;
        self.stop.1.notify_all();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // One that has panicked has said so.
            let _ = thread.join();
            self.area.delete_all();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock(stop: &Mutex<bool>) -> MutexGuard<'_, bool> {
    stop.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Renews until it is stopped. A run that is not registered is soon tried again: `gc` takes its keys for left over.
fn keep(area: &Area, (stop, woken): &(Mutex<bool>, Condvar), is_known: bool) {
    let next = |done| area.lease / if done { RENEWALS } else { RETRIES };
    let mut due = Instant::now() + next(is_known);
    let mut stopped = lock(stop);
    while !*stopped {
        let pause = LOOK.min(due.saturating_duration_since(Instant::now()));
        let woken = woken.wait_timeout(stopped, pause.max(Duration::from_millis(1)));
        stopped = woken.unwrap_or_else(PoisonError::into_inner).0;
        if *stopped {
            break;
        }
        drop(stopped);
        // May take long, which is no reason to renew later.
        area.mend();
        if Instant::now() >= due {
            // Keys need their lease also while one of the servers that know the run does not answer.
            let is_known = area.register();
            let done = area.renew() && is_known;
            due = Instant::now() + next(done);
        }
        stopped = lock(stop);
    }
}

impl Area {
    /// Writes down who the run is, on every store that knows nothing of the others. Returns whether that was done.
    fn register(&self) -> bool {
        let key = self.id.registry();
        let began = SystemTime::now().duration_since(UNIX_EPOCH);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let mut set = cmd("HSET");
        set.arg(&key).arg("host").arg(host.trim());
        set.arg("pid").arg(std::process::id());
        set.arg("seen").arg(began.unwrap_or_default().as_secs());
        set.arg("lease_s").arg(self.lease.as_secs());
        let expire = self.expire(key.as_bytes());
        let requests: Vec<Request> = self
            .registry_places()
            .into_iter()
            .map(|place| Request {
                place,
                commands: vec![set.clone(), expire.clone()],
                atomic: true,
            })
            .collect();
        let served = self.exchange.run_briefly(&requests, BRIEFLY);
        served.iter().all(Result::is_ok)
    }

    fn registry_places(&self) -> Vec<Place> {
        let place = Place::of(self.id.registry().into_bytes());
        let stores = match self.exchange.topology.kind {
            Kind::Stores => self.exchange.topology.nodes().len(),
            _ => 1,
        };
        let on = |copy| Place {
            copy,
            ..place.clone()
        };
        (0..stores).map(on).collect()
    }

    /// Renews the lease of every key. Returns whether all of it was done.
    fn renew(&self) -> bool {
        let mut done = true;
        let mut from = 0;
        loop {
            let (copies, next) = self.copies_from(from, BATCH);
            if copies.is_empty() {
                return done;
            }
            from = next;
            let expire = |key: &[u8]| vec![self.expire(key)];
            let requests: Vec<Request> = copies
                .iter()
                .map(|&(home, copy)| self.request(home, copy, expire, false))
                .collect();
            let served = self.exchange.run_briefly(&requests, BRIEFLY);
            for ((home, copy), served) in copies.into_iter().zip(served) {
                match served.as_deref() {
                    // A key that is being written for the first time is not there yet, so this is a hint.
                    Ok([Value::Int(0)]) => {
                        self.counts.keys_gone.fetch_add(1, Ordering::Relaxed);
                        self.suspects.note(home, copy, Why::Lost);
                    }
                    Ok(_) => {}
                    Err(_) => done = false,
                }
            }
        }
    }

    /// Deletes all keys of the area, in bounded time. What remains goes with its lease.
    fn delete_all(&self) {
        let begun = Instant::now();
        let mut from = 0;
        loop {
            let (homes, next) = self.slots.homes(from, BATCH);
            let left = GOODBYE.saturating_sub(begun.elapsed());
            if homes.is_empty() || left.is_zero() {
                break;
            }
            from = next;
            let requests: Vec<Request> = homes
                .iter()
                .flat_map(|home| (0..self.copies).map(move |copy| (*home, copy)))
                .map(|(home, copy)| self.request(home, copy, unlink, false))
                .collect();
            let served = self.exchange.run_briefly(&requests, left.min(BRIEFLY));
            if served.iter().all(Result::is_err) {
                break;
            }
        }
        let requests: Vec<Request> = self
            .registry_places()
            .into_iter()
            .map(|place| Request {
                commands: unlink(&place.key),
                place,
                atomic: false,
            })
            .collect();
        self.exchange.run_briefly(&requests, BRIEFLY);
    }
}
