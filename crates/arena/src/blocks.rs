//! Allocations of whole pages whose user does not know their size when he gives them back. Pure data; its user locks
//! it.
//!
//! Like what is known of slabs it lies outside of the arena: to free brings no page back, and a program that writes
//! past its memory does not destroy it.

use std::collections::BTreeMap;
use std::ops::Range;

/// What gave an allocation out, and so takes it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An allocation that can grow and shrink.
    Block,
    /// Pages that were asked for as pages.
    Mapping,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Blocks {
    /// By the first page: the end, and the kind.
    ends: BTreeMap<usize, (usize, Kind)>,
}

impl Blocks {
    /// Notes one, or that one has another end now.
    pub fn set(&mut self, pages: &Range<usize>, kind: Kind) {
        self.ends.insert(pages.start, (pages.end, kind));
    }

    /// The pages of the one that begins here.
    pub fn at(&self, first: usize, kind: Kind) -> Option<Range<usize>> {
        let &(end, found) = self.ends.get(&first)?;
        (found == kind).then_some(first..end)
    }

    /// The pages of the one that this page is of.
    pub fn holding(&self, page: usize) -> Option<Range<usize>> {
        let (&start, &(end, _)) = self.ends.range(..=page).next_back()?;
        (page < end).then_some(start..end)
    }

    /// Forgets the one that begins here, and returns its pages.
    pub fn remove(&mut self, first: usize, kind: Kind) -> Option<Range<usize>> {
        let pages = self.at(first, kind)?;
        self.ends.remove(&first);
        Some(pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_by_their_start_and_by_their_pages() {
        let mut blocks = Blocks::default();
        blocks.set(&(4..8), Kind::Block);
        blocks.set(&(8..9), Kind::Mapping);
        assert_eq!(blocks.at(4, Kind::Block), Some(4..8));
        assert_eq!(blocks.at(5, Kind::Block), None);
        assert_eq!(blocks.at(8, Kind::Block), None);
        let held: Vec<_> = (3..10).map(|page| blocks.holding(page)).collect();
        let block = Some(4..8);
        let expected = [
            None,
            block.clone(),
            block.clone(),
            block.clone(),
            block,
            Some(8..9),
            None,
        ];
        assert_eq!(held, expected);
        blocks.set(&(4..6), Kind::Block);
        assert_eq!(blocks.holding(6), None);
        assert_eq!(blocks.remove(4, Kind::Mapping), None);
        assert_eq!(blocks.remove(4, Kind::Block), Some(4..6));
        assert_eq!(blocks.remove(4, Kind::Block), None);
    }
}
