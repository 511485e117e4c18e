//! The list on x86-64.

/// The caller has the arguments beyond the registers on the stack. So the code pops the return address, pushes the
/// registers below those arguments, and pushes the return address back.
macro_rules! with_list {
    ($to:path) => {
        naked_asm!(
            "pop r11",
            "push r9",
            "push r8",
            "push rcx",
            "push rdx",
            "push rsi",
            "mov rsi, rsp",
            "push r11",
            "call {to}",
            "pop r11",
            "lea rsp, [rsp + 40]",
            "jmp r11",
            to = sym $to,
        )
    };
}
pub(super) use with_list;
