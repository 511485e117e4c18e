//! The environments: how each is made, in words of the shell.
//!
//! A script runs as root in a mount namespace of its own, so that its mounts are gone with it. Its arguments are the
//! command to be tried. `$HERE` is a directory of its own on a disk, which every user may write to; it holds the
//! programs. Functions that several scripts use stand in `PRELUDE`.

/// A place in which vswap is tried.
#[derive(Debug, Clone, Copy)]
pub struct Environment {
    /// Name, in the table.
    pub name: &'static str,
    /// Script that runs "$@" there.
    pub script: &'static str,
    /// Succeeds where the environment can be made, and what is missing where it cannot.
    pub needs: Option<(&'static str, &'static str)>,
    /// `--ram` of the run.
    pub ram: &'static str,
    /// What the program of the run is started by.
    pub inside: &'static [&'static str],
}

/// Parts of the scripts.
pub const PRELUDE: &str = r#"
set -e
USER_NOBODY='--reuid=65534 --regid=65534 --clear-groups'
PTRACE='--inh-caps=+sys_ptrace --ambient-caps=+sys_ptrace'
DOCKER='setpriv --inh-caps=-all --bounding-set=-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid'
DOCKER=$DOCKER,+setpcap,+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap
confine() { filter=$1; shift; python3 "$HERE/confine.py" "$filter" "$@"; }
# A /dev like a container's, with these devices besides.
container_dev() {
    mkdir -p "$HERE/dev"; mount -t tmpfs none "$HERE/dev"
    for node in null zero full random urandom tty $1; do cp -a "/dev/$node" "$HERE/dev/"; done
    mkdir "$HERE/dev/pts"; mount --bind /dev/pts "$HERE/dev/pts"
    test "$SHM" = no || { mkdir "$HERE/dev/shm"; mount -t tmpfs -o nosuid,nodev,noexec none "$HERE/dev/shm"; }
    mount --rbind "$HERE/dev" /dev
}
# The device for everybody, in this mount namespace.
open_device() {
    mkdir -p "$HERE/node"; mount -t tmpfs none "$HERE/node"
    cp -a /dev/userfaultfd "$HERE/node/"; chmod 666 "$HERE/node/userfaultfd"
    mount --bind "$HERE/node/userfaultfd" /dev/userfaultfd
}
# cap_sys_ptrace=ep on a file.
setcap_ptrace() {
    python3 -c 'import os, struct, sys
os.setxattr(sys.argv[1], "security.capability", struct.pack("<5I", 0x02000001, 1 << 19, 0, 0, 0))' "$1"
}
# In a control group of 96 MiB. The group is removed when nothing runs in it any more.
in_group() {
    group=$1/vswap-environments-$$; file=$2; shift 2
    mkdir "$group"; echo 100663296 > "$group/$file"
    status=0; (sh -c 'echo $PPID' > "$group/cgroup.procs"; exec "$@") || status=$?
    for try in 1 2 3 4 5; do rmdir "$group" && break; sleep 0.2; done
    return $status
}
# A root that is read-only, no /dev/shm, and a /tmp without code.
read_only_root() {
    mount --bind "$HERE" "$HERE"; mount -t tmpfs -o nosuid,nodev,noexec none /tmp
    mount --bind / /; mount -o remount,bind,ro /
}
"#;

const DEFAULT: Environment = Environment {
    name: "",
    script: "",
    needs: None,
    ram: "64M",
    inside: &[],
};

const fn of(name: &'static str, script: &'static str) -> Environment {
    Environment {
        name,
        script,
        ..DEFAULT
    }
}

const GIVE_UP_ROOT: &[&str] = &[
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
];
const BWRAP: (&str, &str) = ("command -v bwrap", "bwrap (package bubblewrap)");
const CGROUP_V1: (&str, &str) = (
    "test -e /sys/fs/cgroup/memory/memory.limit_in_bytes",
    "memory controller of control groups version 1",
);
const CGROUP_V2: (&str, &str) = (
    "grep -qw memory /sys/fs/cgroup/cgroup.controllers /sys/fs/cgroup/unified/cgroup.controllers",
    "memory controller of control groups version 2",
);

