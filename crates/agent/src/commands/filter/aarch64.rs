//! What the filter says to calls of another kind on aarch64: they run.
//!
//! A 64-bit program cannot make the calls of 32-bit programs: the processor's state tells the kernel what a call means,
//! and only exec changes that.

use super::{ALLOW, Instruction, answer, decide};
use crate::abi::call::{ARCHITECTURE_32_BIT, MREMAP};

/// The last instructions of the filter.
pub const OTHERS: [Instruction; 1] = [answer(ALLOW)];

/// Checked at each compilation.
const _: () = assert!(decide(ARCHITECTURE_32_BIT, MREMAP as usize, 0, [0; 6]) == ALLOW);
