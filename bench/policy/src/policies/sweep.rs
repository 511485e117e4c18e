//! vswap's own: a hand sweeps in the order of addresses, and passes over what came back early twice in a row. It sees
//! no touch of a page in memory. Heat and distance are computed by the code of the pager (`policy/working_set.rs`).

use vswap_pager::working_set::{Heat, Shadow, WorkingSet};

use super::Policy;

/// Where each page is, and the hand.
#[derive(Debug)]
pub struct Sweep {
    places: Vec<Place>,
    at: usize,
    set: WorkingSet,
    room: u64,
    has_heat: bool,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Absent,
    In { heat: Heat, laps: u8 },
    Out(Shadow),
}

impl Sweep {
    /// The policy of the pager.
    pub fn with_heat(pages: usize, room: usize) -> Sweep {
        Sweep {
            places: vec![Place::Absent; pages],
            at: 0,
            set: WorkingSet::default(),
            room: room as u64,
            has_heat: true,
        }
    }

    /// The hand alone: nothing is passed over.
    pub fn without_heat(pages: usize, room: usize) -> Sweep {
        Sweep {
            has_heat: false,
            ..Sweep::with_heat(pages, room)
        }
    }

    /// The next page that the hand takes, going once around.
    fn lap(&mut self, spares: bool) -> Option<(usize, Heat)> {
        for _ in 0..self.places.len() {
            let page = self.at;
            self.at = (page + 1) % self.places.len();
            match &mut self.places[page] {
                Place::In { laps, .. } if *laps > 0 && spares => *laps -= 1,
                Place::In { heat, .. } => return Some((page, *heat)),
                Place::Out(_) | Place::Absent => {}
            }
        }
        None
    }
}

impl Policy for Sweep {
    fn touched(&mut self, _: usize, _: usize) {}

    fn came(&mut self, page: usize, _: usize) {
        let heat = match self.places[page] {
            Place::Out(shadow) if self.has_heat => self.set.come_back(shadow, self.room),
            _ => Heat::COLD,
        };
        let laps = heat.laps();
        self.places[page] = Place::In { heat, laps };
    }

    fn leave(&mut self) -> usize {
        let found = self.lap(true).or_else(|| self.lap(false));
        let (page, heat) = found.expect("a page is in memory");
        self.places[page] = Place::Out(self.set.leave(heat));
        page
    }
}