/// All of them, in the order of the table.
pub const ENVIRONMENTS: &[Environment] = &[
    of("root", r#""$@""#),
    of("user", r#"setpriv $USER_NOBODY "$@""#),
    of(
        "user, may open the device",
        r#"open_device; setpriv $USER_NOBODY "$@""#,
    ),
    of(
        "user with CAP_SYS_PTRACE (ambient)",
        r#"setpriv $USER_NOBODY $PTRACE "$@""#,
    ),
    of(
        "the same, may open the device",
        r#"open_device; setpriv $USER_NOBODY $PTRACE "$@""#,
    ),
    of(
        "user, vswap has the file capability",
        r#"setcap_ptrace "$1"; setpriv $USER_NOBODY "$@""#,
    ),
    of(
        "the same, may open the device",
        r#"setcap_ptrace "$1"; open_device; setpriv $USER_NOBODY "$@""#,
    ),
    of(
        "user with CAP_SYS_PTRACE, no new privileges (systemd unit)",
        r#"setpriv $USER_NOBODY $PTRACE --no-new-privs "$@""#,
    ),
    of("root, no new privileges", r#"setpriv --no-new-privs "$@""#),
    Environment {
        inside: GIVE_UP_ROOT,
        ..of("root, the program gives up root (gosu)", r#""$@""#)
    },
    of(
        "namespaces (pid, mount, net, ipc), read-only root, /tmp noexec, no /dev/shm",
        r#"SHM=no container_dev userfaultfd; read_only_root; \
           unshare --pid --fork --kill-child --mount-proc --net --ipc "$@""#,
    ),
    Environment {
        needs: Some(BWRAP),
        ..of(
            "bubblewrap, started by root",
            r#"bwrap --ro-bind / / --bind "$HERE" "$HERE" --proc /proc --dev /dev --tmpfs /run --unshare-pid \
               --unshare-net --unshare-ipc --die-with-parent --cap-add ALL "$@""#,
        )
    },
    of(
        "user namespace (rootless containers)",
        r#"open_device; setpriv $USER_NOBODY unshare --user --map-root-user --pid --fork --kill-child --mount \
           --mount-proc --net "$@""#,
    ),
    of(
        "Docker's default: profile and capabilities",
        r#"container_dev; confine docker $DOCKER "$@""#,
    ),
    of(
        "the same, --device /dev/userfaultfd",
        r#"container_dev userfaultfd; confine docker $DOCKER "$@""#,
    ),
    of(
        "the same, --cap-add SYS_PTRACE",
        r#"container_dev; confine docker-ptrace $DOCKER,+sys_ptrace "$@""#,
    ),
    of(
        "the same, --device and --cap-add",
        r#"container_dev userfaultfd; confine docker-ptrace $DOCKER,+sys_ptrace "$@""#,
    ),
    Environment {
        inside: GIVE_UP_ROOT,
        ..of(
            "the same, the program gives up root (gosu)",
            r#"container_dev userfaultfd; confine docker-ptrace $DOCKER,+sys_ptrace "$@""#,
        )
    },
    of(
        "--cap-add, a profile that allows userfaultfd, no device",
        r#"container_dev; confine docker-uffd $DOCKER,+sys_ptrace "$@""#,
    ),
    Environment {
        inside: GIVE_UP_ROOT,
        ..of(
            "the same, the program gives up root",
            r#"container_dev; confine docker-uffd $DOCKER,+sys_ptrace "$@""#,
        )
    },
    of(
        "--device and --cap-add, --user 65534",
        r#"container_dev userfaultfd; chmod 666 /dev/userfaultfd; \
           confine docker-ptrace $DOCKER,+sys_ptrace setpriv $USER_NOBODY "$@""#,
    ),
    of(
        "the same, vswap has the file capability",
        r#"setcap_ptrace "$1"; container_dev userfaultfd; chmod 666 /dev/userfaultfd; \
           confine docker-ptrace $DOCKER,+sys_ptrace setpriv $USER_NOBODY "$@""#,
    ),
    of(
        "user with CAP_SYS_PTRACE, hidepid=2",
        r#"mount -t proc -o hidepid=2 proc /proc; setpriv $USER_NOBODY $PTRACE "$@""#,
    ),
    of(
        "root, /proc has processes alone (subset=pid)",
        r#"mount -t proc -o subset=pid proc /proc; "$@""#,
    ),
    Environment {
        needs: Some(CGROUP_V1),
        ram: "auto",
        ..of(
            "memory limit of 96 MiB by control group v1, --ram auto",
            r#"in_group /sys/fs/cgroup/memory memory.limit_in_bytes "$@""#,
        )
    },
    Environment {
        needs: Some(CGROUP_V2),
        ram: "auto",
        ..of(
            "memory limit of 96 MiB by control group v2, --ram auto",
            r#"in_group /sys/fs/cgroup memory.max "$@""#,
        )
    },
    of(
        "kernel without PAGEMAP_SCAN (before 6.7)",
        r#"confine no-scan "$@""#,
    ),
    of(
        "kernel without UFFDIO_MOVE (before 6.8)",
        r#"confine no-move "$@""#,
    ),
];
