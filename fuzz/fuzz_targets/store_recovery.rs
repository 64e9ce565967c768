#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate::fuzzing::store_recovery(data));
