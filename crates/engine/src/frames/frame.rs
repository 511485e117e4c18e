//! The frame table: a fixed number of frames, their reference counts and their claim bits.
//!
//! A frame's state is one word. `[31]` is the claim. `[30]` says that the page was read ahead and nobody has asked for
//! it yet. `[29:0]` counts references. A free frame has no references and is linked into a lock-free stack; nobody
//! takes a reference on it there. A [`FrameMut`] holds the only reference and may write. Once the frame's index stands
//! in a slot word, the swap cache holds the reference and the content never changes again. Readers then take references
//! of their own ([`Frames::try_get`]) and copy without a lock. The claim says that somebody is writing the frame out.
//! It is taken and given back only under the lock of the slot's cluster.
//!
//! Unsafe is needed here because the frames are one run from a `PageSource`, and their state decides who may write or
//! read each of them. The borrow checker cannot see that.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::base::pages::{PAGE_BYTES, Page, PageSource};
use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
use crate::words::shadow::Shadow;

const CLAIM: u32 = 1 << 31;
const AHEAD: u32 = 1 << 30;
const REFS_MASK: u32 = AHEAD - 1;

/// End of the stack of free frames.
const NO_FRAME: u32 = u32::MAX;
/// The largest number of frames. Every index fits a slot word, and none is [`NO_FRAME`].
pub(crate) const FRAMES_MAX: usize = NO_FRAME as usize;

/// The stack's head is an index, and above it a tag that changes with every pop. If other threads pop and push the same
/// frame during a pop, the tag makes its compare-exchange fail.
const TAG_SHIFT: u32 = 32;
const INDEX_MASK: u64 = (1 << TAG_SHIFT) - 1;

struct FrameState {
    state: AtomicU32,
    /// The next frame in the stack of free frames.
    next: AtomicU32,
    /// The age that the slot keeps once the frame leaves it.
    shadow: AtomicU64,
    /// Shows loom who reads and who writes the content, which loom cannot see.
    #[cfg(loom)]
    access: loom::cell::UnsafeCell<()>,
}

/// All frames. Type-stable: memory and states live as long as the table. So a reader with a stale index touches no
/// freed memory, only a state that it will find changed.
pub(crate) struct Frames {
    memory: NonNull<u8>,
    states: Box<[FrameState]>,
    free: CachePadded<AtomicU64>,
    pages: Arc<dyn PageSource>,
}

// SAFETY: Only the table owns the memory behind the pointer. A frame's state decides who may access its content: one
// exclusive owner before publication, and after it shared readers that each hold a reference.
unsafe impl Send for Frames {}
// SAFETY: As for Send. All other fields are Sync.
unsafe impl Sync for Frames {}

impl Frames {
    /// Makes `count` free frames, where `count` is 1..=[`FRAMES_MAX`]. `None` if there is no memory.
    pub(crate) fn new(count: usize, pages: Arc<dyn PageSource>) -> Option<Frames> {
        let mut states = Vec::new();
        states.try_reserve_exact(count).ok()?;
        let end = u32::try_from(count).ok()?;
        for index in 0..end {
            states.push(FrameState {
                state: AtomicU32::new(0),
                next: AtomicU32::new(if index + 1 < end { index + 1 } else { NO_FRAME }),
                shadow: AtomicU64::new(0),
                #[cfg(loom)]
                access: loom::cell::UnsafeCell::new(()),
            });
        }
        let memory = pages.alloc(count)?;
        Some(Frames {
            memory,
            states: states.into_boxed_slice(),
            free: CachePadded::new(AtomicU64::new(0)),
            pages,
        })
    }

