//! The frames that a window is copied into.

use vswap_engine::{AllocError, FrameMut, Mapping};

use super::carried::Carrier;
use super::{Evictor, WINDOW_PAGES};
use crate::base::threads;
use crate::evict::write_out;

impl<'a> Evictor<'a> {
    /// Frames for a window, as many as there are. None if the writers are behind, or if no directly mapped page would
    /// find a slot. Comparing a page with a proposal takes a frame too. Some frames are kept for that, also when
    /// nothing can be written out.
    pub(super) fn frames(&mut self, picked: bool) -> Vec<Carrier<'a>> {
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
                Some(frame) => match self.carrier(frame) {
                    Ok(carrier) => frames.push(carrier),
                    Err(error) => {
                        if frames.is_empty() {
                            self.found_no_slot(error);
                        }
                        break;
                    }
                },
                // The writers are behind, so help them.
                None if write_out::help(evicting) => {
                    most = evicting.part.frames_left(evicting.write_queue.pending());
                }
                None => break,
            }
        }
        frames
    }

    /// A frame for one page. A directly mapped page gets its slot before it moves. Without a slot it stays.
    fn carrier(&self, frame: FrameMut<'a>) -> Result<Carrier<'a>, AllocError> {
        match self.evicting.mapping {
            Mapping::Virtual => Ok(Carrier::Frame(frame)),
            Mapping::Direct => {
                let (engine, group) = (&self.serving.engine, self.evicting.part.group);
                let cpu = threads::current_cpu();
                let placed = engine.place(cpu, frame, group, Mapping::Direct);
                placed.map(Carrier::Placed).map_err(|(_, error)| error)
            }
        }
    }

    /// No page can leave, because the areas have no slot left or the group may not have more. So shed the entries of
    /// resident pages, which hold slots.
    fn found_no_slot(&self, error: AllocError) {
        let is_limited = error == AllocError::Limited;
        self.serving.limit.note_full(true, is_limited);
        let spaces = &self.evicting.listening.spaces;
        self.serving.references.shed_kept(spaces, |_| true);
    }
}
