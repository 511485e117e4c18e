//! The lives of watched pages: when each was there, when it was moved out, and when it was touched next.

use vswap_pager::sampling::{Event, What, block_of, mix};

/// Nothing happens then any more.
pub const NEVER: u64 = u64::MAX;

/// A page that was moved out in the last part of so many of the time, and did not come back, may be used as often as
/// any other. Nobody waited for long enough to see.
const LATE_PART: u64 = 4;

/// One watched page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// Whose page it is.
    pub space: u32,
    /// Number of the page.
    pub page: u64,
    /// When it was first there.
    pub born_us: u64,
    /// When it was gone.
    pub died_us: u64,
    /// When it was moved out, and when it was touched next.
    pub visits: Vec<Visit>,
    /// How long a page nearby was out, if this one was not seen to be touched.
    pub lent_us: Option<u64>,
}

/// When a page was moved out, and when it was touched next.
pub type Visit = (u64, u64);

impl Life {
    /// When the page is touched next, if it is moved out at `at_us`. While it is in memory nobody knows of its touches:
    /// then it is taken to be touched at the pace that was seen before or after.
    pub fn next_touch(&self, at_us: u64) -> u64 {
        let next = self.visits.partition_point(|(out, _)| *out <= at_us);
        let after = self.visits.get(next).copied();
        let before = next
            .checked_sub(1)
            .and_then(|at| self.visits.get(at))
            .copied();
        if let Some((_, back)) = before.filter(|(_, back)| at_us < *back) {
            return back;
        }
        let Some(pace_us) = self.pace(before, after, at_us) else {
            return after.map_or(NEVER, |(_, back)| back);
        };
        let touched = at_us.saturating_add(pace_us);
        match after {
            Some((out, back)) if touched >= out => back,
            _ if touched >= self.died_us => NEVER,
            _ => touched,
        }
    }

    /// How long it is until a touch, from the visits around. One of both, by chance.
    fn pace(&self, before: Option<Visit>, after: Option<Visit>, at_us: u64) -> Option<u64> {
        let wait = |visit: Option<Visit>| {
            let (out, back) = visit?;
            (back != NEVER).then(|| back.saturating_sub(out).max(1))
        };
        match (wait(before), wait(after)) {
            (Some(before), Some(after)) => Some(if mix(at_us ^ self.page) & 1 == 0 {
                after
            } else {
                before
            }),
            // It was never touched again. That says nothing of the time before.
            (before, after) => before.or(after).or(self.lent_us),
        }
    }

    /// The block that was chosen with it.
    pub fn block(&self) -> u64 {
        block_of(self.space, self.page)
    }
}

/// Lives from events, by space and address. An address that is used again has several.
pub fn lives(events: &[Event], end_us: u64) -> Vec<Life> {
    let mut order: Vec<&Event> = events.iter().collect();
    order.sort_by_key(|event| (event.space, event.page, event.at_us));
    let mut lives: Vec<Life> = Vec::new();
    let mut is_open = false;
    for event in order {
        let last = lives.last_mut();
        let is_same = |life: &&mut Life| (life.space, life.page) == (event.space, event.page);
        match (event.what, last.filter(|life| is_open && is_same(life))) {
            (What::Out, Some(life)) => life.visits.push((event.at_us, NEVER)),
            (What::Back, Some(life)) => {
                if let Some(visit) = life.visits.last_mut().filter(|visit| visit.1 == NEVER) {
                    visit.1 = event.at_us.max(visit.0);
                }
            }
            (What::Gone, Some(life)) => {
                life.died_us = event.at_us;
                is_open = false;
            }
            (What::Gone, None) => {}
            (What::Seen, Some(_)) => {}
            (What::Seen | What::Out | What::Back, None) => {
                lives.push(Life {
                    space: event.space,
                    page: event.page,
                    born_us: event.at_us,
                    died_us: end_us,
                    visits: Vec::new(),
                    lent_us: None,
                });
                is_open = true;
                if event.what == What::Out
                    && let Some(life) = lives.last_mut()
                {
                    life.visits.push((event.at_us, NEVER));
                }
            }
        }
    }
    lend(&mut lives, end_us);
    lives
}

