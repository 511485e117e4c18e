//! What decides over permissions here: a capability, the user namespace, a seccomp filter. And what follows: which step
//! mends what was refused. A probe says whether something works; this says why it may not.

const PTRACE: u32 = 19;
/// The line of /proc/self/uid_map in the initial user namespace: all users, as they are.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];

const DEVICE: &str = "let vswap's user open /dev/userfaultfd: --device /dev/userfaultfd in a container, \
     DeviceAllow=/dev/userfaultfd in a systemd unit, a udev rule or `setfacl -m u:USER:rw /dev/userfaultfd` elsewhere; \
     CAP_SYS_PTRACE, or the sysctl vm.unprivileged_userfaultfd=1, will do as well";
const FILTERED: &str = "give it the device or the system call: --device /dev/userfaultfd in a container, \
     DeviceAllow=/dev/userfaultfd in a systemd unit, or a seccomp profile that allows userfaultfd";
const NO_USERFAULTFD: &str = "use a kernel that has userfaultfd (CONFIG_USERFAULTFD)";

/// What this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// CAP_SYS_PTRACE is in effect.
    pub may_trace: bool,
    /// In the initial user namespace.
    pub is_initial: bool,
    /// Under a seccomp filter.
    pub is_filtered: bool,
}

impl Rights {
    /// Those of this process.
    pub fn here() -> Rights {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        Rights::parse(&text("/proc/self/status"), &text("/proc/self/uid_map"))
    }

    /// From the texts of /proc/self/status and /proc/self/uid_map.
    pub fn parse(status: &str, uid_map: &str) -> Rights {
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map_or("", str::trim)
        };
        let effective = u64::from_str_radix(value("CapEff:"), 16).unwrap_or(0);
        Rights {
            may_trace: effective >> PTRACE & 1 == 1,
            is_initial: uid_map.split_whitespace().eq(ALL_USERS),
            is_filtered: value("Seccomp:") == "2",
        }
    }

    /// In a few words.
    pub fn describe(self) -> String {
        let capability = if self.may_trace { "with" } else { "without" };
        let users = if self.is_initial {
            ""
        } else {
            ", in a user namespace"
        };
        let filter = if self.is_filtered {
            ", under a seccomp filter"
        } else {
            ""
        };
        format!("{capability} CAP_SYS_PTRACE{users}{filter}")
    }

    /// What to do if there is no userfaultfd that sees faults of the kernel. Whoever has the capability may have one,
    /// unless a filter refuses it. Everybody may have one who may open the device.
    pub fn for_faults(self) -> &'static str {
        match (self.is_initial && self.may_trace, self.is_filtered) {
            (false, false) => DEVICE,
            (_, true) => FILTERED,
            (true, false) => NO_USERFAULTFD,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INITIAL: &str = "         0          0 4294967295\n";

    #[test]
    fn the_texts_of_proc_are_read() {
        let root = Rights::parse("CapEff:\t000001fffeffffff\nSeccomp:\t0\n", INITIAL);
        assert_eq!(root.describe(), "with CAP_SYS_PTRACE");
        let docker = Rights::parse("CapEff:\t00000000a80425fb\nSeccomp:\t2\n", INITIAL);
        assert_eq!(
            docker.describe(),
            "without CAP_SYS_PTRACE, under a seccomp filter"
        );
        let rootless = Rights::parse("CapEff:\t000001ffffffffff\nSeccomp:\t0\n", "0 1000 1\n");
        assert!(rootless.may_trace && !rootless.is_initial);
        let nothing = Rights::parse("", "");
        assert!(!nothing.may_trace && !nothing.is_initial && !nothing.is_filtered);
    }

    #[test]
    fn the_first_step_is_the_one_that_helps() {
        let of = |may_trace, is_initial, is_filtered| Rights {
            may_trace,
            is_initial,
            is_filtered,
        };
        assert_eq!(of(false, true, false).for_faults(), DEVICE);
        assert_eq!(of(true, false, false).for_faults(), DEVICE);
        assert_eq!(of(false, true, true).for_faults(), FILTERED);
        assert_eq!(of(true, true, true).for_faults(), FILTERED);
        assert_eq!(of(true, true, false).for_faults(), NO_USERFAULTFD);
    }
}
