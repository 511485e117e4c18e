//! MIN (Belady 1966): the page leaves that is touched again last. Nobody can do better, and nobody can do it, because
//! it takes the future.

use std::collections::BinaryHeap;

use super::Policy;
use crate::trace::Trace;

/// Knows the whole trace.
#[derive(Debug)]
pub struct Min {
    /// For each touch, which one touches the page next. The number of touches stands for none.
    next: Vec<usize>,
    /// Pages in memory by their next touch. An entry is out of date if its page was touched since.
    order: BinaryHeap<(usize, usize)>,
    /// The next touch of each page in memory.
    due: Vec<Option<usize>>,
}

impl Min {
    /// With the future that the trace has.
    pub fn new(trace: &Trace) -> Min {
        let mut last = vec![trace.touches.len(); trace.pages];
        let mut next = vec![0; trace.touches.len()];
        for (at, &page) in trace.touches.iter().enumerate().rev() {
            next[at] = last[page];
            last[page] = at;
        }
        Min {
            next,
            order: BinaryHeap::new(),
            due: vec![None; trace.pages],
        }
    }
}

impl Policy for Min {
    fn touched(&mut self, page: usize, at: usize) {
        self.came(page, at);
    }

    fn came(&mut self, page: usize, at: usize) {
        self.due[page] = Some(self.next[at]);
        self.order.push((self.next[at], page));
    }

    fn leave(&mut self) -> usize {
        loop {
            let (due, page) = self.order.pop().expect("a page is in memory");
            if self.due[page] == Some(due) {
                self.due[page] = None;
                return page;
            }
        }
    }
}