/// A page that was never moved out, because there was no time for it, is taken to be used like one nearby. So is one
/// that was moved out once, and late.
fn lend(lives: &mut [Life], end_us: u64) {
    let late_us = end_us - end_us / LATE_PART;
    let is_unknown = |life: &Life| match life.visits[..] {
        [] => true,
        [(out_us, NEVER)] => out_us > late_us && life.died_us >= end_us,
        _ => false,
    };
    let known = |life: &Life| {
        if is_unknown(life) {
            return None;
        }
        let waited = life.visits.first().map(|(out, back)| match *back {
            NEVER => NEVER,
            back => back.saturating_sub(*out).max(1),
        })?;
        Some((life.space, waited))
    };
    let mut last = None;
    for life in lives.iter_mut() {
        last = known(life).or(last);
        if is_unknown(life) {
            borrow(life, last);
        }
    }
    let mut next = None;
    for life in lives.iter_mut().rev() {
        next = known(life).or(next);
        if is_unknown(life) {
            borrow(life, next);
        }
    }
}

fn borrow(life: &mut Life, from: Option<(u32, u64)>) {
    if let Some((space, waited)) = from
        && life.lent_us.is_none()
        && space == life.space
    {
        life.lent_us = Some(waited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_us: u64, page: u64, what: What) -> Event {
        Event {
            at_us,
            page,
            space: 1,
            what,
        }
    }

    #[test]
    fn an_address_that_is_used_again_has_two_lives() {
        let events = [
            event(0, 7, What::Seen),
            event(5, 8, What::Seen),
            event(10, 7, What::Out),
            event(30, 7, What::Back),
            event(40, 7, What::Out),
            event(50, 7, What::Gone),
            event(60, 7, What::Seen),
        ];
        let lives = lives(&events, 100);
        let shape: Vec<(u64, u64, u64, usize)> = lives
            .iter()
            .map(|life| (life.page, life.born_us, life.died_us, life.visits.len()))
            .collect();
        assert_eq!(shape, [(7, 0, 50, 2), (7, 60, 100, 0), (8, 5, 100, 0)]);
        assert_eq!(lives[0].visits, [(10, 30), (40, NEVER)]);
    }

    #[test]
    fn between_visits_a_page_is_touched_at_the_pace_of_those_around() {
        let life = Life {
            space: 1,
            page: 7,
            born_us: 0,
            died_us: 10_000,
            visits: vec![(100, 300), (1000, 1200), (5000, NEVER)],
            lent_us: None,
        };
        assert_eq!(life.next_touch(50), 300, "it was out by then");
        assert_eq!(life.next_touch(100), 300);
        assert_eq!(life.next_touch(299), 300);
        assert_eq!(life.next_touch(400), 600);
        assert_eq!(
            life.next_touch(900),
            1200,
            "it was out then, and touched at 1200"
        );
        assert_eq!(life.next_touch(2000), 2200);
        assert_eq!(
            life.next_touch(4900),
            NEVER,
            "it was out then, and never touched"
        );
        assert_eq!(life.next_touch(6000), NEVER);
    }

    #[test]
    fn a_page_that_went_out_late_is_used_like_one_nearby_until_then() {
        let at = |out_us| {
            let events = [
                event(0, 7, What::Seen),
                event(0, 8, What::Seen),
                event(10, 7, What::Out),
                event(30, 7, What::Back),
                event(out_us, 8, What::Out),
            ];
            lives(&events, 1000)[1].next_touch(500)
        };
        assert_eq!(at(900), 520, "100 are too few to see that it is not used");
        assert_eq!(at(600), NEVER, "it was not used for 400");
    }

    #[test]
    fn a_page_that_was_never_out_is_used_like_one_nearby() {
        let events = [
            event(0, 7, What::Seen),
            event(0, 8, What::Seen),
            event(0, 9, What::Seen),
            event(10, 7, What::Out),
            event(30, 7, What::Back),
            event(20, 9, What::Out),
        ];
        let lives = lives(&events, 1000);
        assert_eq!(lives[1].next_touch(500), 520);
        assert_eq!(lives[2].next_touch(500), NEVER);
    }
}
