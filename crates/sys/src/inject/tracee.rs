//! One thread of another process, stopped for a moment by ptrace, and what it is made to do meanwhile.
//!
//! A thread is made to run other code by changing its registers while it is stopped. It makes system calls with an
//! instruction of its own vdso, so nothing of the program's text changes. The stops are those at the entry to and the
//! exit from system calls: they raise no signal, so no handler and no mask of the program is touched. All signals but
//! SIGKILL and SIGSTOP are blocked meanwhile; they come when the thread goes on.

use std::io;
use std::ptr::{self, null_mut};
use std::time::{Duration, Instant};

use linux_raw_sys::ptrace::{PTRACE_GET_RSEQ_CONFIGURATION, ptrace_rseq_configuration};

use super::InjectError;
use super::budget::Budget;
use super::registers::{ALL_WRITTEN_AT_CALLS, Registers, Vectors, call_instruction_in};
use super::request::{failed, request};
use crate::memory::maps;
use crate::patience;
use crate::process::{procfs, task};

/// How long a thread may take to stop. One that waits for a disk or in a vfork stops when that is over.
const STOP_PATIENCE: Duration = Duration::from_millis(20);
/// How long after an exec it is seen that a thread does not stop because it is not traced.
const EXEC_PATIENCE: Duration = Duration::from_secs(2);
/// How long a program that is being started may take until it stands before its first instruction: it is read from a
/// disk.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long the end of a thread that was killed is waited for. One that waits for a device may take longer. Its parent
/// hears of it when this thread waits for children, or ends.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// How long a write to the memory of a process may take: its other threads run on, and may have put the place under a
/// userfaultfd that nobody serves.
const WRITE_PATIENCE: Duration = Duration::from_secs(1);
const PACE: Duration = Duration::from_micros(30);
/// Most system calls that the agent's entry may make.
const CALLS_MAX: u32 = 1000;

/// `read(-1, 0, 0)`: a call that does nothing, and that filters permit.
const NOTHING_READ: (i64, [u64; 3]) = (libc::SYS_read, [u64::MAX, 0, 0]);

/// Stops at system calls are told from signals. A process that is half made over does not run on if vswap is killed.
pub(super) const OPTIONS: usize = (libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL) as usize;

/// A thread that is traced and has perhaps not stopped yet. It is let go when the tracing thread ends at the latest.
#[derive(Debug)]
pub struct Tracee {
    tid: i32,
    /// It goes on as it is if something fails.
    may_go_on: bool,
    /// The signal mask to go on with, if it was born with another one.
    mask: Option<u64>,
}

/// A thread that has stopped, with what it has to have again when it goes on.
#[derive(Debug)]
pub struct Stopped {
    tid: i32,
    registers: Registers,
    vectors: Vectors,
    signals: u64,
    /// Address of an instruction in the process that makes a system call.
    door: u64,
    is_released: bool,
    budget: Budget,
}

impl Tracee {
    /// Begins to trace thread `tid` of another process and has it stop. Until it has stopped it is only watched, and
    /// goes on unharmed when the tracing thread ends.
    ///
    /// # Errors
    /// `Busy` if a debugger has it, `NotPermitted`, `Gone`.
    pub fn seize(tid: u32) -> Result<Tracee, InjectError> {
        let tid = i32::try_from(tid).map_err(|_| InjectError::Gone)?;
        seize(tid, 0)?;
        let tracee = Tracee::new(tid);
        request(libc::PTRACE_INTERRUPT, tid, 0, 0).map_err(failed)?;
        Ok(tracee)
    }

    /// A process that the kernel has made a tracee of this thread, because its parent is one. It has inherited its
    /// parent's options, which would have threads of its agent traced too. Where its parent's signals were blocked for
    /// the fork, `mask` is what it is to have.
    pub(super) fn born(tid: i32, mask: Option<u64>) -> Tracee {
        Tracee {
            mask,
            ..Tracee::new(tid)
        }
    }

    fn new(tid: i32) -> Tracee {
        Tracee {
            tid,
            may_go_on: true,
            mask: None,
        }
    }

    /// From now on it does not go on as it is: whatever fails, it is killed before it runs.
    pub fn hold(&mut self) {
        self.may_go_on = false;
    }

