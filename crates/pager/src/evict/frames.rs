//! The frames that a window is copied into.

use vswap_engine::{AllocError, Placed};

use super::{Evictor, WINDOW_PAGES};
use crate::base::threads;
use crate::evict::write_out;

impl<'a> Evictor<'a> {
    /// Frames for a window, as many as there are, each with its slot. None if the writers are behind, or if there is no
    /// slot: a page that would find none stays where it is. Comparing a page with a proposal takes a frame too. Some
    /// frames are kept for that, also when nothing can be written out. What the window does not use becomes free.
    pub(super) fn frames(&mut self, picked: bool) -> Vec<Placed<'a>> {
        let (evicting, serving) = (self.evicting, self.serving);
        let mut frames = Vec::with_capacity(WINDOW_PAGES);
        let mut most = if picked {
            evicting.part.frames_left(evicting.write_queue.pending())
        } else {
            WINDOW_PAGES
        };
        while frames.len() < WINDOW_PAGES {
            let frame = (frames.len() < most).then(|| serving.engine.frame());
            match frame.flatten() {
                Some(frame) => frames.push(frame),
                // The writers are behind, so help them.
                None if write_out::help(evicting) => {
                    most = evicting.part.frames_left(evicting.write_queue.pending());
                }
                None => break,
            }
        }
        let (cpu, group) = (threads::current_cpu(), evicting.part.group);
        let (placed, error) = serving
            .engine
            .place_all(cpu, frames, group, evicting.mapping);
        if let Some(error) = error.filter(|_| placed.is_empty()) {
            self.found_no_slot(error);
        }
        placed
    }

    /// No page can leave, because the areas have no slot left, the group may not have more, or there is no memory for
    /// the tables of more virtual slots. So shed the entries of resident pages, which hold slots.
    fn found_no_slot(&self, error: AllocError) {
        let is_limited = error == AllocError::Limited;
        self.serving.limit.note_full(true, is_limited);
        let spaces = &self.evicting.listening.spaces;
        self.serving.references.shed_kept(spaces, |_| true);
    }
}
