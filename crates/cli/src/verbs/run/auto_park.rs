//! `--park-after`: a run that has done nothing for so long is parked until it is used.
//!
//! The thread that supervises the run looks, and must not wait for memory to move. So a thread of its own asks for it,
//! as `vswap park` does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::args::ManageArgs;
use crate::control::{self, ParkOrder, Request};
use crate::output::figures::bytes;
use crate::output::notice;
use crate::verbs::run::idle::Idle;
use crate::verbs::run::parking::{ParkReport, Parking};

/// Parks an idle run.
#[derive(Debug)]
pub struct AutoPark {
    idle: Idle,
    after: Duration,
    run_dir: PathBuf,
    quiet: bool,
}

impl AutoPark {
    /// If the user wants it.
    pub fn of(args: &ManageArgs, run_dir: &Path) -> Option<AutoPark> {
        args.park_after.map(|after| AutoPark {
            idle: Idle::new(after),
            after,
            run_dir: run_dir.to_owned(),
            quiet: args.quiet,
        })
    }

    /// A tick has passed.
    pub fn look(&mut self, parking: &Parking<'_>) {
        if parking.stops() {
            self.idle.begin();
        } else if self.idle.look(parking.family()) {
            self.idle.begin();
            self.park();
        }
    }

    fn park(&self) {
        let (run_dir, quiet, seconds) = (self.run_dir.clone(), self.quiet, self.after.as_secs());
        let ask = move || {
            let order = ParkOrder {
                until_used: true,
                needs_area: false,
            };
            // Where it was given up, the run has something to do.
            let answer = control::ask(&run_dir, &Request::Park(order)).ok();
            let report = answer.and_then(|answer| serde_json::from_value(answer).ok());
            if let (Some(ParkReport { left_bytes, .. }), false) = (report, quiet) {
                notice(&format!(
                    "the run has done nothing for {seconds} s and is parked, with {} left in memory; a connection, \
                     input or a signal wakes it, and `vswap wake`",
                    bytes(left_bytes)
                ));
            }
        };
        // Without a thread it is tried again after as long a time.
        let _ = std::thread::Builder::new()
            .name("park".to_owned())
            .spawn(ask);
    }
}