    /// Takes a free frame. `None` if all are in use.
    pub(crate) fn pop(&self) -> Option<FrameMut<'_>> {
        // Acquire pairs with the Release in `push`: the frame's last user is done with it.
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            let index = Self::index_of(head);
            let frame = self.states.get(index as usize)?;
            // The link may be stale if another thread pops this frame right now. Then the tag has changed and we retry.
            let next = frame.next.load(Ordering::Relaxed);
            let tag = (head >> TAG_SHIFT).wrapping_add(1) << TAG_SHIFT;
            let new = tag | u64::from(next);
            match self
                .free
                .compare_exchange_weak(head, new, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => {
                    // A plain store is enough: the frame had no reference, and only we make its first one. Release:
                    // whoever takes a reference by mistake sees that the frame's former slot word has changed.
                    frame.state.store(1, Ordering::Release);
                    return Some(FrameMut {
                        frames: self,
                        index,
                    });
                }
                Err(now) => head = now,
            }
        }
    }

    fn push(&self, index: u32, frame: &FrameState) {
        let mut head = self.free.load(Ordering::Relaxed);
        loop {
            frame.next.store(Self::index_of(head), Ordering::Relaxed);
            let new = (head & !INDEX_MASK) | u64::from(index);
            // AcqRel. Release hands the frame to `pop`. Acquire keeps visible what former pushes handed over.
            match self
                .free
                .compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Gives the memory of the free frames back, which stay free. Whoever wants a frame meanwhile may find none.
    /// Returns how many frames were free.
    pub(crate) fn give_memory_back(&self) -> usize {
        let mut indexes: Vec<u32> = std::iter::from_fn(|| self.pop())
            .map(|frame| ManuallyDrop::new(frame).index)
            .collect();
        indexes.sort_unstable();
        for run in indexes.chunk_by(|one, next| one + 1 == *next) {
            // SAFETY: `pop` gave us the only reference to each of these frames, which are neighbours in the run that
            // came from `alloc` of this source. The page's address is in that run.
            unsafe { self.pages.discard(self.page(run[0]).cast(), run.len()) };
        }
        // The last ones first, so that the first ones are taken first again.
        for &index in indexes.iter().rev() {
            let frame = &self.states[index as usize];
            // As in `release`, but free frames are wiped: what they hold now are the same zeros.
            frame.state.fetch_sub(1, Ordering::AcqRel);
            self.push(index, frame);
        }
        indexes.len()
    }

    const fn index_of(head: u64) -> u32 {
        (head & INDEX_MASK) as u32
    }

    /// Takes a reference on a frame that already has one. The caller must then read the word that gave it the index
    /// again. Only if that word still names the frame is the content what the word promised.
    #[inline]
    pub(crate) fn try_get(&self, index: u32) -> Option<FrameRef<'_>> {
        let frame = self.states.get(index as usize)?;
        // Acquire here and below, even where no reference is found. All changes to a slot word before the frame's last
        // release are then visible to the second look at that word.
        let mut state = frame.state.load(Ordering::Acquire);
        loop {
            if state & REFS_MASK == 0 {
                return None;
            }
            match frame.state.compare_exchange_weak(
                state,
                state + 1,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    return Some(FrameRef {
                        frames: self,
                        index,
                    });
                }
                Err(now) => state = now,
            }
        }
    }

    /// Gives one reference back. The last one wipes the frame and frees it.
    #[inline]
    pub(crate) fn release(&self, index: u32) {
        let Some(frame) = self.states.get(index as usize) else {
            return;
        };
        // AcqRel: our reads end before the frame is reused, and the last to release sees that all other reads have
        // ended.
        let before = frame.state.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(
            before & REFS_MASK != 0,
            "a frame without references was released"
        );
        if before & REFS_MASK == 1 {
            debug_assert!(
                before & CLAIM == 0,
                "a claimed frame lost its last reference"
            );
            // Nobody can get the frame now: it has no reference, and is not among the free ones yet.
            let mut wiped = ManuallyDrop::new(FrameMut {
                frames: self,
                index,
            });
            wiped.0.fill(0);
            self.push(index, frame);
        }
    }

    /// Claims the frame for writing out. False if somebody else has claimed it. The caller holds the lock of the slot's
    /// cluster.
    pub(crate) fn try_claim(&self, index: u32) -> bool {
        // Relaxed: the cluster lock orders claims.
        self.states
            .get(index as usize)
            .is_some_and(|frame| frame.state.fetch_or(CLAIM, Ordering::Relaxed) & CLAIM == 0)
    }

    /// Whether somebody is writing the frame out. The caller holds the lock of the slot's cluster.
    pub(crate) fn is_claimed(&self, index: u32) -> bool {
        self.states
            .get(index as usize)
            .is_some_and(|frame| frame.state.load(Ordering::Relaxed) & CLAIM != 0)
    }

    /// Gives the claim back. The caller holds the lock of the slot's cluster.
    pub(crate) fn unclaim(&self, index: u32) {
        if let Some(frame) = self.states.get(index as usize) {
            frame.state.fetch_and(!CLAIM, Ordering::Relaxed);
        }
    }

    /// The age that the slot keeps when the frame leaves it.
    pub(crate) fn shadow(&self, index: u32) -> Shadow {
        // Relaxed: the shadow was set before the index was published in a slot word, which the caller has read.
        let value = self
            .states
            .get(index as usize)
            .map_or(0, |f| f.shadow.load(Ordering::Relaxed));
        Shadow::truncated(value)
    }

    pub(crate) fn set_shadow(&self, index: u32, shadow: Shadow) {
        if let Some(frame) = self.states.get(index as usize) {
            frame.shadow.store(shadow.value(), Ordering::Relaxed);
        }
    }

    /// Number of frames in use now. Looks at all of them.
    pub(crate) fn used(&self) -> usize {
        self.states
            .iter()
            .filter(|f| f.state.load(Ordering::Relaxed) & REFS_MASK != 0)
            .count()
    }

    /// Bytes of the table itself, without the frames.
    pub(crate) fn table_bytes(&self) -> usize {
        size_of_val(&*self.states)
    }

    fn mark_ahead(&self, index: u32) {
        if let Some(frame) = self.states.get(index as usize) {
            // Relaxed: a hint. `pop` has cleared the mark.
            frame.state.fetch_or(AHEAD, Ordering::Relaxed);
        }
    }

    /// Clears the mark. True if it was set.
    fn unmark_ahead(&self, index: u32) -> bool {
        self.states.get(index as usize).is_some_and(|frame| {
            let is_marked = frame.state.load(Ordering::Relaxed) & AHEAD != 0;
            is_marked && frame.state.fetch_and(!AHEAD, Ordering::Relaxed) & AHEAD != 0
        })
    }

    fn page(&self, index: u32) -> NonNull<Page> {
        // SAFETY: The index in every FrameMut or FrameRef was checked against `states`, and the run has a page for each
        // state.
        unsafe { self.memory.cast::<Page>().add(index as usize) }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        // SAFETY: The run came from `alloc` of this source with this length. `&mut self` proves that no frame is in
        // use.
        unsafe { self.pages.free(self.memory, self.states.len()) };
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frames")
            .field("count", &self.states.len())
            .finish_non_exhaustive()
    }
}

