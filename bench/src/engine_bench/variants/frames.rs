//! Frames for the variants, like the engine's: reference counts and a lock-free stack of free frames.
//!
//! The frames have no content. The variants differ in how a slot leads to a frame's number.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

/// End of the stack.
const NO_FRAME: u32 = u32::MAX;
/// Above the head's index is a tag that changes with every pop. It guards against the same frame coming back in
/// between.
const TAG_SHIFT: u32 = 32;
const INDEX_MASK: u64 = (1 << TAG_SHIFT) - 1;

#[derive(Debug)]
struct Frame {
    refs: AtomicU32,
    next: AtomicU32,
}

/// All frames.
#[derive(Debug)]
pub(crate) struct Frames {
    frames: Box<[Frame]>,
    head: CachePadded<AtomicU64>,
}

impl Frames {
    pub(crate) fn new(count: u32) -> Frames {
        let next = |index| {
            if index + 1 < count {
                index + 1
            } else {
                NO_FRAME
            }
        };
        let frame = |index| Frame {
            refs: AtomicU32::new(0),
            next: AtomicU32::new(next(index)),
        };
        Frames {
            frames: (0..count).map(frame).collect(),
            head: CachePadded::new(AtomicU64::new(0)),
        }
    }

    /// Takes a free frame with one reference.
    pub(crate) fn pop(&self) -> Option<u32> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let index = index_of(head);
            let frame = self.frames.get(index as usize)?;
            let tag = (head >> TAG_SHIFT).wrapping_add(1) << TAG_SHIFT;
            let new = tag | u64::from(frame.next.load(Ordering::Relaxed));
            match self
                .head
                .compare_exchange_weak(head, new, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => {
                    frame.refs.store(1, Ordering::Release);
                    return Some(index);
                }
                Err(now) => head = now,
            }
        }
    }

    /// Adds a reference to a frame that has one.
    pub(crate) fn try_get(&self, index: u32) -> bool {
        let Some(frame) = self.frames.get(index as usize) else {
            return false;
        };
        let mut refs = frame.refs.load(Ordering::Acquire);
        while refs > 0 {
            let weak = Ordering::Acquire;
            match frame.refs.compare_exchange_weak(refs, refs + 1, weak, weak) {
                Ok(_) => return true,
                Err(now) => refs = now,
            }
        }
        false
    }

    /// Gives a reference back. The last one frees the frame.
    pub(crate) fn release(&self, index: u32) {
        let Some(frame) = self.frames.get(index as usize) else {
            return;
        };
        if frame.refs.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            frame.next.store(index_of(head), Ordering::Relaxed);
            let new = (head & !INDEX_MASK) | u64::from(index);
            match self
                .head
                .compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&*self.frames) as u64
    }

    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        let used = |frame: &&Frame| frame.refs.load(Ordering::Relaxed) > 0;
        self.frames.iter().filter(used).count()
    }
}

const fn index_of(head: u64) -> u32 {
    (head & INDEX_MASK) as u32
}
