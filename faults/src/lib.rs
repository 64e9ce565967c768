//! Lets file operations of a process fail, once it is preloaded into it (`LD_PRELOAD`).
//!
//! | variable | what |
//! | --- | --- |
//! | `FAULTS_DIR` | operations on files below this directory count, no others; without it, nothing is done |
//! | `FAULTS_AT` | the number of the operation it happens at, the first being 1; without it, it never does |
//! | `FAULTS_ON` | only operations of this name count, such as `fdatasync` |
//! | `FAULTS_DO` | what happens, see [`Deed`]; of several with commas between, each at the next operation |
//! | `FAULTS_ONCE_THERE` | nothing counts before this file is there |
//! | `FAULTS_TRACE` | a file that gets a line for each operation, and for whatever is sent to a socket |
//!
//! The directory and everything in it is as after a power cut with `cut` and `tear`: see [`undo`].
#![cfg(target_os = "linux")]

mod calls;
mod undo;

use std::{
    cell::Cell,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use libc::c_int;

use undo::Undo;

/// What happens at the chosen operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// `eio`, `enospc`, and from then on with `-on` behind: it fails with this error.
    Fail { errno: c_int, stays: bool },
    /// `delay`: it takes 300 ms more.
    Delay,
    /// `short`: a write writes half of its bytes, and says so.
    Short,
    /// `kill`: the process is killed; a write has written half of its bytes.
    Kill,
    /// `cut`: nothing that was not synced is there any more, and the process is killed.
    Cut,
    /// `tear`: some sectors of what was not synced are there, and the process is killed.
    Tear,
}

impl Deed {
    fn named(name: &str) -> Self {
        let (error, stays) = name.strip_suffix("-on").map_or((name, false), |error| (error, true));
        match error {
            "eio" => Self::Fail { errno: libc::EIO, stays },
            "enospc" => Self::Fail { errno: libc::ENOSPC, stays },
            "delay" => Self::Delay,
            "short" => Self::Short,
            "kill" => Self::Kill,
            "cut" => Self::Cut,
            "tear" => Self::Tear,
            _ => panic!("FAULTS_DO knows no {name}"),
        }
    }
}

/// How an operation goes on.
pub(crate) enum Verdict {
    Go,
    Fail(c_int),
    /// Write half, and kill the process if asked.
    Half {
        kill: bool,
    },
}

pub(crate) struct Layer {
    directory: PathBuf,
    at: Option<u64>,
    on: Option<String>,
    deeds: Vec<Deed>,
    once_there: Option<PathBuf>,
    trace: Option<File>,
    count: u64,
    pub(crate) undo: Undo,
}

impl Layer {
    fn from_environment() -> Option<Mutex<Self>> {
        let variable = |name: &str| std::env::var(name).ok();
        let directory = PathBuf::from(variable("FAULTS_DIR")?);
        let deeds = variable("FAULTS_DO").unwrap_or_default();
        let deeds: Vec<Deed> =
            deeds.split(',').filter(|name| !name.is_empty()).map(Deed::named).collect();
        let once_there = variable("FAULTS_ONCE_THERE").map(PathBuf::from);
        let at = variable("FAULTS_AT").map(|at| at.parse().expect("FAULTS_AT is a number"));
        let trace = variable("FAULTS_TRACE").map(|path| {
            let file = File::options().create(true).append(true).open(path);
            file.expect("FAULTS_TRACE can be written")
        });
        let is_cut = deeds.iter().any(|deed| matches!(deed, Deed::Cut | Deed::Tear));
        let undo = Undo::new(&directory, is_cut);
        let on = variable("FAULTS_ON");
        Some(Mutex::new(Self { directory, at, on, deeds, once_there, trace, count: 0, undo }))
    }

    pub(crate) fn covers(&self, path: &Path) -> bool {
        path.starts_with(&self.directory)
    }

    /// Counts an operation, and says how it goes on, if at all.
    pub(crate) fn begin(&mut self, name: &str, path: &Path, is_write: bool) -> Verdict {
        if self.once_there.as_deref().is_some_and(Path::exists) {
            self.once_there = None;
        }
        let counts = self.once_there.is_none() && self.on.as_deref().is_none_or(|on| on == name);
        self.count += u64::from(counts);
        let count = self.count;
        self.note(format_args!("{count} {name} {}", path.display()));
        let since = self.at.filter(|_| counts).and_then(|at| self.count.checked_sub(at));
        let Some(since) = since.and_then(|since| usize::try_from(since).ok()) else {
            return Verdict::Go;
        };
        let stays = |deed: &&Deed| matches!(deed, Deed::Fail { stays: true, .. });
        let last = self.deeds.last().filter(stays);
        let Some(deed) = self.deeds.get(since).or(last).copied() else { return Verdict::Go };
        match deed {
            Deed::Fail { errno, .. } => Verdict::Fail(errno),
            Deed::Delay => {
                std::thread::park_timeout(Duration::from_millis(300));
                Verdict::Go
            }
            Deed::Short if is_write => Verdict::Half { kill: false },
            Deed::Short => Verdict::Go,
            Deed::Kill if is_write => Verdict::Half { kill: true },
            Deed::Kill => die(),
            Deed::Cut => {
                self.undo.all(None);
                die()
            }
            Deed::Tear => {
                self.undo.all(Some(self.count));
                die()
            }
        }
    }

    pub(crate) fn note(&mut self, line: std::fmt::Arguments<'_>) {
        if let Some(trace) = &mut self.trace {
            trace.write_all(format!("{line}\n").as_bytes()).expect("the trace can be written");
        }
    }
}

pub(crate) fn die() -> ! {
    // SAFETY: it ends this process and touches no memory.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    loop {
        std::thread::park();
    }
}

thread_local! {
    /// Whether the layer itself calls, which is not looked at.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs this with the layer, unless there is none or it is the layer that calls.
pub(crate) fn with<T>(work: impl FnOnce(MutexGuard<'_, Layer>) -> T) -> Option<T> {
    static LAYER: OnceLock<Option<Mutex<Layer>>> = OnceLock::new();
    if INSIDE.replace(true) {
        return None;
    }
    let layer = LAYER.get_or_init(Layer::from_environment);
    let done =
        layer.as_ref().map(|layer| work(layer.lock().unwrap_or_else(PoisonError::into_inner)));
    INSIDE.set(false);
    done
}
