//! Whose pages want slots, and how many of them they may have in each tier.
//!
//! A group can be limited to so much of a tier. So before slots of an area are taken for its pages, the group is
//! charged for them in the area's tier, for as many as it may have. What it is refused goes past that tier. A tier that
//! gives nothing more is not asked again for the same pages.
//!
//! Pages that move from one area to another are charged for the tier that they leave until they have left it. Within a
//! tier their charge goes with them, so a group at its limit can be moved there.
//!
//! A directly mapped slot is charged after it was taken (`verbs/charge.rs`), so here it is only looked whether its
//! group has room.

use std::cell::Cell;

use crate::area::OfGroup;
use crate::base::pages::PAGE_BYTES;
use crate::groups::{GroupIndex, Groups, Resource};
use crate::words::tier::{TierId, TierSet};

/// Those whose pages want slots, all of one group.
#[derive(Debug)]
pub(crate) struct Payer<'a> {
    by: By<'a>,
    /// Tiers of which they may have no more.
    past: Cell<TierSet>,
}

#[derive(Debug)]
enum By<'a> {
    /// Nobody is charged.
    #[cfg(all(test, not(any(loom, shuttle))))]
    Nobody,
    /// Pages that are in swap already.
    Pages {
        groups: &'a Groups,
        group: GroupIndex,
        /// The tier of the slots that they leave.
        from: Option<TierId>,
    },
    /// A page that is about to get a directly mapped slot. `None` is the root.
    Mapped(Option<OfGroup<'a>>),
}

impl<'a> Payer<'a> {
    fn new(by: By<'a>) -> Payer<'a> {
        Payer {
            by,
            past: Cell::new(TierSet::default()),
        }
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn nobody() -> Payer<'a> {
        Payer::new(By::Nobody)
    }

    /// Pages of a group, which stays for as long as they do. `from` is the tier of the slots that they leave, if they
    /// leave slots.
    pub(crate) fn pages(groups: &'a Groups, group: GroupIndex, from: Option<TierId>) -> Payer<'a> {
        Payer::new(By::Pages {
            groups,
            group,
            from,
        })
    }

    /// A page that is about to get a directly mapped slot.
    pub(crate) fn mapped(group: Option<OfGroup<'a>>) -> Payer<'a> {
        Payer::new(By::Mapped(group))
    }

    /// The group to enter for the slots, if the slots themselves are to have one.
    pub(super) fn of_group(&self) -> Option<OfGroup<'a>> {
        match self.by {
            By::Mapped(group) => group,
            _ => None,
        }
    }

    /// From here on no slot of this tier will do.
    pub(crate) fn go_past(&self, tier: TierId) {
        self.past.set(self.past.get().with(tier));
    }

    /// Whether some tier gave them nothing because of a limit.
    pub(crate) fn was_refused(&self) -> bool {
        !self.past.get().is_empty()
    }

    /// How many of `pages` slots in this tier they may have. The group is charged for these.
    pub(super) fn admit(&self, tier: TierId, pages: usize) -> usize {
        if self.past.get().has(tier) {
            return 0;
        }
        let admitted = match self.by {
            #[cfg(all(test, not(any(loom, shuttle))))]
            By::Nobody => pages,
            By::Pages { from, .. } if from == Some(tier) => pages,
            By::Pages { groups, group, .. } => {
                let bytes = (pages * PAGE_BYTES) as u64;
                let unit_bytes = PAGE_BYTES as u64;
                let charged = groups.charge(group, Resource::Tier(tier), bytes, unit_bytes);
                // No more than was asked for.
                usize::try_from(charged / unit_bytes).unwrap_or(pages)
            }
            By::Mapped(None) => pages,
            By::Mapped(Some(OfGroup { groups, id })) => {
                if groups.has_tier_room(id.index(), tier) {
                    pages
                } else {
                    0
                }
            }
        };
        if admitted == 0 {
            self.go_past(tier);
        }
        admitted
    }

    /// Takes back what was charged for slots that were not taken.
    pub(super) fn take_back(&self, tier: TierId, pages: usize) {
        if let By::Pages {
            groups,
            group,
            from,
        } = self.by
            && from != Some(tier)
        {
            groups.uncharge(group, Resource::Tier(tier), (pages * PAGE_BYTES) as u64);
        }
    }
}
