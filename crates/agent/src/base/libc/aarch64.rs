//! The oldest versions of libc's symbols on aarch64. glibc has been there since 2.17.

/// The references of the table, with their versions.
macro_rules! versions {
    () => {
        ".symver dlsym, dlsym@GLIBC_2.17
        .symver environ, environ@GLIBC_2.17
        .symver __errno_location, __errno_location@GLIBC_2.17
        .symver __register_atfork, __register_atfork@GLIBC_2.17"
    };
}
pub(super) use versions;
