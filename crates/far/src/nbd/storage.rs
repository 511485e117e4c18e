//! The storage: what the engine is given. For any number of threads at once.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use vswap_engine::{PAGE_BYTES, Page, ReadRun, Storage, StorageError};

use crate::cipher::{Cipher, TagBytes};
use crate::event::Listener;
use crate::figures::{FarFigures, FarWatch, HasFigures, of_node};
use crate::keys::AreaId;
use crate::nbd::claim::Claim;
use crate::nbd::connection::{Answer, Request};
use crate::nbd::export::{PAGE, area, check, reads, trims, writes};
use crate::nbd::link::Link;
use crate::nbd::protocol::{Export, NO_SPACE};
use crate::nbd::spec::NbdSpec;
use crate::node::Deadline;
use crate::slots::{Field, Slots, Writing, by_cluster};
use crate::store::{FarError, Patience};

/// How long giving up everything may take at the end.
const GOODBYE: Duration = Duration::from_secs(5);
/// How often the mark that an area is used is renewed. Whoever finds one that was left waits for four times that.
const RENEW: Duration = Duration::from_secs(5);

/// What an area in an export is to be like.
pub struct NbdOptions {
    /// Whose area it is: pages are bound to that.
    pub id: AreaId,
    /// How much of the export is used. None for all of it.
    pub bytes: Option<u64>,
    /// How long things may take.
    pub patience: Patience,
    /// How often the mark that the area is used is renewed. All that use the same export must agree on it.
    pub renew: Duration,
    /// Who is told that the server is waited for. The log is told in any case.
    pub listener: Option<Listener>,
}

impl NbdOptions {
    /// All of the export, and the usual times.
    #[must_use]
    pub fn new(id: AreaId) -> NbdOptions {
        NbdOptions {
            id,
            bytes: None,
            patience: Patience::default(),
            renew: RENEW,
            listener: None,
        }
    }
}

impl fmt::Debug for NbdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("NbdOptions");
        shown.field("id", &self.id).field("bytes", &self.bytes);
        shown.finish_non_exhaustive()
    }
}

/// What has been done, and with what.
struct Done {
    link: Arc<Link>,
    slots: Slots,
    lost: AtomicU64,
    altered: AtomicU64,
}

impl HasFigures for Done {
    /// Nothing of it is about keys, copies and backups.
    fn figures(&self) -> FarFigures {
        FarFigures {
            nodes: vec![of_node(&self.link.node)],
            pages: self.slots.pages(),
            keys: 0,
            lost_pages: self.lost.load(Ordering::Relaxed),
            altered_pages: self.altered.load(Ordering::Relaxed),
            single_copies: 0,
            repaired_pages: 0,
            keys_gone: 0,
            backup_reads: 0,
            backup_failed: 0,
        }
    }
}

/// An area in an export.
pub struct NbdStorage {
    done: Arc<Done>,
    claim: Claim,
    cipher: Cipher,
    bad: Vec<u64>,
    name: String,
    /// Nobody needs it any more.
    is_retired: AtomicBool,
}

impl NbdStorage {
    /// Connects, asks whether the export is fit, and makes an area of it if it is blank. Blocks.
    ///
    /// # Errors
    /// [`FarError`] says what is wrong and what mends it.
    pub fn open(spec: &NbdSpec, options: NbdOptions) -> Result<NbdStorage, FarError> {
        let NbdOptions {
            id,
            bytes,
            patience,
            renew,
            listener,
        } = options;
        let link = Arc::new(Link::open(spec, &patience, listener)?);
        check(&link)?;
        let has = link.export.bytes;
        if let Some(bytes) = bytes.filter(|bytes| *bytes > has) {
            return Err(FarError::Unfit {
                node: link.node.name.clone(),
                what: format!(
                    "has an export of {has} bytes, and {bytes} were asked for: leave the size out to use all of it, \
                     or make it larger"
                ),
            });
        }
        let (header, first) = area(&link, spec)?;
        let slots = bytes.map_or(header.pages, |bytes| header.pages.min(bytes / PAGE));
        let cipher = Cipher::random(id.run.number(), id.area).ok_or(FarError::NoKey)?;
        let claim = Claim::take(&link, first, id.run.number(), renew)?;
        // The header lies in the first page.
        let bad = std::iter::once(0).chain(header.bad_pages.iter().copied().map(u64::from));
        let done = Done {
            link,
            slots: Slots::new(slots),
            lost: AtomicU64::new(0),
            altered: AtomicU64::new(0),
        };
        Ok(NbdStorage {
            done: Arc::new(done),
            claim,
            cipher,
            bad: bad.filter(|bad| *bad < slots).collect(),
            name: spec.to_string(),
            is_retired: AtomicBool::new(false),
        })
    }