    /// Lets it go on as it is, with this signal or with 0, if it may.
    fn let_go(&self, signal: usize) {
        if !self.may_go_on {
            // It may have gone.
            let _ = crate::process::kill(self.tid.unsigned_abs());
        }
        if let Some(mask) = self.mask {
            let _ = set_signal_mask(self.tid, mask);
        }
        let _ = detach(self.tid, signal);
    }

    /// A child of this thread that has asked to be traced and has just become another program.
    ///
    /// # Errors
    /// `Gone`; `NotPermitted` if it does not stop, because it was refused to be traced; and what ptrace says.
    pub fn after_exec(pid: u32) -> Result<Tracee, InjectError> {
        let tid = i32::try_from(pid).map_err(|_| InjectError::Gone)?;
        let tracee = Tracee::new(tid);
        // Its descriptors close a moment before it stops, which is all that its parent sees of the exec.
        let mut stopped = tracee.await_stop(EXEC_PATIENCE)?;
        if stopped.is_none() && task::tracer_of(pid).is_some() {
            stopped = tracee.await_stop(START_PATIENCE)?;
        }
        stopped.ok_or_else(|| InjectError::NotPermitted(io::ErrorKind::PermissionDenied.into()))?;
        Ok(tracee)
    }

    /// The thread.
    pub fn tid(&self) -> u32 {
        self.tid.unsigned_abs()
    }

    /// Waits a moment for the thread to stop. `Err` with the tracee itself while it has not.
    ///
    /// # Errors
    /// `Gone`; `Busy` if the process is stopped by a signal; `OtherMachine`, `NoVdso`. It is let go then.
    pub fn stop(self) -> Result<Result<Stopped, Tracee>, InjectError> {
        let Some(registers) = self.await_stop(STOP_PATIENCE)? else {
            return Ok(Err(self));
        };
        if let Some(signal) = signal_of_stop(self.tid) {
            // Not to be lost: without it the program would go on as if it had never been sent.
            self.let_go(usize::try_from(signal).unwrap_or(0));
            return Err(InjectError::Busy);
        }
        match self.look(registers) {
            Ok(stopped) => Ok(Ok(stopped)),
            Err(error) => {
                // Nothing has changed.
                self.let_go(0);
                Err(error)
            }
        }
    }

    fn await_stop(&self, patience: Duration) -> Result<Option<Registers>, InjectError> {
        let since = Instant::now();
        loop {
            match Registers::read(self.tid) {
                Ok(registers) => {
                    forget_stop(self.tid);
                    return Ok(Some(registers));
                }
                // It runs, or it has gone.
                Err(_) if has_ended(self.tid) => return Err(InjectError::Gone),
                Err(_) if since.elapsed() > patience => return Ok(None),
                Err(_) => std::thread::sleep(PACE),
            }
        }
    }

    fn look(&self, registers: Registers) -> Result<Stopped, InjectError> {
        request(libc::PTRACE_SETOPTIONS, self.tid, 0, OPTIONS).map_err(failed)?;
        if !registers.is_64_bit() {
            return Err(InjectError::OtherMachine);
        }
        let door = door(self.tid)?;
        let vectors = Vectors::read(self.tid).map_err(failed)?;
        let signals = self.mask.map_or_else(|| signal_mask(self.tid), Ok)?;
        // Those that are forced stay: whoever blocks them is killed by them.
        set_signal_mask(self.tid, u64::MAX)?;
        Ok(Stopped {
            tid: self.tid,
            registers,
            vectors,
            signals,
            door,
            is_released: false,
            budget: Budget::new(self.tid),
        })
    }
}

impl Stopped {
    /// The thread.
    pub fn tid(&self) -> u32 {
        self.tid.unsigned_abs()
    }

    /// Has the thread make a system call. For all that it is told it may take 15 s asleep and 2 s of CPU time
    /// (`budget.rs`).
    ///
    /// # Errors
    /// `Refused` with the call's errno; `Ptrace`; `Gone`; `GivenUp` if the call does not end.
    pub fn call(
        &mut self,
        name: &'static str,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<u64, InjectError> {
        let calling = self.registers.calling(self.door, number, arguments);
        calling.write(self.tid).map_err(failed)?;
        self.next_stop()?;
        self.next_stop()?;
        let returned = Registers::read(self.tid).map_err(failed)?.result();
        match i32::try_from(returned) {
            Ok(errno @ -4095..=-1) => Err(InjectError::Refused {
                call: name,
                error: io::Error::from_raw_os_error(-errno),
            }),
            _ => Ok(returned.cast_unsigned()),
        }
    }

