//! Who uses an area: a mark in its first page, which is renewed as long as the area is used.
//!
//! The protocol has no locks, and the same export may be named on two machines. So whoever opens an area that has a
//! mark watches it for a while. One that is renewed belongs to somebody; one that is not was left by a run that has
//! crashed, and is taken over. No clocks are compared. A run that finds another's mark in place of its own was taken
//! for dead, or has begun at the same moment: it writes nothing any more. What it reads is wrong for certain then, and
//! is found out page by page, as whatever was altered is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use vswap_engine::{PAGE_BYTES, Page};

use crate::nbd::export::{PAGE, reads, unfit, writes};
use crate::nbd::link::Link;
use crate::nbd::mark::Mark;
use crate::node::Deadline;
use crate::store::FarError;

/// Renewals after which a mark that has not changed is nobody's.
const MISSED: u32 = 4;
/// How long taking the mark away may take at the end.
const GOODBYE: Duration = Duration::from_secs(5);

/// What the thread and its owner share.
struct Shared {
    link: Arc<Link>,
    header: Page,
    run: u128,
    every: Duration,
    is_taken: AtomicBool,
    stop: Mutex<bool>,
    stopped: Condvar,
}

/// The mark of an area that is used here. It goes when this is dropped.
pub(crate) struct Claim {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Claim {
    /// Marks an area with this header, and renews that. Blocks for some times `every` if it is marked already.
    ///
    /// # Errors
    /// [`FarError`]: another run uses it, or the server does not serve.
    pub(crate) fn take(
        link: &Arc<Link>,
        header: Page,
        run: u128,
        every: Duration,
    ) -> Result<Claim, FarError> {
        if let Some(mark) = Mark::of(&header) {
            must_be_left(link, mark, every)?;
        }
        let shared = Shared {
            link: Arc::clone(link),
            header,
            run,
            every,
            is_taken: AtomicBool::new(false),
            stop: Mutex::new(false),
            stopped: Condvar::new(),
        };
        if !shared.write(Some(Mark { run, renewed: 0 }), link.deadline()) {
            return Err(unfit(
                link,
                "cannot write the first page of its export".into(),
            ));
        }
        let shared = Arc::new(shared);
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("vswap-lease".into())
            .spawn(move || of_thread.renew())
            .map_err(|_| FarError::NoThread)?;
        let thread = Some(thread);
        Ok(Claim { shared, thread })
    }

    /// Whether another run has taken the area.
    pub(crate) fn is_taken(&self) -> bool {
        self.shared.is_taken.load(Ordering::Relaxed)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut stop = self
            .shared
            .stop
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *stop = true;
        drop(stop);
        self.shared.stopped.notify_all();
        if let Some(thread) = self.thread.take() {
            // One that has panicked has said so.
            let _ = thread.join();
        }
        if !self.is_taken() {
            // Where that fails, the next run waits a while for the mark to be renewed.
            let _ = self.shared.write(None, Deadline::after(GOODBYE));
        }
    }
}

/// Watches a mark, until it is nobody's for certain.
fn must_be_left(link: &Link, mark: Mark, every: Duration) -> Result<(), FarError> {
    let time = every * MISSED;
    tracing::warn!(
        "{}: its area was not given back; looking for {} s whether another run uses it",
        link.node.name,
        time.as_secs_f32()
    );
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::thread::sleep(every / 2);
        let page = read(link, link.deadline()).ok_or_else(|| {
            let node = link.node.name.clone();
            let reason = "it has not answered in time".into();
            FarError::NoAnswer { node, reason }
        })?;
        match Mark::of(&page) {
            None => return Ok(()),
            Some(now) if now == mark => {}
            Some(_) => {
                let what =
                    "has an export that another run uses: end that run, or name another export";
                return Err(unfit(link, what.into()));
            }
        }
    }
    Ok(())
}

/// The first page. None if the server does not give it.
fn read(link: &Link, deadline: Deadline) -> Option<Page> {
    let mut answers = link.run_briefly(&reads(0, PAGE, link), deadline)?;
    let content = answers.pop()?.ok()?;
    content.first_chunk::<PAGE_BYTES>().map(|page| Page(*page))
}

impl Shared {
    /// Returns whether it was written.
    fn write(&self, mark: Option<Mark>, deadline: Deadline) -> bool {
        let mut page = self.header.clone();
        Mark::put(&mut page, mark);
        let answers = self
            .link
            .run_briefly(&writes(0, page.0.to_vec(), &self.link), deadline);
        answers.is_some_and(|answers| answers.iter().all(Result::is_ok))
    }

    fn renew(&self) {
        let mut renewed = 0;
        loop {
            let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self
                .stopped
                .wait_timeout_while(stop, self.every, |stop| !*stop);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
            // What fails is tried again the next time. Pages tell the same of the server, and louder.
            let soon = Deadline::after(GOODBYE);
            let Some(page) = read(&self.link, soon) else {
                continue;
            };
            if Mark::of(&page).is_some_and(|mark| mark.run != self.run) {
                self.is_taken.store(true, Ordering::Relaxed);
                tracing::error!(
                    "{}: another run has taken the area in its export; nothing is written there any more",
                    self.link.node.name
                );
                return;
            }
            renewed += 1;
            let run = self.run;
            let _ = self.write(Some(Mark { run, renewed }), soon);
        }
    }
}
