//! The oldest versions of libc's symbols on x86-64.

/// The references of the table, with their versions.
macro_rules! versions {
    () => {
        ".symver dlsym, dlsym@GLIBC_2.2.5
        .symver environ, environ@GLIBC_2.2.5
        .symver __errno_location, __errno_location@GLIBC_2.2.5
        .symver __register_atfork, __register_atfork@GLIBC_2.3.2"
    };
}
pub(super) use versions;