    /// Writes to the process's memory.
    ///
    /// # Errors
    /// `Gone`, `Ptrace`.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), InjectError> {
        let (tid, bytes) = (self.tid, bytes.to_vec());
        let written = patience::within(WRITE_PATIENCE, move || write(tid, address, &bytes));
        written.unwrap_or(Err(InjectError::Busy))
    }

    /// Where the kernel writes whenever the thread goes on in the program (rseq(2)): address and bytes. None if the
    /// program has not asked for that, or the kernel does not tell.
    pub fn rseq(&self) -> Option<(u64, u64)> {
        // SAFETY: a record of integers.
        let mut found: ptrace_rseq_configuration = unsafe { std::mem::zeroed() };
        let bytes = size_of::<ptrace_rseq_configuration>();
        let place = (&raw mut found).expose_provenance();
        request(PTRACE_GET_RSEQ_CONFIGURATION, self.tid, bytes, place).ok()?;
        let is_used = found.rseq_abi_pointer != 0;
        is_used.then_some((found.rseq_abi_pointer, u64::from(found.rseq_abi_size)))
    }

    /// Has the thread run code at `entry`, with `argument`, on the stack that ends at the argument, until it makes the
    /// system call `last`. Returns that call's first argument.
    ///
    /// Where it enters a system call it must not be let go, even if that call is taken from it: seccomp filters are
    /// asked all the same, about a call with the number -1. Container runtimes have such a call fail with ENOSYS, and
    /// the kernel writes that into the register for the result, which is the program's by then. So it makes a call that
    /// does nothing and that filters permit, `read` of no descriptor, and stands behind that.
    ///
    /// # Errors
    /// `Ptrace`; `Gone`; `GivenUp` if it never came there.
    pub fn run_until(&mut self, entry: u64, argument: u64, last: u64) -> Result<u64, InjectError> {
        let running = self.registers.running(entry, argument);
        running.write(self.tid).map_err(failed)?;
        for _ in 0..CALLS_MAX {
            self.next_stop()?;
            let now = Registers::read(self.tid).map_err(failed)?;
            if now.call() == Some(last) {
                let outcome = now.first_argument();
                let (number, arguments) = NOTHING_READ;
                now.make_instead(self.tid, number, arguments)
                    .map_err(failed)?;
                self.next_stop()?;
                return Ok(outcome);
            }
        }
        Err(self.give_up("made too many system calls"))
    }

    /// Lets the thread go on as it was.
    ///
    /// # Errors
    /// `Gone` if it has ended meanwhile.
    pub fn release(mut self) -> Result<(), InjectError> {
        self.is_released = true;
        self.put_back()
    }

    /// Ends its process, which must not run on.
    pub fn end(mut self) {
        self.is_released = true;
        self.kill();
    }

    fn put_back(&self) -> Result<(), InjectError> {
        let outcome = self
            .vectors
            .write(self.tid)
            .map_err(failed)
            .and_then(|()| self.put_registers_back())
            .and_then(|()| set_signal_mask(self.tid, self.signals));
        outcome.and(detach(self.tid, 0).map_err(failed))
    }

    fn put_registers_back(&self) -> Result<(), InjectError> {
        let before = self.registers.as_before();
        before.write(self.tid).map_err(failed)?;
        if ALL_WRITTEN_AT_CALLS || request(libc::PTRACE_INTERRUPT, self.tid, 0, 0).is_err() {
            // A program that has asked itself to be traced cannot be interrupted. It stands before its first
            // instruction, which expects nothing in any register.
            return Ok(());
        }
        // Not at a call any more: it stops once more before it runs.
        request(libc::PTRACE_CONT, self.tid, 0, 0).map_err(failed)?;
        let since = Instant::now();
        while stop_of(self.tid).is_none() {
            if has_ended(self.tid) {
                return Err(InjectError::Gone);
            }
            if since.elapsed() > END_PATIENCE {
                return Err(InjectError::Busy);
            }
            std::thread::sleep(PACE);
        }
        forget_stop(self.tid);
        before.write(self.tid).map_err(failed)
    }

    /// It is in the middle of what is not its own, and does not get on with it: it must not run on.
    fn give_up(&self, why: &'static str) -> InjectError {
        self.kill();
        InjectError::GivenUp(why)
    }

    fn kill(&self) {
        // It may have gone.
        let _ = crate::process::kill(self.tid.unsigned_abs());
        await_end(self.tid);
    }

    /// Runs on to the next entry to or exit from a system call.
    fn next_stop(&mut self) -> Result<(), InjectError> {
        let mut signal = 0;
        loop {
            request(libc::PTRACE_SYSCALL, self.tid, 0, signal).map_err(failed)?;
            let excess = match wait_for_stop(self.tid, &mut self.budget)? {
                Ok(Stop::Call) => return Ok(()),
                // Stopped by SIGSTOP, which cannot be blocked: it stops when it is let go, by the same signal.
                Ok(Stop::Signal(stop)) => {
                    signal = usize::try_from(stop).unwrap_or(0);
                    self.budget.note_signal()
                }
                Err(excess) => Some(excess),
            };
            if let Some(excess) = excess {
                return Err(self.give_up(excess));
            }
            if signal == libc::SIGTRAP.unsigned_abs() as usize {
                signal = 0;
            }
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if !self.is_released {
            let _ = self.put_back();
        }
    }
}

