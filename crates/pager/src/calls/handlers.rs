//! rt_sigaction of a process whose agent was attached from outside: the kernel gets a stand-in for the handler.
//!
//! Without one a signal could end a call that the filter has stopped (`state/handlers.rs` of the agent). The agent is a
//! thread of the process, so it makes the call. It must not touch the program's records, which may be swapped out, so
//! they are read and written here, while nobody holds the agent's slot.

use vswap_sys::ring::op;

use crate::space::agent::AgentGone;
use crate::space::process::Process;

/// Bytes of the kernel's signal mask, which the caller has to name.
const MASK_BYTES: u64 = 8;
const EFAULT: i64 = 14;

/// The outcome of `rt_sigaction(signal, new, old, mask_bytes)`. None: the kernel says better what is wrong with it.
pub fn act(process: &Process, args: &[u64; 6]) -> Result<Option<i64>, AgentGone> {
    let [signal, new, old, mask_bytes, ..] = *args;
    let mut action = [0; 4];
    if mask_bytes != MASK_BYTES || !process.read_words(new, &mut action) {
        return Ok(None);
    }
    let [handler, flags, restorer, mask] = action;
    let args = [signal, handler, flags, restorer, mask];
    let mut slot = process.agent.slot_beside_fork();
    let result = slot.call(op::ACT, &args, &[])?;
    let before = slot.action_before();
    drop(slot);
    // As in the kernel the handler is set by then.
    let is_told = result < 0 || old == 0 || process.write_words(old, &before);
    Ok(Some(if is_told { result } else { -EFAULT }))
}
