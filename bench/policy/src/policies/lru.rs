//! LRU: the page leaves that was touched longest ago. It takes the moment of each touch, which no kernel has either.

use std::collections::BTreeMap;

use super::Policy;

/// Pages in memory by their last touch.
#[derive(Debug)]
pub struct Lru {
    order: BTreeMap<usize, usize>,
    last: Vec<usize>,
}

impl Lru {
    /// With nothing in memory.
    pub fn new(pages: usize) -> Lru {
        Lru {
            order: BTreeMap::new(),
            last: vec![0; pages],
        }
    }
}

impl Policy for Lru {
    fn touched(&mut self, page: usize, at: usize) {
        self.order.remove(&self.last[page]);
        self.came(page, at);
    }

    fn came(&mut self, page: usize, at: usize) {
        self.last[page] = at;
        self.order.insert(at, page);
    }

    fn leave(&mut self) -> usize {
        let (_, page) = self.order.pop_first().expect("a page is in memory");
        page
    }
}
