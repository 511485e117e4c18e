//! The program installs its own seccomp filter on its main thread only, before its memory is in use. The filter kills
//! for calls that the program never makes, and holds in children too.

use crate::pages::Pages;
use crate::run::{Child, Options};
use crate::victim::confined;
use crate::wrong::Checked;

pub(crate) fn run(options: &Options) -> Checked {
    // One process installs it by one call, another process by the other.
    let by_prctl = Child::fork(|| with_filter(options, confined::install_by_prctl))?;
    with_filter(options, || confined::install(0)).and(by_prctl.wait())
}

fn with_filter(options: &Options, install: impl FnOnce() -> Checked) -> Checked {
    install()?;
    let clock = options.clock();
    let mut pages = Pages::filled(options.pages() / 3, options.tag(0))?;
    let mut random = options.random(0, 61);
    loop {
        pages.stir("page under a filter of its own", &mut random, 256)?;
        let fresh = Pages::filled(options.pages() / 8, options.tag(1))?;
        let child = Child::fork(|| {
            pages.check_all("page of a child under a filter")?;
            fresh.check_all("fresh page of a child under a filter")
        })?;
        options.parallel(|_| fresh.check_all("fresh page under a filter"))?;
        child.wait()?;
        if !clock.running() {
            return pages.check_all("page under a filter of its own");
        }
    }
}
