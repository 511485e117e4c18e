//! CLOCK: a hand goes round the pages in memory in the order in which they came, and passes over once those that were
//! touched since. It takes a bit for each page that the processor sets. Kernels have that, vswap has not.

use std::collections::VecDeque;

use super::Policy;

/// Pages in memory, and which of them were touched since the hand came by.
#[derive(Debug)]
pub struct Clock {
    round: VecDeque<usize>,
    is_touched: Vec<bool>,
}

impl Clock {
    /// With nothing in memory.
    pub fn new(pages: usize) -> Clock {
        Clock {
            round: VecDeque::new(),
            is_touched: vec![false; pages],
        }
    }
}

impl Policy for Clock {
    fn touched(&mut self, page: usize, _: usize) {
        self.is_touched[page] = true;
    }

    fn came(&mut self, page: usize, _: usize) {
        self.is_touched[page] = false;
        self.round.push_back(page);
    }

    fn leave(&mut self) -> usize {
        loop {
            let page = self.round.pop_front().expect("a page is in memory");
            if !std::mem::take(&mut self.is_touched[page]) {
                return page;
            }
            self.round.push_back(page);
        }
    }
}
