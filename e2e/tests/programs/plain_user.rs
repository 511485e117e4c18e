//! A plain user without any capability, who may open /dev/userfaultfd. The kernel tells vswap of no forks then.
//! `postgres` always runs so.

use vswap_e2e::{Context, Outcome};

use crate::{attached, cpython, make, redis, rings};

/// A test as a plain user.
fn as_plain_user(context: &Context, test: fn(&Context) -> Outcome) -> Outcome {
    context.be_a_plain_user()?;
    test(context)
}

pub fn redis(context: &Context) -> Outcome {
    as_plain_user(context, redis::fork_while_swapped)
}

pub fn python(context: &Context) -> Outcome {
    as_plain_user(context, cpython::multiprocessing)?;
    as_plain_user(context, cpython::kin_read_what_they_share)
}

pub fn make(context: &Context) -> Outcome {
    as_plain_user(context, make::test)
}

pub fn static_forks(context: &Context) -> Outcome {
    as_plain_user(context, attached::forks)
}

pub fn rings(context: &Context) -> Outcome {
    as_plain_user(context, rings::test)
}
