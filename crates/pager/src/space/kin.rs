//! Kin: the spaces that came of one program image by forks. They share pages, in memory and in swap.
//!
//! Moving a shared page out of one process frees nothing: the kernel first makes a copy for that process, and the
//! others keep the page. The memory becomes free only when all of them have given the page up. So an evictor that meets
//! a shared page proposes it to its kin, with the entry that it got. Each of the kin gives the page up as well, and
//! takes the same entry if its content is the same.
//!
//! From meeting the page to proposing it that evictor *leads* the page, and its kin pass it over. If two of them moved
//! the page out at the same time, it would be stored twice for good.
//!
//! The lock is held for list operations. No other lock of the pager is taken under it.

use std::sync::{Arc, Weak};

use vswap_engine::{Engine, Entry};

use crate::base::lock::{Mutex, Row};
use crate::space::mailbox::Mailbox;

/// The spaces of one family.
#[derive(Debug)]
pub struct Kin {
    members: Mutex<Vec<Member>>,
}

#[derive(Debug)]
struct Member {
    id: u64,
    mailbox: Weak<Mailbox>,
    /// Pages that this member is about to move out and to propose, in ascending order.
    leads: Vec<u64>,
}

impl Default for Kin {
    fn default() -> Kin {
        Kin {
            members: Mutex::new(Row::Innermost, "the members of a family", Vec::new()),
        }
    }
}

impl Kin {
    /// One more member.
    pub fn join(&self, mailbox: &Arc<Mailbox>) {
        let mut members = self.members.lock();
        members.retain(|member| member.mailbox.strong_count() > 0);
        members.push(Member {
            id: mailbox.id,
            mailbox: Arc::downgrade(mailbox),
            leads: Vec::new(),
        });
    }

    /// Let `own` lead those of `pages` (ascending) that nobody else leads, and take the others out of `pages`. This
    /// replaces what `own` led before. An evictor that stops moving pages out has to lead none, also when it ends.
    pub fn lead(&self, own: u64, pages: &mut Vec<u64>) {
        debug_assert!(pages.is_sorted());
        let mut members = self.members.lock();
        // Few lead any: those that move pages out just now.
        let leads: Vec<&Vec<u64>> = members
            .iter()
            .filter(|member| member.id != own && !member.leads.is_empty())
            .map(|member| &member.leads)
            .collect();
        let is_led = |page: &u64| leads.iter().any(|led| led.binary_search(page).is_ok());
        pages.retain(|page| !is_led(page));
        if let Some(member) = members.iter_mut().find(|member| member.id == own) {
            member.leads.clone_from(pages);
        }
    }

    /// Members other than `own` that can move pages out.
    fn others(&self, own: u64) -> Vec<Arc<Mailbox>> {
        let members = self.members.lock();
        let living = members.iter().filter_map(|member| member.mailbox.upgrade());
        living
            .filter(|mailbox| mailbox.id != own && mailbox.has_evictor())
            .collect()
    }

    /// Propose pages that `own` has moved out to all others.
    pub fn propose(&self, engine: &Engine, own: u64, pages: &[(u64, Entry)]) {
        if pages.is_empty() {
            return;
        }
        for mailbox in self.others(own) {
            if mailbox.propose(engine, pages) {
                mailbox.ask(|wanted| wanted.proposals = true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(ids: &[u64]) -> Kin {
        let kin = Kin::default();
        let member = |&id: &u64| Member {
            id,
            mailbox: Weak::new(),
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
        assert!(lead(&kin, 1, &[]).is_empty());
        assert_eq!(lead(&kin, 2, &[3, 5, 9]), [3, 5, 9]);
    }
}
