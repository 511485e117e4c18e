//! Registers of aarch64.
//!
//! x0 has both the first argument and the result of a call. What it was when the call began the kernel keeps, and tells
//! nobody: a thread that has left a call has lost its first argument. The number of the call is a set of its own.
//!
//! The kernel lets a tracer see a call that it will make again as one that has not begun: the program counter stands
//! at the instruction again, and x0 is the argument. It has forgotten the number, so this does not look like a call
//! any more. Two things follow, and differ from x86-64. A call with a timeout relative to now has it as at first when
//! the thread goes on. And a call that ends with EINTR when its thread is stopped (epoll_pwait is one, signal(7) has
//! the others) ends with EINTR.

use std::io;

use super::regset;
use crate::abi::call::{CLONE, CLONE3};
use crate::process;

/// General registers: x0 to x30, then these.
const WORDS: usize = 34;
const SP: usize = 31;
const PC: usize = 32;
const PSTATE: usize = 33;
/// Register of the number of a call.
const NUMBER: usize = 8;
const FRAME: usize = 29;
const LINK: usize = 30;
/// What kind of jump led to the instruction that comes next. If it was one, some pages take it only at a `bti`.
const BRANCH_TYPE: u64 = 0xC00;
const NT_PRSTATUS: usize = 1;
const NT_PRFPREG: usize = 2;
const NT_ARM_SYSTEM_CALL: usize = 0x404;
const NT_ARM_SVE: usize = 0x405;
/// Vectors of 2048 bits, the longest that there can be, and the words around them.
const VECTOR_BYTES_MAX: usize = 16 << 10;
/// What comes before the registers (`struct user_sve_header`).
const SVE_HEAD_BYTES: usize = 16;
/// No system call: the kernel restarts none when the thread goes on.
const NO_CALL: i32 = -1;
/// The instruction `svc #0`.
const SVC: [u8; 4] = 0xd400_0001_u32.to_le_bytes();
/// The calls that fork.
const FORKS: [u64; 2] = [CLONE as u64, CLONE3 as u64];

/// Is every register written as it is told while the thread stands at the entry to or the exit from a call? Not x7: it
/// tells the tracer which of the two it is, and the kernel puts back what the thread had there.
pub const ALL_WRITTEN_AT_CALLS: bool = false;

/// The general ones.
#[derive(Debug, Clone, Copy)]
pub struct Registers {
    words: [u64; WORDS],
    call: i32,
    is_64_bit: bool,
}

impl Registers {
    /// Those of a thread that stands still.
    pub fn read(tid: i32) -> io::Result<Registers> {
        let mut words = [0_u64; WORDS];
        let length = regset::read(tid, NT_PRSTATUS, &mut words)?;
        // 32-bit code has 18 registers of 4 bytes each, and not the other set on older kernels.
        let is_64_bit = length == size_of_val(&words);
        let mut call = [NO_CALL];
        if is_64_bit {
            regset::read(tid, NT_ARM_SYSTEM_CALL, &mut call)?;
        }
        Ok(Registers {
            words,
            call: call[0],
            is_64_bit,
        })
    }

    /// Gives them to a thread that stands still. Where it stands before a call, that is not made.
    pub fn write(&self, tid: i32) -> io::Result<()> {
        regset::write(tid, NT_ARM_SYSTEM_CALL, &[NO_CALL])?;
        regset::write(tid, NT_PRSTATUS, &self.words)
    }

    /// Does the thread run 64-bit code?
    pub fn is_64_bit(&self) -> bool {
        self.is_64_bit
    }

    /// The number of the call that the thread is in.
    pub fn call(&self) -> Option<u64> {
        u64::try_from(self.call).ok()
    }

    /// The first argument of a call that is about to begin.
    pub fn first_argument(&self) -> u64 {
        self.words[0]
    }

    /// What a call that is over has returned.
    pub fn result(&self) -> i64 {
        self.words[0].cast_signed()
    }

    /// Has the thread stopped before a fork that the kernel has it make again when a signal has been dealt with,
    /// whatever the signal's handler says? It stands at the instruction again then.
    pub fn is_to_fork_again(&self, tid: i32) -> bool {
        let mut code = [0];
        FORKS.contains(&self.words[NUMBER])
            && process::read_words(tid.unsigned_abs(), self.words[PC], &mut code)
            && code[0].to_le_bytes().starts_with(&SVC)
    }

    /// To make a system call by the instruction at `door`.
    pub fn calling(self, door: u64, number: i64, arguments: [u64; 6]) -> Registers {
        let mut there = self.at(door);
        there.words[NUMBER] = number.cast_unsigned();
        there.words[..arguments.len()].copy_from_slice(&arguments);
        there
    }

    /// Has the thread, which stands at the entry to a call with these registers, make another call there.
    pub fn make_instead(mut self, tid: i32, number: i64, arguments: [u64; 3]) -> io::Result<()> {
        self.words[..arguments.len()].copy_from_slice(&arguments);
        regset::write(tid, NT_PRSTATUS, &self.words)?;
        let number = i32::try_from(number).map_err(|_| io::ErrorKind::InvalidInput)?;
        regset::write(tid, NT_ARM_SYSTEM_CALL, &[number])
    }

