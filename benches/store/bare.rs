//! What the disk does by itself.

use std::{
    fs::File,
    io::{Seek, SeekFrom, Write},
    time::Instant,
};

use crate::{BODY_BYTES, folder, plan::Plan};

/// What a preallocated file is written with before, in bytes; then it begins anew.
const WHOLE: u64 = 256 << 20;

/// Messages a second that are appended to a file and synced, so many at a time.
pub(crate) fn rate(plan: &Plan, size: usize, is_preallocated: bool) -> f64 {
    let folder = folder();
    let mut file = File::create(folder.path().join("file")).unwrap();
    let batch = vec![7; size * BODY_BYTES];
    if is_preallocated {
        let whole = if plan.is_test { 1 << 20 } else { WHOLE };
        let zeros = vec![0; 1 << 20];
        (0..whole >> 20).for_each(|_| file.write_all(&zeros).unwrap());
        file.sync_all().unwrap();
        file.rewind().unwrap();
    }
    let mut append = || {
        if is_preallocated && file.stream_position().unwrap() + batch.len() as u64 > WHOLE {
            file.seek(SeekFrom::Start(0)).unwrap();
        }
        file.write_all(&batch).unwrap();
        file.sync_data().unwrap();
    };
    let begun = Instant::now();
    while begun.elapsed() < plan.warm {
        append();
    }
    let (begun, mut batches) = (Instant::now(), 0_u32);
    while begun.elapsed() < plan.window {
        append();
        batches += 1;
    }
    f64::from(batches) * size as f64 / begun.elapsed().as_secs_f64()
}
