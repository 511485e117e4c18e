//! The frame table: a fixed number of frames, their reference counts and their claim bits.
//!
//! A frame's state is one word: `[31]` the claim, `[30]` that it was read ahead and nobody has asked for it yet,
//! `[29:0]` references. Free frames have none and are linked into a
//! lock-free stack. A [`FrameMut`] holds the only reference and may write; once its index stands in a slot word the
//! swap cache holds a reference and the content never changes again, so readers that took a reference of their own
//! ([`Frames::try_get`]) copy from it without a lock. Nobody takes a reference on a frame that has none.
//! The claim (who is writing the frame out) is taken and given back only under the lock of the slot's cluster.

use std::fmt;
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
/// The largest number of frames: every index fits a slot word, and [`NO_FRAME`] is none.
pub(crate) const FRAMES_MAX: usize = NO_FRAME as usize;

/// The stack's head is an index and, above it, a tag that changes with every pop: a pop that slept through another pop
/// and push of the same frame fails its compare-exchange.
const TAG_SHIFT: u32 = 32;
const INDEX_MASK: u64 = (1 << TAG_SHIFT) - 1;

struct FrameState {
    state: AtomicU32,
    /// Next in the stack of free frames.
    next: AtomicU32,
    /// The age to keep once the frame leaves its slot.
    shadow: AtomicU64,
    /// Lets loom see who reads and who writes the content, which lies outside its view.
    #[cfg(loom)]
    access: loom::cell::UnsafeCell<()>,
}

/// All frames. Type-stable: memory and states live as long as the table, so a reader with a stale index touches no
/// freed memory, only a state that it will find changed.
pub(crate) struct Frames {
    memory: NonNull<u8>,
    states: Box<[FrameState]>,
    free: CachePadded<AtomicU64>,
    pages: Arc<dyn PageSource>,
}

// SAFETY: The memory behind the pointer belongs to the table alone. Access to a frame's content follows its state: one
// exclusive owner before publication, shared readers with a reference each after.
unsafe impl Send for Frames {}
// SAFETY: As above; all other fields are Sync.
unsafe impl Sync for Frames {}

impl Frames {
    /// `count` frames, all free; `None` if there is no memory. `count` is 1..=[`FRAMES_MAX`].
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

    /// Takes a free frame, or `None` if all are in use.
    pub(crate) fn pop(&self) -> Option<FrameMut<'_>> {
        // Acquire pairs with the Release of `push`: the frame's last user is done with it.
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            let index = Self::index_of(head);
            let frame = self.states.get(index as usize)?;
            // May be stale, if another thread pops this frame right now; then the tag has changed and we retry.
            let next = frame.next.load(Ordering::Relaxed);
            let tag = (head >> TAG_SHIFT).wrapping_add(1) << TAG_SHIFT;
            let new = tag | u64::from(next);
            match self
                .free
                .compare_exchange_weak(head, new, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => {
                    // No reference existed and nobody makes the first one but us, so a store does. Release: whoever
                    // takes a reference by mistake sees that the frame's former slot word has changed.
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
            // AcqRel: Release hands the frame to `pop`, Acquire keeps what former pushes handed over in sight of it.
            match self
                .free
                .compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    const fn index_of(head: u64) -> u32 {
        (head & INDEX_MASK) as u32
    }

    /// Takes a reference on a frame that has one already. The caller must then look again whether the word that it had
    /// the index from still says so: only then is the content what that word promised.
    #[inline]
    pub(crate) fn try_get(&self, index: u32) -> Option<FrameRef<'_>> {
        let frame = self.states.get(index as usize)?;
        // Acquire, here and below, also where no reference is found: every change to a slot word that came before the
        // frame's last release is visible to the second look at that word.
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

    /// Gives back one reference; the last one frees the frame.
    #[inline]
    pub(crate) fn release(&self, index: u32) {
        let Some(frame) = self.states.get(index as usize) else {
            return;
        };
        // AcqRel: our reads are done before the frame is reused, and the last one sees everybody's.
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
            self.push(index, frame);
        }
    }

    /// Claims the frame for writing out; false if somebody has. Under the lock of the slot's cluster.
    pub(crate) fn try_claim(&self, index: u32) -> bool {
        // Relaxed: the cluster lock orders claims.
        self.states
            .get(index as usize)
            .is_some_and(|frame| frame.state.fetch_or(CLAIM, Ordering::Relaxed) & CLAIM == 0)
    }

    /// Whether somebody writes the frame out. Under the lock of the slot's cluster.
    pub(crate) fn is_claimed(&self, index: u32) -> bool {
        self.states
            .get(index as usize)
            .is_some_and(|frame| frame.state.load(Ordering::Relaxed) & CLAIM != 0)
    }

    /// Gives the claim back. Under the lock of the slot's cluster.
    pub(crate) fn unclaim(&self, index: u32) {
        if let Some(frame) = self.states.get(index as usize) {
            frame.state.fetch_and(!CLAIM, Ordering::Relaxed);
        }
    }

    /// The age that the slot is to keep when the frame leaves it.
    pub(crate) fn shadow(&self, index: u32) -> Shadow {
        // Relaxed: set before the index was published in a slot word, which the caller has read.
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

    /// How many frames are in use now. Looks at all of them.
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
            // Relaxed: a hint. `pop` has cleared it.
            frame.state.fetch_or(AHEAD, Ordering::Relaxed);
        }
    }

    /// Takes the mark away; true if it was there.
    fn unmark_ahead(&self, index: u32) -> bool {
        self.states.get(index as usize).is_some_and(|frame| {
            let is_marked = frame.state.load(Ordering::Relaxed) & AHEAD != 0;
            is_marked && frame.state.fetch_and(!AHEAD, Ordering::Relaxed) & AHEAD != 0
        })
    }

    fn page(&self, index: u32) -> NonNull<Page> {
        // SAFETY: Every index in a FrameMut or FrameRef was checked against `states`, and the run has a page for each.
        unsafe { self.memory.cast::<Page>().add(index as usize) }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        // SAFETY: The run came from `alloc` of this source with this length; `&mut self` proves that no frame is in
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

/// A frame that nobody else can see: fill it, then give it to `swap_out`. Goes back to the free frames when dropped.
pub struct FrameMut<'a> {
    frames: &'a Frames,
    index: u32,
}

impl<'a> FrameMut<'a> {
    /// The page's address, for a system call to fill it: `PAGE_BYTES`, page aligned, valid while the frame is held.
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

    /// Notes that its page was read ahead.
    pub(crate) fn mark_read_ahead(&mut self) {
        self.frames.mark_ahead(self.index);
    }

    /// Hands the reference over to the swap cache: the frame is no longer given back on drop.
    pub(crate) fn into_cache(self) {
        let _handed_over = std::mem::ManuallyDrop::new(self);
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

    /// Whether its page was read ahead and nobody has asked so far. True once.
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
        // SAFETY: The page is valid and initialised, and content is not written from publication until the last
        // reference is gone. `FrameRef`s reach callers only after the second look that `try_get` asks for.
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