    /// Slots, that of the header included.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.done.slots.len()
    }

    /// Slots that must never be used.
    #[must_use]
    pub fn bad(&self) -> &[u64] {
        &self.bad
    }

    /// What the server says of the export.
    #[must_use]
    pub fn export(&self) -> Export {
        self.done.link.export
    }

    /// What it has done. Nothing of it is about keys, copies and backups.
    #[must_use]
    pub fn figures(&self) -> FarFigures {
        self.done.figures()
    }

    /// A way to ask for the same once the engine has the storage.
    #[must_use]
    pub fn watch(&self) -> FarWatch {
        FarWatch::new(&self.done)
    }

    /// What each slot of a run holds, with its tag.
    fn look_up(&self, slot: u64, pages: usize) -> Vec<Option<(Field, TagBytes)>> {
        let mut held = Vec::with_capacity(pages);
        for (cluster, places, _) in by_cluster(slot..slot.saturating_add(pages as u64)) {
            let (_, fields) = self.done.slots.look_up(cluster, places.clone());
            let tags = self.done.slots.tags(cluster, places);
            let each = fields.into_iter().zip(tags);
            held.extend(each.map(|(field, tag)| Some((field?, tag))));
        }
        held
    }

    /// Verifies and decrypts what came for a run.
    fn open_run(&self, run: &mut ReadRun<'_>, content: &[u8]) -> Result<(), StorageError> {
        let held = self.look_up(run.slot, run.pages.len());
        let came = content.as_chunks::<PAGE_BYTES>().0;
        let mut outcome = Ok(());
        for (at, page) in run.pages.iter_mut().enumerate() {
            let opened = match (held.get(at), came.get(at)) {
                (Some(Some((field, tag))), Some(came)) => {
                    page.0 = *came;
                    let slot = run.slot + at as u64;
                    let opened = self
                        .cipher
                        .open_in_place(slot, field.version, &mut page.0, tag);
                    opened.map_err(|_| StorageError::Altered)
                }
                _ => Err(StorageError::Lost),
            };
            match opened {
                Ok(()) => {}
                Err(StorageError::Altered) => count(&self.done.altered, 1),
                Err(_) => count(&self.done.lost, 1),
            }
            outcome = outcome.and(opened);
        }
        outcome
    }

    fn conclude(&self, run: &mut ReadRun<'_>, answers: &[Answer]) -> Result<(), StorageError> {
        let parts: Result<Vec<&[u8]>, StorageError> = answers.iter().map(of_answer).collect();
        let counts = &self.done.link.node.counts;
        let bytes = run.pages.len() as u64 * PAGE;
        let opened = match parts?.as_slice() {
            [one] => self.open_run(run, one),
            many => self.open_run(run, &many.concat()),
        };
        count(&counts.pages_in, run.pages.len() as u64);
        count(&counts.bytes_in, bytes);
        opened
    }

    /// Encrypts pages for the slots of a write.
    fn sealed(&self, slot: u64, writing: &Writing, pages: &[&Page]) -> Option<Vec<u8>> {
        let mut content = Vec::with_capacity(pages.len() * PAGE_BYTES);
        let mut tags = Vec::with_capacity(pages.len());
        for ((slot, field), page) in (slot..).zip(&writing.new).zip(pages) {
            let begin = content.len();
            content.extend_from_slice(&page.0);
            let place = content.get_mut(begin..)?;
            tags.push(self.cipher.seal_in_place(slot, field.version, place)?);
        }
        self.done.slots.keep_tags(writing, &tags);
        Some(content)
    }

    fn run(&self, requests: &[Request]) -> Result<(), StorageError> {
        let answers = self.done.link.run(requests, self.done.link.deadline());
        let answers = answers.ok_or(StorageError::TimedOut)?;
        answers
            .iter()
            .try_for_each(|answer| of_answer(answer).map(drop))
    }

    fn write_all(&self, slot: u64, parts: &[Writing], pages: &[&Page]) -> Result<(), StorageError> {
        let mut content = Vec::new();
        let (mut slot_of, mut rest) = (slot, pages);
        for writing in parts {
            let (part, others) = rest
                .split_at_checked(writing.new.len())
                .unwrap_or((rest, &[]));
            let sealed = self.sealed(slot_of, writing, part);
            let sealed = sealed.ok_or(StorageError::Unsupported)?;
            match content.is_empty() {
                true => content = sealed,
                false => content.extend_from_slice(&sealed),
            }
            slot_of += part.len() as u64;
            rest = others;
        }
        let requests = writes(slot * PAGE, content, &self.done.link);
        self.run(&requests)
    }
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