/// A frame that nobody else can see. The caller fills it and gives it to `swap_out`. A dropped one becomes free again.
pub struct FrameMut<'a> {
    frames: &'a Frames,
    index: u32,
}

impl<'a> FrameMut<'a> {
    /// The page's address, so that a system call can fill it: `PAGE_BYTES` long, page aligned, valid while the frame is
    /// held.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.frames.page(self.index).as_ptr().cast()
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn set_shadow(&mut self, shadow: Shadow) {
        self.frames.set_shadow(self.index, shadow);
    }

    /// Marks that the page was read ahead.
    pub(crate) fn mark_read_ahead(&mut self) {
        self.frames.mark_ahead(self.index);
    }

    /// Hands the reference over to the swap cache, so that dropping no longer gives the frame back.
    pub(crate) fn into_cache(self) {
        let _handed_over = ManuallyDrop::new(self);
    }
}

impl Deref for FrameMut<'_> {
    type Target = Page;
    fn deref(&self) -> &Page {
        #[cfg(loom)]
        self.frames.states[self.index as usize].access.with(|_| ());
        // SAFETY: The page is valid and initialised, and we are its only user.
        unsafe { self.frames.page(self.index).as_ref() }
    }
}

impl DerefMut for FrameMut<'_> {
    fn deref_mut(&mut self) -> &mut Page {
        #[cfg(loom)]
        self.frames.states[self.index as usize]
            .access
            .with_mut(|_| ());
        // SAFETY: The page is valid and initialised; we are its only user, and `&mut self` makes this the only borrow.
        unsafe { self.frames.page(self.index).as_mut() }
    }
}

impl Drop for FrameMut<'_> {
    fn drop(&mut self) {
        self.frames.release(self.index);
    }
}

impl fmt::Debug for FrameMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FrameMut").field(&self.index).finish()
    }
}

/// A published frame, held in place for reading.
pub struct FrameRef<'a> {
    frames: &'a Frames,
    index: u32,
}

impl FrameRef<'_> {
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Whether the page was read ahead and nobody has asked for it so far. True only once.
    #[inline]
    pub(crate) fn is_first_use(&self) -> bool {
        self.frames.unmark_ahead(self.index)
    }
}

