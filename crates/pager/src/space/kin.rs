//! Kin: the spaces that came of one program image by forks. They share pages, in memory and in swap.
//!
//! Moving a shared page out of one process frees nothing: the kernel first makes a copy for that process, and the
//! others keep the page. The memory becomes free only when all of them have given the page up. So an evictor that meets
//! a shared page proposes it to its kin, with the entry that it got. Each of the kin gives the page up as well, and
//! takes the same entry if its content is the same.
//!
//! One evictor at a time *leads*: it moves shared pages out and proposes them, and its kin do nothing but follow. If
//! two of them moved a page out at the same time, it would be stored twice for good. And each would try in vain what
//! another has just taken.
//!
//! Each page costs a move and a copy in every member, and until the last of these nothing is free. So only a few
//! windows of a family are on their way at a time (`flight.rs`). With more of them, all pages of a large family would
//! be half out, memory would stay as short as it was, and everything else would be driven out for it.
//!
//! A member that does not follow, because it was just born or is stopped, holds the family up. What its kin move out
//! stays in memory, and what they can no longer propose to it is stored again when it moves it out itself.
//!
//! The lock is held for list operations. No other lock of the pager is taken under it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use vswap_engine::{Engine, Entry};

use crate::base::kernel::clock;
use crate::base::lock::{Mutex, Row};
use crate::space::flight::{Flights, HELD_UP, Seat};
use crate::space::mailbox::Mailbox;

/// Most windows of a family that are on their way.
const WINDOWS_MAX: usize = 8;
/// The same while a member does not follow. Its pages stay in memory, so moving on frees nothing, and only those that
/// are proposed to it will be stored once.
const WINDOWS_HELD_UP: usize = 1;
/// A member for which more wait is late: more than a family has on its way if all follow.
const LATE_PAGES: usize = 1024;

/// The spaces of one family.
#[derive(Debug)]
pub struct Kin {
    members: Mutex<Vec<Weak<Mailbox>>>,
    leader: Mutex<Option<Leader>>,
    /// A member cannot follow yet, or is late.
    held_up: AtomicBool,
    flights: Flights,
    /// How often somebody has joined. Who came after a window was proposed has its pages too, and was not asked.
    joined: AtomicU64,
    /// Pages that the whole family has given up since its memory was measured.
    freed: AtomicU64,
}

/// Who leads, and since when it has not said so again.
#[derive(Debug, Clone, Copy)]
struct Leader {
    id: u64,
    since: Instant,
}

/// May a member move shared pages out?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It may try to lead.
    Free,
    /// Enough windows are on their way.
    Later,
    /// Somebody else leads.
    Others,
}

impl Leader {
    /// Somebody whose process is stopped in the middle of a window does not hold the others up for ever.
    fn keeps_out(&self, other: u64) -> bool {
        self.id != other && clock::now().saturating_duration_since(self.since) < HELD_UP
    }
}

impl Default for Kin {
    fn default() -> Kin {
        Kin {
            members: Mutex::new(Row::Innermost, "the members of a family", Vec::new()),
            leader: Mutex::new(Row::Innermost, "who leads a family", None),
            held_up: AtomicBool::new(false),
            flights: Flights::default(),
            joined: AtomicU64::new(0),
            freed: AtomicU64::new(0),
        }
    }
}

impl Kin {
    /// One more member.
    pub fn join(&self, mailbox: &Arc<Mailbox>) {
        let mut members = self.members.lock();
        self.joined.fetch_add(1, Ordering::AcqRel);
        members.retain(|member| member.strong_count() > 0);
        members.push(Arc::downgrade(mailbox));
        // It has no evictor yet.
        self.held_up.store(members.len() > 1, Ordering::Relaxed);
    }

    /// May `own` move shared pages out?
    pub fn turn(&self, own: u64) -> Turn {
        let is_led = self.leader.lock().is_some_and(|it| it.keeps_out(own));
        if is_led {
            Turn::Others
        } else if self.flights.under_way() >= self.windows_max() {
            Turn::Later
        } else {
            Turn::Free
        }
    }

    /// Let `own` lead, if it may. It leads until `lead_no_more`, or until it has not asked for a while.
    pub fn lead(&self, own: u64) -> Turn {
        let turn = self.turn(own);
        if turn != Turn::Free {
            return turn;
        }
        let mut leader = self.leader.lock();
        if leader.is_some_and(|it| it.keeps_out(own)) {
            return Turn::Others;
        }
        *leader = Some(Leader {
            id: own,
            since: clock::now(),
        });
        Turn::Free
    }

    /// `own` does not lead any more. An evictor that stops moving pages out has to say so, also when it ends.
    pub fn lead_no_more(&self, own: u64) {
        self.leader.lock().take_if(|leader| leader.id == own);
    }

