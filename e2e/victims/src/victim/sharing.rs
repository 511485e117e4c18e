//! Memory that was shared with a child for a moment and that nobody writes afterwards.
//!
//! The kernel still treats such pages as shared after the child has ended. There is a fork after each part is filled,
//! so in the end all pages are like that.

use crate::pages::Pages;
use crate::run::{Child, Options};
use crate::wrong::Checked;

/// Memory is filled in this many parts.
const PARTS: usize = 16;

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        loop {
            let mut pages = Pages::new(options.pages_per_thread(), options.tag(thread))?;
            let part = pages.len().div_ceil(PARTS);
            for index in 0..pages.len() {
                pages.rewrite(index);
                if (index + 1).is_multiple_of(part) {
                    Child::fork(|| pages.check("newest page in a child", index))?.wait()?;
                }
            }
            crate::content::strike(pages.mapping.page(pages.len() / 2));
            pages.check_all("page that was shared once")?;
            if !clock.running() {
                return Ok(());
            }
        }
    })
}
