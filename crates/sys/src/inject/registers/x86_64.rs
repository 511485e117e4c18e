//! Registers of x86-64.
//!
//! The number of the call that a thread is in is kept apart from rax, which has the result so far.

use std::io;
use std::ptr;

use super::regset;
use crate::inject::request::request;

/// Code segment of 64-bit programs.
const CS_64_BIT: u64 = 0x33;
/// No system call: the kernel restarts none when the thread goes on.
const NO_CALL: u64 = u64::MAX;
/// The instruction `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Its length.
const SYSCALL_BYTES: u64 = SYSCALL.len() as u64;
const NT_X86_XSTATE: usize = 0x202;
const XSTATE_BYTES_MAX: usize = 16 << 10;
/// What the kernel keeps of a call that a signal has interrupted, in place of its result.
const ERESTARTSYS: i64 = -512;
const ERESTARTNOINTR: i64 = -513;
const ERESTARTNOHAND: i64 = -514;
const ERESTART_RESTARTBLOCK: i64 = -516;
const EINTR: i64 = -(libc::EINTR as i64);
/// Calls that end with EINTR when their thread is stopped, where others are made again (signal(7)). They have done
/// nothing then. `close` and `connect` are not among them: what they have begun cannot be begun again.
const CUT_SHORT: [i64; 18] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    // Of sockets with a timeout.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
];

/// The general ones.
#[derive(Debug, Clone, Copy)]
pub struct Registers(libc::user_regs_struct);

impl Registers {
    /// Those of a thread that stands still.
    pub fn read(tid: i32) -> io::Result<Registers> {
        // SAFETY: a record of integers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let place = (&raw mut registers).expose_provenance();
        request(libc::PTRACE_GETREGS, tid, 0, place)?;
        Ok(Registers(registers))
    }

    /// Gives them to a thread that stands still.
    pub fn write(&self, tid: i32) -> io::Result<()> {
        let place = ptr::from_ref(&self.0).expose_provenance();
        request(libc::PTRACE_SETREGS, tid, 0, place)
    }

    /// Does the thread run 64-bit code?
    pub fn is_64_bit(&self) -> bool {
        self.0.cs == CS_64_BIT
    }

    /// The number of the call that the thread is in.
    pub fn call(&self) -> Option<u64> {
        (self.0.orig_rax != NO_CALL).then_some(self.0.orig_rax)
    }

    /// The first argument of a call that is about to begin.
    pub fn first_argument(&self) -> u64 {
        self.0.rdi
    }

    /// What a call that is over has returned.
    pub fn result(&self) -> i64 {
        self.0.rax.cast_signed()
    }

    /// Has the thread stopped before a fork that the kernel has it make again when a signal has been dealt with,
    /// whatever the signal's handler says?
    pub fn is_to_fork_again(&self, _tid: i32) -> bool {
        self.call().is_some() && self.result() == ERESTARTNOINTR
    }

    /// To make a system call by the instruction at `door`.
    pub fn calling(self, door: u64, number: i64, arguments: [u64; 6]) -> Registers {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        Registers(libc::user_regs_struct {
            rax: number.cast_unsigned(),
            orig_rax: NO_CALL,
            rip: door,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.0
        })
    }

    /// Has the thread, which stands at the entry to a call with these registers, make another call there.
    pub fn make_instead(self, tid: i32, number: i64, arguments: [u64; 3]) -> io::Result<()> {
        let [rdi, rsi, rdx] = arguments;
        let other = libc::user_regs_struct {
            orig_rax: number.cast_unsigned(),
            rdi,
            rsi,
            rdx,
            ..self.0
        };
        Registers(other).write(tid)
    }

    /// To run code at `entry` with an argument, on the stack that ends there.
    pub fn running(self, entry: u64, argument: u64) -> Registers {
        Registers(libc::user_regs_struct {
            orig_rax: NO_CALL,
            rip: entry,
            rsp: argument & !15,
            rbp: 0,
            rdi: argument,
            ..self.0
        })
    }

