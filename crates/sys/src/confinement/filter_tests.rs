//! The programs of the filter, run step by step: no kernel is asked.

use super::*;
use crate::abi::call::{ARCHITECTURE, ARCHITECTURE_32_BIT};

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
/// The bit of a call of the x32 ABI. Elsewhere such a number is none of a call.
const X32: c_long = 0x4000_0000;

/// What a program answers to a call.
fn answer(program: &[sock_filter], architecture: u32, call: c_long, arguments: [u64; 6]) -> u32 {
    // `seccomp_data`. No program looks at the address of the instruction.
    let head = [u32::try_from(call).unwrap(), architecture, 0, 0].map(u32::to_ne_bytes);
    let data = [
        head.as_flattened(),
        arguments.map(u64::to_ne_bytes).as_flattened(),
    ]
    .concat();
    let word = |at: usize| u32::from_ne_bytes(data[at..at + 4].try_into().unwrap());
    let (mut at, mut value) = (0, 0_u32);
    loop {
        let step = &program[at];
        at += 1;
        let mut jump = |is_so: bool| at += usize::from(if is_so { step.jt } else { step.jf });
        match u32::from(step.code) {
            code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                value = word(step.k as usize);
            }
            code if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K => value &= step.k,
            code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => jump(value == step.k),
            code if code == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K => jump(value >= step.k),
            code if code == libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K => jump(value > step.k),
            code if code == libc::BPF_JMP | libc::BPF_JA => at += step.k as usize,
            code if code == libc::BPF_RET | libc::BPF_K => return step.k,
            code => panic!("step {code:#x} is not known"),
        }
    }
}

/// The stricter of two answers, as the kernel has it: the lower one, taken as signed.
fn verdict(call: c_long, arguments: [u64; 6]) -> u32 {
    verdict_of(Reach::Machine, call, arguments)
}

fn verdict_of(reach: Reach, call: c_long, arguments: [u64; 6]) -> u32 {
    let programs = [ending().unwrap(), allowing(reach).unwrap()];
    let answers = programs.map(|program| answer(&program, ARCHITECTURE, call, arguments));
    let strictness = |answer: &u32| (answer & libc::SECCOMP_RET_ACTION_FULL).cast_signed();
    answers.into_iter().min_by_key(strictness).unwrap()
}

fn with(argument: usize, value: u64) -> [u64; 6] {
    let mut arguments = [0; 6];
    arguments[argument] = value;
    arguments
}

fn refusal() -> u32 {
    u32::from(REFUSAL)
}

#[test]
fn listed_calls_are_made_and_others_refused() {
    for call in calls::allowed().filter(|call| *call != libc::SYS_seccomp) {
        assert_eq!(verdict(call, [u64::MAX; 6]), ALLOW, "{call}");
    }
    for call in [
        libc::SYS_clone3,
        libc::SYS_capset,
        libc::SYS_sync,
        libc::SYS_shmget,
    ] {
        assert_eq!(verdict(call, [0; 6]), refusal(), "{call}");
    }
    assert_eq!(verdict(X32 | libc::SYS_read, [0; 6]), refusal());
    assert_eq!(verdict(X32 | libc::SYS_ioctl, [0; 6]), refusal());
}

#[test]
fn the_lists_are_as_long_as_the_documentation_says() {
    let lengths = [
        calls::allowed().count(),
        calls::allowed_with(Reach::Machine).len(),
        calls::fatal().count(),
        calls::fatal_with().len(),
    ];
    let documented = if cfg!(target_arch = "x86_64") {
        [151, 9, 66, 1]
    } else {
        [134, 9, 58, 1]
    };
    assert_eq!(lengths, documented);
}

#[test]
fn attacks_are_the_end() {
    for call in calls::fatal() {
        assert_eq!(verdict(call, [0; 6]), KILL, "{call}");
    }
    // Of another word size: what the numbers mean there nobody has looked at.
    let program = allowing(Reach::Machine).unwrap();
    assert_eq!(
        answer(&program, ARCHITECTURE_32_BIT, libc::SYS_read, [0; 6]),
        KILL
    );
}

#[test]
fn threads_are_made_and_no_processes() {
    let number = |flags: i32| u64::from(flags.unsigned_abs());
    let thread = number(libc::CLONE_THREAD | libc::CLONE_VM | libc::CLONE_FILES);
    assert_eq!(verdict(libc::SYS_clone, with(0, thread)), ALLOW);
    for flags in [0, libc::SIGCHLD, libc::CLONE_VM | libc::CLONE_VFORK] {
        assert_eq!(verdict(libc::SYS_clone, with(0, number(flags))), KILL);
    }
}

#[test]
fn others_are_reached_only_if_an_area_is_there() {
    let socket = |reach, family: i32| {
        let family = with(0, u64::from(family.unsigned_abs()));
        verdict_of(reach, libc::SYS_socket, family)
    };
    for reach in [Reach::Machine, Reach::Network] {
        let (allowed, is_far) = (
            |is_so| if is_so { ALLOW } else { refusal() },
            reach == Reach::Network,
        );
        assert_eq!(socket(reach, libc::AF_UNIX), ALLOW);
        assert_eq!(socket(reach, libc::AF_INET), allowed(is_far));
        assert_eq!(socket(reach, libc::AF_INET6), allowed(is_far));
        assert_eq!(socket(reach, libc::AF_PACKET), refusal());
        assert_eq!(
            verdict_of(reach, libc::SYS_sendmmsg, [0; 6]),
            allowed(is_far)
        );
    }
}

#[test]
fn arguments_are_looked_at() {
    let executable = u64::from((libc::PROT_READ | libc::PROT_EXEC).unsigned_abs());
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        assert_eq!(verdict(call, with(2, 3)), ALLOW);
        assert_eq!(verdict(call, with(2, executable)), refusal());
    }
    for (request, expected) in [
        (0xC028_AA03, ALLOW), // UFFDIO_COPY
        (0xC050_2100, ALLOW), // SECCOMP_IOCTL_NOTIF_RECV
        (0xC060_6610, ALLOW), // PAGEMAP_SCAN
        (libc::TIOCGWINSZ, ALLOW),
        (libc::TIOCSTI, refusal()),
        (0x4008_6602, refusal()), // FS_IOC_SETFLAGS
    ] {
        assert_eq!(
            verdict(libc::SYS_ioctl, with(1, request)),
            expected,
            "{request:#x}"
        );
    }
    assert_eq!(verdict(libc::SYS_prlimit64, [0; 6]), ALLOW);
    // A pointer whose low half is 0.
    assert_eq!(verdict(libc::SYS_prlimit64, with(2, 1 << 32)), refusal());
    let traces = |request: u32| with(0, u64::from(request));
    assert_eq!(verdict(libc::SYS_ptrace, traces(libc::PTRACE_SEIZE)), ALLOW);
    assert_eq!(
        verdict(libc::SYS_ptrace, traces(libc::PTRACE_ATTACH)),
        refusal()
    );
}