    /// Does the family wait for a member? Then what is shared leaves slowly, and is worth passing over.
    pub fn is_held_up(&self) -> bool {
        self.held_up.load(Ordering::Relaxed)
    }

    fn windows_max(&self) -> usize {
        match self.is_held_up() {
            true => WINDOWS_HELD_UP,
            false => WINDOWS_MAX,
        }
    }

    /// Members other than `own`. One that was just born has no evictor yet, and will follow as soon as it has one.
    fn others(&self, own: u64) -> Vec<Arc<Mailbox>> {
        let members = self.members.lock();
        let living = members.iter().filter_map(Weak::upgrade);
        living
            .filter(|mailbox| mailbox.id != own && !mailbox.has_ended())
            .collect()
    }

    /// Propose pages that `own` has moved out to all others. Returns how many pages stay in memory until these follow.
    pub fn propose(&self, engine: &Engine, own: u64, pages: &[(u64, Entry)]) -> u64 {
        if pages.is_empty() {
            return 0;
        }
        let joined = self.joined.load(Ordering::Acquire);
        let others = self.others(own);
        if others.is_empty() {
            self.held_up.store(false, Ordering::Relaxed);
            return 0;
        }
        let flight = self.flights.begin(pages.len(), others.len(), joined);
        let mut held_up = false;
        for mailbox in &others {
            let waiting = mailbox.propose(engine, pages, &flight);
            held_up |= waiting > LATE_PAGES || !mailbox.has_evictor();
            if waiting > 0 {
                mailbox.ask(|wanted| wanted.proposals = true);
            }
        }
        self.held_up.store(held_up, Ordering::Relaxed);
        pages.len() as u64
    }

    /// A member has given these up. Returns how many pages nobody has any more.
    pub fn gave_up(&self, seats: impl IntoIterator<Item = Seat>) -> u64 {
        let joined = self.joined.load(Ordering::Acquire);
        let last = seats.into_iter().map(|seat| seat.give_up(joined));
        let freed = last.filter(|is_last| *is_last).count() as u64;
        self.freed.fetch_add(freed, Ordering::AcqRel);
        freed
    }

    /// Pages that are on their way out of the family, as far as it goes on with them.
    pub fn leaving_pages(&self) -> u64 {
        self.flights.pages()
    }

    /// Pages that the whole family has given up since `measured`.
    pub fn freed_pages(&self) -> u64 {
        self.freed.load(Ordering::Acquire)
    }

    /// The memory of all members has been measured. Returns the pages that were given up since the last time. Some may
    /// have been given up after their process was measured. Then there seems to be more memory in use than there is.
    pub fn measured(&self) -> u64 {
        self.freed.swap(0, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_leads_until_it_leads_no_more() {
        let kin = Kin::default();
        assert_eq!((kin.turn(1), kin.turn(2)), (Turn::Free, Turn::Free));
        assert_eq!((kin.lead(1), kin.lead(2)), (Turn::Free, Turn::Others));
        assert_eq!((kin.lead(1), kin.turn(2)), (Turn::Free, Turn::Others));
        kin.lead_no_more(2);
        assert_eq!(kin.lead(2), Turn::Others, "1 leads still");
        kin.lead_no_more(1);
        assert_eq!((kin.lead(2), kin.lead(1)), (Turn::Free, Turn::Others));
    }

    #[test]
    fn who_leads_and_is_not_heard_of_does_not_hold_up_the_others() {
        let kin = Kin::default();
        assert_eq!(kin.lead(1), Turn::Free);
        std::thread::sleep(HELD_UP / 2);
        assert_eq!((kin.lead(1), kin.lead(2)), (Turn::Free, Turn::Others));
        std::thread::sleep(HELD_UP + HELD_UP / 10);
        assert_eq!((kin.lead(2), kin.lead(1)), (Turn::Free, Turn::Others));
        kin.lead_no_more(1);
        assert_eq!(kin.turn(1), Turn::Others);
    }

    #[test]
    fn nobody_leads_while_enough_windows_are_on_their_way() {
        let kin = Kin::default();
        let windows: Vec<_> = (0..WINDOWS_MAX)
            .map(|_| kin.flights.begin(64, 1, 0))
            .collect();
        assert_eq!((kin.turn(1), kin.lead(1)), (Turn::Later, Turn::Later));
        assert_eq!(kin.leaving_pages(), 64 * WINDOWS_MAX as u64);
        assert_eq!(kin.gave_up((0..64).map(|page| windows[0].seat(page))), 64);
        drop(windows);
        assert_eq!(kin.lead(1), Turn::Free);
        assert_eq!(
            (kin.freed_pages(), kin.measured(), kin.freed_pages()),
            (64, 64, 0)
        );
    }
}
