//! The evictor of a space: one thread that moves pages out.
//!
//! It takes windows of pages that its `hand` picks or its `kin` propose. A window goes through six steps: pick, move
//! into staging (with the space closed), copy from staging to frames, publish entries, free staging, queue for
//! `write_out`. Once a page is published, a fault on it is served from its frame.

pub mod evicting;
pub mod following;
mod carried;
mod hand;
pub mod shrink;
pub mod repack;
pub mod write_out;
mod frames;
mod staging;
mod aside;
mod window;
mod sample;

use std::sync::Arc;
use std::time::Duration;

use self::hand::Hand;
use self::sample::Sampler;
use self::window::{Choice, Window};
use crate::base::kernel::clock;
use crate::base::page_run::PageRun;
use crate::events::regions;
use crate::evict::evicting::Evicting;
use crate::fault::FaultServer;
use crate::fault::serving::Serving;
use crate::layout::words::PageState;
use crate::space::Space;
use crate::space::agent::AgentGone;
use crate::space::mailbox::Wanted;
use crate::space::process::Process;

/// Pages moved out together. They are enough that one command to the agent costs little for each page. They are few
/// enough that a fault in between waits only tens of microseconds.
const WINDOW_PAGES: usize = 64;
/// Longest sleep without a request.
const IDLE: Duration = Duration::from_secs(1);
/// Pause when the kernel refuses a move because a layout event is unread, or when no frame is free.
const BLOCKED_PACE: Duration = Duration::from_micros(50);
/// Blocked windows in a row after which the evictor goes back to listening.
const BLOCKED_MAX: u32 = 200;
/// After so many windows in a row without a moved page the evictor gives up for now.
const FRUITLESS_MAX: u32 = 256;

struct Evictor<'a> {
    evicting: &'a Evicting,
    serving: &'a Serving,
    space: &'a Arc<Space>,
    process: &'a Process,
    server: FaultServer<'a>,
    hand: Hand<'a>,
    /// Pages that were busy and were made exclusive, because others may share them, and have not left yet. They ascend.
    shared: Vec<u64>,
    /// Pages that have left and have no marker yet.
    unmarked: Vec<u64>,
    /// What moves pages out only to see when they are touched.
    sampler: Option<Sampler>,
}

/// Run the evictor until the space ends.
pub fn run(evicting: &Arc<Evicting>, space: &Arc<Space>) {
    let Some(process) = space.process.get() else {
        return;
    };
    let mut evictor = Evictor {
        evicting,
        serving: &evicting.serving,
        space,
        process,
        server: FaultServer::new(&evicting.serving, space),
        hand: Hand::new(process),
        shared: Vec::new(),
        unmarked: Vec::new(),
        sampler: Sampler::new(&evicting.serving.samples, space.id),
    };
    evictor.work();
    evictor.end_sampling();
}