fn of_answer(answer: &Answer) -> Result<&[u8], StorageError> {
    match answer {
        Ok(content) => Ok(content),
        Err(NO_SPACE) => Err(StorageError::Full),
        Err(errno) => Err(StorageError::Failed {
            errno: errno.cast_signed(),
        }),
    }
}

impl fmt::Debug for NbdStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("NbdStorage");
        shown.field("name", &self.name).finish_non_exhaustive()
    }
}

impl Storage for NbdStorage {
    fn read(&self, slot: u64, pages: &mut [&mut Page]) -> Result<(), StorageError> {
        ReadRun::alone(self, slot, pages)
    }

    fn read_runs(&self, runs: &mut [ReadRun<'_>]) {
        let mut requests = Vec::new();
        let mut of_runs = Vec::with_capacity(runs.len());
        for run in &mut *runs {
            let pages = run.pages.len() as u64;
            let end = run.slot.checked_add(pages);
            run.outcome = match end.is_some_and(|end| end <= self.done.slots.len()) {
                true => Ok(()),
                false => Err(StorageError::Short),
            };
            let first = requests.len();
            if run.outcome.is_ok() {
                requests.extend(reads(run.slot * PAGE, pages * PAGE, &self.done.link));
            }
            of_runs.push(first..requests.len());
        }
        let answers = self.done.link.run(&requests, self.done.link.deadline());
        for (run, of_run) in runs.iter_mut().zip(of_runs) {
            if run.outcome.is_err() {
                continue;
            }
            let answers = answers.as_ref().map(|answers| answers.get(of_run));
            run.outcome = match answers {
                Some(answers) => self.conclude(run, answers.unwrap_or_default()),
                None => Err(StorageError::TimedOut),
            };
        }
    }

    fn write(&self, slot: u64, pages: &[&Page]) -> Result<(), StorageError> {
        let end = slot.checked_add(pages.len() as u64);
        let end = end.filter(|end| *end <= self.done.slots.len());
        let end = end.filter(|_| !self.is_retired.load(Ordering::Relaxed));
        let slots = slot..end.ok_or(StorageError::Short)?;
        if self.claim.is_taken() {
            return Err(StorageError::Altered);
        }
        let mut parts = Vec::new();
        let mut written = Ok(());
        for (cluster, places, _) in by_cluster(slots) {
            match self.done.slots.begin_write(cluster, places, |_| 0) {
                Ok(writing) => parts.push(writing),
                Err(_) => written = Err(StorageError::Full),
            }
        }
        let written = written.and_then(|()| self.write_all(slot, &parts, pages));
        for writing in parts {
            self.done.slots.end_write(writing, written.is_ok());
        }
        if written.is_ok() {
            let counts = &self.done.link.node.counts;
            count(&counts.pages_out, pages.len() as u64);
            count(&counts.bytes_out, pages.len() as u64 * PAGE);
        }
        written
    }

    fn is_far(&self) -> bool {
        true
    }

    fn retire(&self) {
        let was_retired = self.is_retired.swap(true, Ordering::Relaxed);
        if was_retired || !self.done.link.export.can_trim || self.claim.is_taken() {
            return;
        }
        let goodbye = Deadline::after(GOODBYE);
        let pages = self.done.slots.len().saturating_sub(1);
        // What stays is noise, and is written over by whoever uses the export next.
        let _ = self
            .done
            .link
            .run_briefly(&trims(PAGE, pages * PAGE), goodbye);
    }

    fn discard(&self, slots: Range<u64>) -> Result<(), StorageError> {
        if slots.end > self.done.slots.len() {
            return Err(StorageError::Short);
        }
        for (cluster, places, _) in by_cluster(slots.clone()) {
            // What is to be deleted in other stores is simply written over here.
            let _ = self.done.slots.discard(cluster, places);
        }
        // The first page is the header's.
        let begin = slots.start.max(1);
        if !self.done.link.export.can_trim || begin >= slots.end || self.claim.is_taken() {
            return Ok(());
        }
        let requests = trims(begin * PAGE, (slots.end - begin) * PAGE);
        self.run(&requests)
    }
}
