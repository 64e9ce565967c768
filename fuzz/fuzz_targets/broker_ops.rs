#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate::fuzzing::broker_ops(data));
