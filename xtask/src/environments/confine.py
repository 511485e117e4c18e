"""Runs a command under a seccomp filter: confine.py FILTER COMMAND [ARG...]

docker         what Docker's default profile refuses, on x86_64, to a container with the default capabilities
docker-ptrace  the same with CAP_SYS_PTRACE added, for which the profile allows three calls more
docker-uffd    docker-ptrace, and userfaultfd allowed besides
no-scan        PAGEMAP_SCAN is not there, as before Linux 6.7
no-move        UFFDIO_MOVE is not there, as before Linux 6.8

Profiles list what they allow. This is the other side of Docker's list (github.com/moby/profiles, seccomp/default.json
of 2025), which is shorter and shows what is missing. containerd and Podman refuse the same of what vswap uses.
Filters by argument (personality, families of sockets, namespaces of clone) are left out: vswap does not come near them.
"""

import ctypes
import os
import struct
import sys

EPERM, ENOTTY, ENOSYS = 1, 25, 38
REFUSED = """
syslog=103 uselib=134 ustat=136 sysfs=139 vhangup=153 pivot_root=155 _sysctl=156 acct=163 settimeofday=164 mount=165
umount2=166 swapon=167 swapoff=168 reboot=169 sethostname=170 setdomainname=171 iopl=172 ioperm=173 create_module=174
init_module=175 delete_module=176 get_kernel_syms=177 query_module=178 quotactl=179 nfsservctl=180 getpmsg=181
putpmsg=182 afs_syscall=183 tuxcall=184 security=185 lookup_dcookie=212 clock_settime=227 vserver=236 mbind=237
set_mempolicy=238 get_mempolicy=239 kexec_load=246 add_key=248 request_key=249 keyctl=250 migrate_pages=256
unshare=272 move_pages=279 perf_event_open=298 fanotify_init=300 open_by_handle_at=304 setns=308 kcmp=312
finit_module=313 kexec_file_load=320 bpf=321 userfaultfd=323 io_uring_setup=425 io_uring_enter=426
io_uring_register=427 open_tree=428 move_mount=429 fsopen=430 fsconfig=431 fsmount=432 fspick=433
pidfd_getfd=438 process_madvise=440 mount_setattr=442 quotactl_fd=443 set_mempolicy_home_node=450
"""
PTRACE = ["kcmp", "pidfd_getfd", "process_madvise"]
IOCTL, CLONE3, NEWEST = 16, 435, 467
PAGEMAP_SCAN, UFFDIO_MOVE = 0xC0606610, 0xC028AA05

# Classic BPF on struct seccomp_data: the number is at 0, the low half of the second argument at 24.
LOAD, IS, IS_ABOVE, RETURN = 0x20, 0x15, 0x25, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000


def refuse(number, errno):
    return [(IS, 0, 1, number), (RETURN, 0, 0, FAIL | errno)]


def docker(allowed):
    calls = dict(call.split("=") for call in REFUSED.split())
    rules = [(LOAD, 0, 0, 0)]
    for name, number in calls.items():
        if name not in allowed:
            rules += refuse(int(number), EPERM)
    # C libraries fall back to clone. Calls that the profile does not know are answered as an older kernel would.
    return rules + refuse(CLONE3, ENOSYS) + [(IS_ABOVE, 0, 1, NEWEST), (RETURN, 0, 0, FAIL | ENOSYS)]


def no_ioctl(request):
    return [(LOAD, 0, 0, 0), (IS, 0, 3, IOCTL), (LOAD, 0, 0, 24)] + refuse(request, ENOTTY)


FILTERS = {
    "docker": docker([]),
    "docker-ptrace": docker(PTRACE),
    "docker-uffd": docker(PTRACE + ["userfaultfd"]),
    "no-scan": no_ioctl(PAGEMAP_SCAN),
    "no-move": no_ioctl(UFFDIO_MOVE),
}
rules = FILTERS[sys.argv[1]] + [(RETURN, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_SECCOMP, MODE_FILTER = 22, 2
if libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(MODE_FILTER), ctypes.byref(program), 0, 0):
    sys.exit(f"the filter was refused: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[2], sys.argv[2:])