    /// To run code at `entry` with an argument, on the stack that ends there.
    pub fn running(self, entry: u64, argument: u64) -> Registers {
        let mut there = self.at(entry);
        there.words[0] = argument;
        there.words[SP] = argument & !15;
        there.words[FRAME] = 0;
        there.words[LINK] = 0;
        there
    }

    /// In no call, and at another place, as if no jump had led there.
    fn at(mut self, place: u64) -> Registers {
        self.call = NO_CALL;
        self.words[PC] = place;
        self.words[PSTATE] &= !BRANCH_TYPE;
        self
    }

    /// Those with which the thread goes on. A system call that the stop has interrupted is made again: the kernel has
    /// seen to that before it let the stop be seen.
    pub fn as_before(self) -> Registers {
        Registers {
            call: NO_CALL,
            ..self
        }
    }
}

/// Floating-point and vector registers, all that the processor has: one set, which has the others in it.
#[derive(Debug)]
pub struct Vectors {
    set: usize,
    bytes: Vec<u8>,
}

impl Vectors {
    /// Those of a thread that stands still. Long vectors if the processor has them, else those of 128 bits.
    ///
    /// EBUSY if it computes in streaming mode (SME): a system call would end that, and it is not among these. The
    /// kernel says of the long vectors nothing but their length then.
    pub fn read(tid: i32) -> io::Result<Vectors> {
        match Vectors::read_set(tid, NT_ARM_SVE) {
            Ok(vectors) if vectors.bytes.len() <= SVE_HEAD_BYTES => {
                Err(io::Error::from_raw_os_error(libc::EBUSY))
            }
            Ok(vectors) => Ok(vectors),
            Err(_) => Vectors::read_set(tid, NT_PRFPREG),
        }
    }

    fn read_set(tid: i32, set: usize) -> io::Result<Vectors> {
        let mut bytes = vec![0; VECTOR_BYTES_MAX];
        let length = regset::read(tid, set, &mut bytes)?;
        bytes.truncate(length);
        Ok(Vectors { set, bytes })
    }

    /// Gives them to a thread that stands still.
    pub fn write(&self, tid: i32) -> io::Result<()> {
        regset::write(tid, self.set, &self.bytes)
    }
}

/// Where in this code a system call is made.
pub fn call_instruction_in(code: &[u8]) -> Option<usize> {
    let found = code.chunks(SVC.len()).position(|word| word == SVC);
    found.map(|index| index * SVC.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stopped(call: i32) -> Registers {
        let mut words = [0; WORDS];
        for (word, value) in words.iter_mut().zip(100..) {
            *word = value;
        }
        words[PSTATE] = 0x8000_0400;
        Registers {
            words,
            call,
            is_64_bit: true,
        }
    }

    #[test]
    fn calls_get_their_arguments_and_nothing_else_changes() {
        let before = stopped(7);
        let call = before.calling(0x7_0000, 222, [1, 2, 3, 4, 5, 6]);
        assert_eq!(call.words[..6], [1, 2, 3, 4, 5, 6]);
        assert_eq!((call.words[NUMBER], call.words[PC]), (222, 0x7_0000));
        assert_eq!(call.call(), None);
        assert_eq!(call.words[PSTATE], 0x8000_0000, "no jump led there");
        let kept = [6..NUMBER, NUMBER + 1..PC];
        for registers in kept {
            assert_eq!(
                call.words[registers.clone()],
                before.words[registers.clone()]
            );
        }
    }

    #[test]
    fn code_gets_its_argument_and_a_stack_without_frames() {
        let code = stopped(-1).running(0x88, 0x9999);
        assert_eq!((code.words[PC], code.words[SP]), (0x88, 0x9990));
        assert_eq!((code.words[FRAME], code.words[LINK]), (0, 0));
        assert_eq!((code.first_argument(), code.call()), (0x9999, None));
    }

    #[test]
    fn a_thread_goes_on_as_the_kernel_has_left_it_and_in_no_call() {
        let before = stopped(98);
        assert_eq!(before.call(), Some(98));
        let after = before.as_before();
        assert_eq!((after.words, after.call()), (before.words, None));
    }

    #[test]
    fn results_are_numbers_with_a_sign() {
        let mut registers = stopped(98);
        registers.words[0] = u64::MAX - 3;
        assert_eq!(registers.result(), -4);
    }

    #[test]
    fn the_instruction_is_found_where_an_instruction_can_be() {
        let mut code = [0_u8; 32];
        assert_eq!(call_instruction_in(&code), None);
        code[6..10].copy_from_slice(&SVC);
        assert_eq!(call_instruction_in(&code), None);
        code[20..24].copy_from_slice(&[0x01, 0x00, 0x00, 0xd4]);
        assert_eq!(call_instruction_in(&code), Some(20));
        assert_eq!(call_instruction_in(&code[..22]), None);
    }
}
