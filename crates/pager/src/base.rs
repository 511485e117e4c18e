//! What everything stands on: the kernel as the pager sees it, locks, threads, rules, pages and sets of them.

pub mod kernel;
pub mod lock;
pub mod threads;
pub mod work;
pub mod rules;
pub mod page_run;
pub mod ranges;