fn write(tid: i32, address: u64, bytes: &[u8]) -> Result<(), InjectError> {
    let local = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let remote = libc::iovec {
        iov_base: ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0)),
        iov_len: bytes.len(),
    };
    // SAFETY: the local span is only read. What the remote one names is another process's matter.
    let written =
        unsafe { libc::process_vm_writev(tid, &raw const local, 1, &raw const remote, 1, 0) };
    if written == isize::try_from(bytes.len()).unwrap_or(-1) {
        Ok(())
    } else {
        Err(failed(io::Error::last_os_error()))
    }
}

/// Begins to trace a thread, which runs on.
pub(super) fn seize(tid: i32, options: usize) -> Result<(), InjectError> {
    request(libc::PTRACE_SEIZE, tid, 0, options).map_err(|error| {
        let is_traced = task::tracer_of(tid.unsigned_abs()).is_some();
        match error.raw_os_error() {
            Some(libc::ESRCH) => InjectError::Gone,
            _ if is_traced => InjectError::Busy,
            _ => InjectError::NotPermitted(error),
        }
    })
}

pub(super) fn signal_mask(tid: i32) -> Result<u64, InjectError> {
    let mut mask = 0_u64;
    let place = (&raw mut mask).expose_provenance();
    request(libc::PTRACE_GETSIGMASK, tid, size_of::<u64>(), place).map_err(failed)?;
    Ok(mask)
}

pub(super) fn set_signal_mask(tid: i32, mask: u64) -> Result<(), InjectError> {
    let place = (&raw const mask).expose_provenance();
    request(libc::PTRACE_SETSIGMASK, tid, size_of::<u64>(), place).map_err(failed)
}

/// The signal that a thread has stopped with, if it is being delivered; 0 if the whole process is stopped by SIGSTOP or
/// its like. None at a stop that was asked for.
pub(super) fn signal_of_stop(tid: i32) -> Option<i32> {
    /// What the kernel writes above the signal where the stop is none for a signal.
    const EVENT_STOP: i32 = 128;
    // SAFETY: a record of integers and pointers that are not used.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let place = (&raw mut info).expose_provenance();
    match request(libc::PTRACE_GETSIGINFO, tid, 0, place) {
        Ok(()) if info.si_signo == libc::SIGTRAP => None,
        Ok(()) if info.si_code >> 8 == EVENT_STOP => Some(0),
        Ok(()) => Some(info.si_signo),
        // There is none to be had at the stop of a whole group.
        Err(error) => (error.raw_os_error() == Some(libc::EINVAL)).then_some(0),
    }
}

/// Has a tracee ended? Then whoever else waits for its end may see it.
pub(super) fn has_ended(tid: i32) -> bool {
    let ended = task::has_ended(tid.unsigned_abs());
    if ended {
        pass_end_on(tid);
    }
    ended
}

/// Lets a stopped tracee go on, with a signal or with 0.
pub(super) fn detach(tid: i32, signal: usize) -> io::Result<()> {
    let outcome = request(libc::PTRACE_DETACH, tid, 0, signal);
    if outcome.is_err() {
        // SIGKILL alone ends a stop without us.
        await_end(tid);
    }
    outcome
}