impl Deref for FrameRef<'_> {
    type Target = Page;
    #[inline]
    fn deref(&self) -> &Page {
        #[cfg(loom)]
        self.frames.states[self.index as usize].access.with(|_| ());
        // SAFETY: The page is valid and initialised. Nobody writes to it from publication until the last reference is
        // gone. Callers get a `FrameRef` only after the second look that `try_get` asks for.
        unsafe { self.frames.page(self.index).as_ref() }
    }
}

impl Drop for FrameRef<'_> {
    #[inline]
    fn drop(&mut self) {
        self.frames.release(self.index);
    }
}

impl fmt::Debug for FrameRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FrameRef").field(&self.index).finish()
    }
}

const _: () = assert!(PAGE_BYTES == size_of::<Page>());

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::base::pages::HeapPages;

    #[test]
    fn frames_run_out_and_come_back() {
        let pages = Arc::new(HeapPages::new());
        let frames = Frames::new(3, pages.clone()).expect("memory");
        let held: Vec<_> = (0..3).map(|_| frames.pop().expect("free")).collect();
        let mut indexes: Vec<_> = held.iter().map(FrameMut::index).collect();
        indexes.sort_unstable();
        assert_eq!(indexes, [0, 1, 2]);
        assert!(frames.pop().is_none());
        assert_eq!(frames.used(), 3);
        drop(held);
        assert_eq!(frames.used(), 0);
        assert!(frames.pop().is_some());
        drop(frames);
        assert_eq!(pages.pages_out(), 0);
    }

    #[test]
    fn a_free_frame_cannot_be_referenced_and_the_last_reference_frees() {
        let frames = Frames::new(1, Arc::new(HeapPages::new())).expect("memory");
        assert!(frames.try_get(0).is_none());
        assert!(frames.try_get(1).is_none(), "beyond the table");
        let mut frame = frames.pop().expect("free");
        frame.0[PAGE_BYTES - 1] = 7;
        frame.into_cache();
        let reader = frames.try_get(0).expect("published");
        frames.release(0);
        assert!(frames.pop().is_none(), "a reader holds it");
        assert_eq!(reader.0[PAGE_BYTES - 1], 7);
        drop(reader);
        assert!(frames.pop().is_some());
    }

    #[test]
    fn what_a_frame_held_is_gone_when_it_is_free() {
        let frames = Frames::new(1, Arc::new(HeapPages::new())).expect("memory");
        let mut frame = frames.pop().expect("free");
        frame.0.fill(7);
        frame.into_cache();
        let reader = frames.try_get(0).expect("published");
        frames.release(0);
        assert_eq!(reader.0, [7; PAGE_BYTES]);
        drop(reader);
        assert!(frames.pop().expect("free").is_zero());
        frames.pop().expect("free").0.fill(7);
        assert!(frames.pop().expect("free").is_zero(), "never published");
    }

    #[test]
    fn free_frames_give_their_memory_back_and_stay_free() {
        let frames = Frames::new(4, Arc::new(HeapPages::new())).expect("memory");
        let held: Vec<_> = (0..4).map(|_| frames.pop().expect("free")).collect();
        let mut held = held.into_iter();
        let mut kept = held.nth(1).expect("four");
        kept.0.fill(7);
        drop(held);
        assert_eq!(frames.give_memory_back(), 3);
        assert!(kept.0.iter().all(|byte| *byte == 7), "it was not free");
        assert_eq!(frames.used(), 1);
        let again: Vec<_> = std::iter::from_fn(|| frames.pop()).collect();
        assert_eq!(again.len(), 3);
        assert!(again.iter().all(|frame| frame.is_zero()));
        assert_eq!(frames.give_memory_back(), 0);
    }

    #[test]
    fn one_claim_at_a_time_and_references_do_not_disturb_it() {
        let frames = Frames::new(1, Arc::new(HeapPages::new())).expect("memory");
        frames.pop().expect("free").into_cache();
        assert!(!frames.is_claimed(0));
        assert!(frames.try_claim(0));
        assert!(!frames.try_claim(0));
        drop(frames.try_get(0));
        assert!(frames.is_claimed(0));
        frames.unclaim(0);
        assert!(frames.try_claim(0));
        frames.unclaim(0);
        frames.release(0);
        assert_eq!(frames.used(), 0);
    }
}