    /// Those with which the thread goes on. A system call that the stop has interrupted is made again, as the kernel
    /// itself would have it made again. One that the kernel would let end with EINTR is too, with its timeout as at
    /// first: a signal that was meant to end it is still pending, because the stop comes before signals.
    pub fn as_before(self) -> Registers {
        let mut registers = self.0;
        if let Some(call) = self.call() {
            let again = match self.result() {
                ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND => Some(call),
                ERESTART_RESTARTBLOCK => Some(libc::SYS_restart_syscall.cast_unsigned()),
                EINTR if CUT_SHORT.contains(&call.cast_signed()) => Some(call),
                _ => None,
            };
            if let Some(again) = again {
                registers.rax = again;
                registers.rip -= SYSCALL_BYTES;
            }
        }
        registers.orig_rax = NO_CALL;
        Registers(registers)
    }
}

/// Floating-point and vector registers, all that the processor has.
#[derive(Debug)]
pub struct Vectors(Vec<u8>);

impl Vectors {
    /// Those of a thread that stands still.
    pub fn read(tid: i32) -> io::Result<Vectors> {
        let mut bytes = vec![0; XSTATE_BYTES_MAX];
        let length = regset::read(tid, NT_X86_XSTATE, &mut bytes)?;
        bytes.truncate(length);
        Ok(Vectors(bytes))
    }

    /// Gives them to a thread that stands still.
    pub fn write(&self, tid: i32) -> io::Result<()> {
        regset::write(tid, NT_X86_XSTATE, &self.0)
    }
}

/// Where in this code a system call is made.
pub fn call_instruction_in(code: &[u8]) -> Option<usize> {
    code.windows(SYSCALL.len()).position(|two| two == SYSCALL)
}

/// Is every register written as it is told while the thread stands at the entry to or the exit from a call?
pub const ALL_WRITTEN_AT_CALLS: bool = true;

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: u64 = 35;
    const RIP: u64 = 0x1000;

    /// A thread that a stop has found in system call `call`, with this result so far.
    fn stopped_in(call: u64, result: i64) -> Registers {
        // SAFETY: a record of integers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        registers.orig_rax = call;
        registers.rax = result.cast_unsigned();
        registers.rip = RIP;
        registers.rdi = 7;
        Registers(registers)
    }

    /// Number of the call that is made again, none if the thread goes on behind it.
    fn made_again(call: u64, result: i64) -> Option<u64> {
        let after = stopped_in(call, result).as_before().0;
        assert_eq!((after.orig_rax, after.rdi), (NO_CALL, 7));
        if after.rip == RIP {
            assert_eq!(after.rax, result.cast_unsigned());
            return None;
        }
        assert_eq!(after.rip, RIP - SYSCALL_BYTES);
        Some(after.rax)
    }

    #[test]
    fn interrupted_calls_are_made_again_and_others_keep_their_result() {
        for code in [ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND] {
            assert_eq!(made_again(CALL, code), Some(CALL));
        }
        let restart = libc::SYS_restart_syscall.cast_unsigned();
        assert_eq!(made_again(CALL, ERESTART_RESTARTBLOCK), Some(restart));
        // -515 is ENOIOCTLCMD, which is none of them.
        for result in [
            0,
            5,
            -515,
            -517,
            -i64::from(libc::EINTR),
            -i64::from(libc::EAGAIN),
        ] {
            assert_eq!(made_again(CALL, result), None, "{result}");
        }
        for code in [ERESTARTSYS, ERESTART_RESTARTBLOCK] {
            assert_eq!(
                made_again(NO_CALL, code),
                None,
                "it computes, and that is a number of its"
            );
        }
    }

    #[test]
    fn calls_and_code_get_their_arguments() {
        let call = stopped_in(NO_CALL, 3)
            .calling(0x77, 9, [1, 2, 3, 4, 5, 6])
            .0;
        let arguments = [call.rdi, call.rsi, call.rdx, call.r10, call.r8, call.r9];
        assert_eq!(arguments, [1, 2, 3, 4, 5, 6]);
        assert_eq!((call.rip, call.rax), (0x77, 9));
        let code = stopped_in(NO_CALL, 3).running(0x88, 0x9999);
        assert_eq!((code.0.rip, code.0.rsp), (0x88, 0x9990));
        assert_eq!((code.first_argument(), code.call()), (0x9999, None));
    }
}
