//! What moves or packs pages behind their entries, and where the model's pages are afterwards.

use vswap_engine::{Codec, PAGE_BYTES};

use super::{Run, Where};

impl Run {
    /// Writes pages back. Whatever comes of it, each page is in the pool or in an area.
    pub(super) fn write_back(&mut self, pages: usize) {
        let done = self.engine.write_back(1, pages, &mut self.scratch);
        let (mut went, mut stays, mut limited) = (0, 0, 0);
        for (&entry, page) in &mut self.model {
            if page.place == Where::Stored {
                if self.engine.is_physical(entry) {
                    assert!(self.groups.writes_back(page.group));
                    (page.place, page.codec) = (Where::Area, self.codec);
                    went += 1;
                } else {
                    stays += 1;
                    limited += usize::from(self.groups.is_limited(page.group));
                }
            }
        }
        assert_eq!(done.pages, went);
        // Nobody else uses the pages, so all that should go has gone, or there is a reason.
        assert_eq!((done.warm, done.damaged), (0, 0));
        assert!(done.refused == 0 || self.requests_left() == 0);
        assert!(done.limited == 0 || limited > 0);
        if done.homeless > 0 {
            self.expect_full();
        } else if done.refused == 0 {
            // Pages kept by the limits of their groups may be tried more than once.
            let tried = done.pages + done.limited;
            assert!(tried >= pages.min(went + stays) && tried <= pages);
        }
    }

    /// Packs pages again. They stay in the pool, and each is as it was, or packed by zstd and smaller.
    pub(super) fn repack(&mut self, pages: usize) {
        let before_bytes = self.engine.stats().payload_bytes;
        let done = self.engine.repack(pages, &mut self.scratch);
        // Nobody else uses the pages.
        assert_eq!((done.warm, done.damaged), (0, 0));
        assert!(done.pages + done.dense + done.full <= pages);
        let mut packed_again = 0;
        for (&entry, page) in &mut self.model {
            let packed = self.engine.packed_as(entry);
            assert_eq!(packed.is_some(), page.place == Where::Stored);
            if packed.is_some_and(|(codec, _)| codec == Codec::Zstd && page.codec != codec) {
                page.codec = Codec::Zstd;
                packed_again += 1;
            }
        }
        assert_eq!(done.pages, packed_again);
        let after_bytes = self.engine.stats().payload_bytes;
        assert_eq!(before_bytes - after_bytes, done.saved_bytes);
        assert!(done.saved_bytes >= done.pages as u64);
    }

    /// Demotes pages. They change areas, and nothing else changes.
    pub(super) fn demote(&mut self, pages: usize) {
        let before = self.used();
        let done = self.engine.demote(2, 1, pages, &mut self.scratch);
        // Nobody else uses them.
        assert!(done.pages <= pages && done.held == 0, "{done:?}");
        assert!(done.unreadable + done.refused == 0 || self.requests_left() == 0);
        let after = self.used();
        let went_bytes: u64 = before
            .iter()
            .zip(&after)
            .map(|(before, after)| before.saturating_sub(*after))
            .sum();
        let went = went_bytes / PAGE_BYTES as u64;
        assert!(went <= done.pages as u64 && (went > 0) == (done.pages > 0));
    }

    /// Bytes in use in each area.
    fn used(&self) -> Vec<u64> {
        let areas = self.engine.areas();
        areas.iter().map(|area| area.used_bytes).collect()
    }
}