fn await_end(tid: i32) {
    let since = Instant::now();
    while !has_ended(tid) && since.elapsed() < END_PATIENCE {
        std::thread::sleep(PACE);
    }
}

/// The kernel tells of a tracee's end only to the tracer. When that has taken note of it, it is the parent's turn. An
/// end for which this process waits elsewhere is left to whoever does.
fn pass_end_on(tid: i32) {
    let pid = tid.unsigned_abs();
    let is_own_child = procfs::stat(pid).is_ok_and(|stat| stat.parent == std::process::id());
    if is_own_child && task::process_of(pid) == Some(pid) {
        return;
    }
    let options = libc::WEXITED | libc::WNOHANG | libc::__WALL | libc::__WNOTHREAD;
    let since = Instant::now();
    // The end of a main thread can be taken note of when the other threads of its process have ended too.
    while since.elapsed() < END_PATIENCE {
        // SAFETY: a record of integers and pointers that are not used.
        let mut news: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the record outlives the call.
        let waited = unsafe { libc::waitid(libc::P_PID, pid, &raw mut news, options) };
        // SAFETY: the kernel has filled it in, with 0 if there is no news.
        if waited != 0 || unsafe { news.si_pid() } != 0 {
            return;
        }
        std::thread::sleep(PACE);
    }
}

/// The kernel tells of a stop to whoever waits; nobody else shall take it for news of a child.
pub(super) fn forget_stop(tid: i32) {
    let options = libc::WSTOPPED | libc::WNOHANG | libc::__WALL | libc::__WNOTHREAD;
    // SAFETY: no record is wanted. An end is not reaped, as it is not asked for.
    unsafe { libc::waitid(libc::P_PID, tid.unsigned_abs(), null_mut(), options) };
}

/// Why a thread that runs from call to call has stopped.
pub(super) enum Stop {
    /// It enters a system call, or leaves one.
    Call,
    /// For this signal.
    Signal(i32),
}

/// Waits for the next stop. `Err` with what it takes too much of. The end of the process is left to whoever waits for
/// it.
///
/// The kernel's own news of the stop is not waited for. Another thread of vswap may take it: that which reaps orphans,
/// if the tracee has become one.
fn wait_for_stop(tid: i32, budget: &mut Budget) -> Result<Result<Stop, &'static str>, InjectError> {
    loop {
        if let Some(stop) = stop_of(tid) {
            forget_stop(tid);
            return Ok(Ok(stop));
        }
        if has_ended(tid) {
            return Err(InjectError::Gone);
        }
        if let Some(excess) = budget.look() {
            return Ok(Err(excess));
        }
        std::thread::sleep(PACE);
    }
}

/// Why a thread stands still. None while it runs.
pub(super) fn stop_of(tid: i32) -> Option<Stop> {
    // SAFETY: a record of integers and pointers that are not used.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let place = (&raw mut info).expose_provenance();
    match request(libc::PTRACE_GETSIGINFO, tid, 0, place) {
        Ok(()) if info.si_code == libc::SIGTRAP | 0x80 => Some(Stop::Call),
        Ok(()) => Some(Stop::Signal(info.si_signo)),
        // There is none to be had at the stop of a whole group.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Some(Stop::Signal(libc::SIGSTOP))
        }
        Err(_) => None,
    }
}

/// The address of an instruction in the vdso of a process that makes a system call.
fn door(tid: i32) -> Result<u64, InjectError> {
    let pid = tid.unsigned_abs();
    let mut text = Vec::new();
    maps::read(pid, &mut text).map_err(|_| InjectError::Gone)?;
    let vdso = maps::parse(&text)
        .filter_map(Result::ok)
        .find(|mapping| mapping.name == maps::Name::Special(b"vdso"))
        .ok_or(InjectError::NoVdso)?;
    let words = usize::try_from(vdso.bytes() / 8).unwrap_or(0);
    let mut code = vec![0_u64; words];
    if !crate::process::read_words(pid, vdso.start, &mut code) {
        return Err(InjectError::NoVdso);
    }
    let code: Vec<u8> = code.iter().flat_map(|word| word.to_ne_bytes()).collect();
    call_instruction_in(&code)
        .map(|offset| vdso.start + offset as u64)
        .ok_or(InjectError::NoVdso)
}
