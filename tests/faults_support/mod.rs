//! The fault layer, built and put under a process.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(unreachable_pub, reason = "shared by test programs")]
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use tempfile::TempDir;

/// A directory in memory, where there is one: the layer plays the disk.
pub fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// The library of the layer. It has a directory of its own, as cargo holds the usual one.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults");
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--quiet", "--package", "tidegate-faults", "--target-dir"]);
        command.arg(&target).current_dir(env!("CARGO_MANIFEST_DIR"));
        let status = command.status().unwrap();
        assert!(status.success(), "the fault layer does not build: {status}");
        target.join("debug/libtidegate_faults.so")
    })
}

/// What fails under a process, and when. `faults/src/lib.rs` tells what the words mean.
#[derive(Default)]
pub struct Faults {
    at: Option<usize>,
    kind: &'static str,
    on: Option<&'static str>,
    once_there: Option<PathBuf>,
    trace: Option<PathBuf>,
}

impl Faults {
    /// This at operation `at`, the first being 1.
    pub fn at(at: usize, kind: &'static str) -> Self {
        Self { at: Some(at), kind, ..Self::default() }
    }

    /// Nothing fails; each operation is written down.
    pub fn traced(trace: PathBuf) -> Self {
        Self { trace: Some(trace), ..Self::default() }
    }

    /// Each operation is written down as well.
    pub fn traced_to(mut self, trace: PathBuf) -> Self {
        self.trace = Some(trace);
        self
    }

    /// Only operations of this name count, and only once there is this file.
    pub fn of(mut self, on: &'static str, once_there: PathBuf) -> Self {
        (self.on, self.once_there) = (Some(on), Some(once_there));
        self
    }

    /// Whether the process is killed by it.
    pub fn kills(&self) -> bool {
        ["kill", "cut", "tear"].contains(&self.kind)
    }

    /// Puts the layer under a process that is to be started.
    pub fn set(&self, command: &mut Command, directory: &Path) {
        command.env("LD_PRELOAD", library()).env("FAULTS_DIR", directory);
        if let Some(at) = self.at {
            command.env("FAULTS_AT", at.to_string()).env("FAULTS_DO", self.kind);
        }
        if let Some(on) = self.on {
            command.env("FAULTS_ON", on);
        }
        if let Some(there) = &self.once_there {
            command.env("FAULTS_ONCE_THERE", there);
        }
        if let Some(trace) = &self.trace {
            command.env("FAULTS_TRACE", trace);
        }
    }

    /// What was written down.
    pub fn lines(&self) -> Vec<String> {
        // It comes with the first operation.
        let text = fs::read_to_string(self.trace.as_ref().unwrap()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// How many operations were counted.
    pub fn operations(&self) -> usize {
        let lines = self.lines();
        let numbers = lines.iter().filter_map(|line| line.split(' ').next()?.parse().ok());
        numbers.max().unwrap_or(0)
    }
}
