//! Kin: the spaces that came of one program image by forks. They share pages, in memory and in swap.
//!
//! Moving a shared page out of one process frees nothing: the kernel first makes a copy for that process, and the page
//! stays with the others. Memory becomes free only when all of them have given the page up. So the evictor that meets a
//! shared page proposes it to its kin, with the entry it got: each gives the page up as well, and takes the same entry
//! if its content is the same. From meeting it to proposing it that evictor leads the page, and its kin leave it alone:
//! if two moved it out at the same time it would be stored twice for good. The locks of this file are held for list
//! operations, that of the proposals also while entries are counted once more; no other lock of the pager is taken
//! under them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use vswap_engine::Entry;

use crate::base::lock::{Mutex, Row};
use crate::run::core::Core;
use crate::space::Space;

/// Proposals that wait for one space, at the most: what is more is left to its own hand. 64 KiB, which a process of
/// many that share pages may cost.
const PROPOSALS_MAX: usize = 4096;

/// The spaces of one family.
#[derive(Debug)]
pub struct Kin {
    members: Mutex<Vec<Member>>,
}

#[derive(Debug)]
struct Member {
    id: u64,
    space: Weak<Space>,
    /// Pages that it is about to move out and to propose, in ascending order.
    leads: Vec<u64>,
}

impl Default for Kin {
    fn default() -> Kin {
        Kin {
            members: Mutex::new(Row::Innermost, "the members of a family", Vec::new()),
        }
    }
}

/// A page that another member has moved out, and a reference to its entry.
#[derive(Debug)]
pub struct Proposal {
    /// Number of the page.
    pub page: u64,
    /// What the other member's page held; may differ from this one's.
    pub entry: Entry,
}

/// What was proposed to one space.
#[derive(Debug)]
pub struct Proposals {
    waiting: Mutex<Vec<Proposal>>,
}

impl Default for Proposals {
    fn default() -> Proposals {
        Proposals {
            waiting: Mutex::new(Row::Proposals, "a space's proposals", Vec::new()),
        }
    }
}

impl Kin {
    /// One more member.
    pub fn join(&self, space: &Arc<Space>) {
        let mut members = self.members.lock();
        members.retain(|member| member.space.strong_count() > 0);
        members.push(Member {
            id: space.id,
            space: Arc::downgrade(space),
            leads: Vec::new(),
        });
    }

    /// From now on `own` leads those of `pages`, which ascend, that nobody else leads; the others are taken out. Who
    /// stops moving pages out, also for ever, leads none from then on.
    pub fn lead(&self, own: u64, pages: &mut Vec<u64>) {
        let mut members = self.members.lock();
        let is_led = |page: &u64| {
            let mut others = members.iter().filter(|member| member.id != own);
            others.any(|other| other.leads.binary_search(page).is_ok())
        };
        pages.retain(|page| !is_led(page));
        if let Some(member) = members.iter_mut().find(|member| member.id == own) {
            member.leads.clone_from(pages);
        }
    }

    /// Members other than `own` that can move pages out.
    fn others(&self, own: u64) -> Vec<Arc<Space>> {
        let members = self.members.lock();
        let living = members.iter().filter_map(|member| member.space.upgrade());
        let able = |space: &Arc<Space>| {
            space.id != own && space.is_active() && space.evictor_started.load(Ordering::Acquire)
        };
        living.filter(able).collect()
    }

    /// Propose pages that `own` has moved out to all others.
    pub fn propose(&self, core: &Core, own: u64, pages: &[(u64, Entry)]) {
        if pages.is_empty() {
            return;
        }
        for space in self.others(own) {
            if space.proposals.add(core, &space, pages) {
                space.evictor.ask(|wanted| wanted.proposals = true);
            }
        }
    }
}

impl Proposals {
    /// Take references and queue; true when there is something to do.
    fn add(&self, core: &Core, space: &Space, pages: &[(u64, Entry)]) -> bool {
        let mut waiting = self.waiting.lock();
        // Looked at under the lock: whoever ends the space drops what waits afterwards.
        if space.has_ended() || waiting.len() + pages.len() > PROPOSALS_MAX {
            return false;
        }
        // A count at its end, or an entry that was given up meanwhile: then each keeps its own.
        let held = pages
            .iter()
            .filter(|(_, entry)| core.engine.dup(*entry).is_ok());
        waiting.extend(held.map(|&(page, entry)| Proposal { page, entry }));
        !waiting.is_empty()
    }

    /// Take those out of `pages` that wait to be followed.
    pub fn leave_out(&self, pages: &mut Vec<u64>) {
        let waiting = self.waiting.lock();
        pages.retain(|page| !waiting.iter().any(|proposal| proposal.page == *page));
    }

    /// Take up to `most` of them, in address order.
    pub fn take(&self, most: usize) -> Vec<Proposal> {
        let mut waiting = self.waiting.lock();
        let count = waiting.len().min(most);
        let mut taken: Vec<Proposal> = waiting.drain(..count).collect();
        if waiting.is_empty() {
            *waiting = Vec::new();
        }
        drop(waiting);
        taken.sort_by_key(|proposal| proposal.page);
        taken
    }

    /// Queue proposals again that could not be followed now, unless the space has ended.
    pub fn give_back(&self, space: &Space, proposals: &mut Vec<Proposal>) {
        let mut waiting = self.waiting.lock();
        // Looked at under the lock, as in `add`.
        if !space.has_ended() {
            waiting.append(proposals);
        }
    }

    /// The space has ended: give the references up.
    pub fn drop_all(&self, core: &Core) {
        self.give_up(core, |_| true);
    }

    /// Give those up whose entries are `unwanted`.
    pub fn give_up(&self, core: &Core, unwanted: impl Fn(Entry) -> bool) {
        let mut waiting = self.waiting.lock();
        let given_up: Vec<Proposal> = waiting
            .extract_if(.., |proposal| unwanted(proposal.entry))
            .collect();
        drop(waiting);
        given_up
            .into_iter()
            .for_each(|proposal| core.engine.put(proposal.entry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(ids: &[u64]) -> Kin {
        let kin = Kin::default();
        let member = |&id: &u64| Member {
            id,
            space: Weak::new(),
            leads: Vec::new(),
        };
        kin.members.lock().extend(ids.iter().map(member));
        kin
    }

    fn lead(kin: &Kin, own: u64, pages: &[u64]) -> Vec<u64> {
        let mut pages = pages.to_vec();
        kin.lead(own, &mut pages);
        pages
    }

    #[test]
    fn a_page_is_led_by_one_until_it_leads_others() {
        let kin = family(&[1, 2]);
        assert_eq!(lead(&kin, 1, &[3, 5, 9]), [3, 5, 9]);
        assert_eq!(lead(&kin, 2, &[4, 5, 9, 10]), [4, 10]);
        assert_eq!(
            lead(&kin, 1, &[3, 4, 5]),
            [3, 5],
            "its own and what nobody leads"
        );
        assert_eq!(lead(&kin, 2, &[9]), [9], "given up by the other");
        assert_eq!(lead(&kin, 1, &[]), []);
        assert_eq!(lead(&kin, 2, &[3, 5, 9]), [3, 5, 9]);
    }
}
