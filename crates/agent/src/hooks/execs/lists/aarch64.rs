//! The list on aarch64.

/// The caller has the arguments beyond x7 on the stack, from its pointer on. So the code stores the registers right
/// below. What comes before them is the frame, and a word that keeps the stack aligned to 16 bytes.
macro_rules! with_list {
    ($to:path) => {
        naked_asm!(
            "hint #34",
            "stp x29, x30, [sp, #-80]!",
            "mov x29, sp",
            "str x1, [sp, #24]",
            "stp x2, x3, [sp, #32]",
            "stp x4, x5, [sp, #48]",
            "stp x6, x7, [sp, #64]",
            "add x1, sp, #24",
            "bl {to}",
            "ldp x29, x30, [sp], #80",
            "ret",
            to = sym $to,
        )
    };
}
pub(super) use with_list;
