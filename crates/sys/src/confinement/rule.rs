//! What a call may have as one of its arguments. Pure data.

use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

/// What an argument of a call has to be.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    argument: u8,
    mask: u64,
    value: u64,
}

impl Rule {
    /// The low 32 bits of an argument are `value`.
    pub fn is(argument: u8, value: u64) -> Rule {
        Rule::masked(argument, u64::from(u32::MAX), value)
    }

    /// The bits of `mask` in an argument are `value`. Where the kernel takes an `int`, a mask of more than its 32 bits
    /// would refuse what is allowed.
    pub fn masked(argument: u8, mask: u64, value: u64) -> Rule {
        Rule {
            argument,
            mask,
            value,
        }
    }

    /// As `seccompiler` has it.
    ///
    /// # Errors
    /// There is no such argument.
    pub fn compiled(self) -> Result<SeccompRule, BackendError> {
        let length = match self.mask >> u32::BITS {
            0 => SeccompCmpArgLen::Dword,
            _ => SeccompCmpArgLen::Qword,
        };
        SeccompRule::new(vec![SeccompCondition::new(
            self.argument,
            length,
            SeccompCmpOp::MaskedEq(self.mask),
            self.value,
        )?])
    }
}
