//! The target `engine` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| vswap_fuzz_targets::engine(data));