impl Evictor<'_> {
    /// Do what is asked for until the space ends.
    fn work(&mut self) {
        let (evicting, space) = (self.evicting, self.space);
        let every = evicting.all_every;
        loop {
            self.renew_sampler();
            let sampling = self.sampler.as_ref().map(Sampler::pause);
            let wanted = space.mailbox.take(every.or(sampling).unwrap_or(IDLE));
            if wanted.stop || space.has_ended() {
                return;
            }
            if space.is_confined() {
                // Kin need not keep entries for a space that cannot follow them.
                let engine = &self.serving.engine;
                space.mailbox.put_proposals(engine, |_| true);
                self.admit_against_the_limit();
                self.end_lap(wanted);
                continue;
            }
            if wanted.rescan || every.is_some() || sampling.is_some() {
                let references = &self.serving.references;
                regions::rescan(references, space, self.process, &self.process.agent.slot());
            }
            self.serve_deferred();
            self.hand.wrapped = every.is_none() && !wanted.lap;
            self.hand.hurries = !self.hand.wrapped;
            self.follow_kin();
            self.move_out(wanted.pages);
            self.sample();
            self.lead_nothing();
            self.end_lap(wanted);
        }
    }

    /// Move out about `pages` pages: more while faults wait for memory, and always to the end of the lap.
    fn move_out(&mut self, pages: u64) {
        let (mut left, mut blocked, mut fruitless) = (pages, 0, 0);
        while !self.space.has_ended() && (left > 0 || !self.hand.wrapped || self.faults_wait()) {
            self.follow_kin();
            if self.space.is_left_to_kin() {
                return;
            }
            match self.window(Choice::Hand) {
                Ok(Window::Moved(moved)) => {
                    left = left.saturating_sub(moved);
                    blocked = 0;
                    // Pages that cannot be moved (locked, pinned) are met again in each lap.
                    fruitless = if moved == 0 { fruitless + 1 } else { 0 };
                    if fruitless > FRUITLESS_MAX {
                        self.admit_against_the_limit();
                        return;
                    }
                }
                // While all is full there are no frames: the governor asks again.
                Ok(Window::Blocked)
                    if blocked < BLOCKED_MAX && !self.serving.limit.is_stalled() =>
                {
                    blocked += 1;
                    clock::sleep(BLOCKED_PACE);
                }
                Ok(Window::Nothing) => {
                    self.admit_against_the_limit();
                    return;
                }
                Ok(Window::Blocked) | Err(AgentGone) => return,
            }
            // Mappings that nobody watches yet grow unasked. They come first.
            if self.space.mailbox.is_rescan_wanted() {
                return;
            }
        }
    }

    fn faults_wait(&self) -> bool {
        !self.space.lock().deferred.is_empty() && !self.serving.limit.has_headroom()
    }

    /// Give up what kin have moved out, so that its memory becomes free.
    fn follow_kin(&mut self) {
        while !self.space.has_ended() {
            if self.space.mailbox.is_nothing_proposed() {
                return;
            }
            let _follower = self.evicting.following.begin();
            let proposals = self.space.mailbox.take_proposals(WINDOW_PAGES);
            if proposals.is_empty() {
                return;
            }
            match self.window(Choice::Kin(proposals)) {
                Ok(Window::Moved(_) | Window::Nothing) => {}
                Ok(Window::Blocked) | Err(AgentGone) => return,
            }
        }
    }

    /// Whoever wanted a lap learns that it is over.
    fn end_lap(&self, wanted: Wanted) {
        if wanted.lap {
            self.space.mailbox.end_lap();
        }
    }

    /// Lead no more, so that nobody waits for this evictor while it sleeps.
    fn lead_nothing(&self) {
        self.space.kin.lead_no_more(self.space.id);
    }

    /// Serve faults that waited for memory, as far as there is some again. When everything is full, swap-ins go on,
    /// because each frees its own place in the pool. While the run is held, none goes on.
    fn serve_deferred(&mut self) {
        let limit = &self.serving.limit;
        let is_held = self.serving.parking.is_holding();
        let stalled = limit.is_stalled() && limit.may_overdraw();
        self.server.serve_deferred(|state, fault| {
            let word = state.layout.words.get(fault.page);
            let is_swapped = matches!(word.state(), PageState::Swapped(_));
            !is_held && (limit.has_headroom() || (stalled && is_swapped))
        });
    }

    /// Nothing in this space can be moved. If nothing can be moved anywhere, waiting would never end: memory that
    /// cannot be moved (locked, shared, pinned) is beyond the limit's reach. So serve the faults that wait.
    fn admit_against_the_limit(&mut self) {
        if self.serving.limit.is_stalled() || self.serving.parking.is_holding() {
            return;
        }
        self.server.serve_deferred(|_, _| true);
    }
}

/// The runs of a window fit one command.
const _: () = assert!(WINDOW_PAGES <= vswap_sys::ring::MOVE_RUNS_MAX);
const _: () = assert!(size_of::<PageRun>() == 16);
