#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate::fuzzing::client_ops(data));
