//! The handshake of a userfaultfd, against the running kernel.
//!
//! Unsafe is needed here because a forked child gives up its user id by the bare call.

mod support;

use support::fork;
use vswap_sys::uffd::{Faults, UffdError, Userfaultfd, feature};

#[test]
fn a_failed_handshake_may_be_repeated() {
    let _alone = support::alone();
    let Ok((uffd, _)) = Userfaultfd::open(Faults::UserOnly) else {
        return support::skip("no userfaultfd");
    };
    assert!(!uffd.is_ready());
    assert!(matches!(
        uffd.handshake(1 << 62),
        Err(UffdError::Invalid { .. })
    ));
    let offered = uffd.handshake(feature::EVENT_REMAP).unwrap();
    assert_ne!(offered & feature::EVENT_REMAP, 0);
    assert!(uffd.is_ready());
    assert!(matches!(uffd.handshake(0), Err(UffdError::Invalid { .. })));
}

#[test]
fn features_that_cannot_be_had_are_dropped() {
    let _alone = support::alone();
    let granted =
        |wanted| Userfaultfd::open_with(Faults::UserOnly, wanted).map(|(_, granted)| granted);
    let Ok(offered) = Userfaultfd::offered(Faults::UserOnly) else {
        return support::skip("no userfaultfd");
    };
    let unknown = 1 << 62;
    let wanted = feature::EVENT_REMAP | feature::EVENT_FORK;
    let got = granted(wanted | unknown).unwrap();
    assert_eq!(got & !feature::EVENT_FORK, feature::EVENT_REMAP & offered);
    if rustix::process::geteuid().as_raw() != 0 {
        return support::skip("only root can show what another user is refused");
    }
    let code = support::wait(fork(|| {
        // SAFETY: the child gives up its user id. By the bare call, because the C library's would wait for threads that
        // were not forked.
        if unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) } != 0 {
            return 2;
        }
        let known = granted(wanted) == Ok(feature::EVENT_REMAP);
        let unknown = granted(wanted | unknown) == Ok(feature::EVENT_REMAP);
        i32::from(!(known && unknown))
    }));
    assert_eq!(code, 0);
}
