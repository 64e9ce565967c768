//! The functions of the C library that are replaced. Each does what the kernel does, unless the layer
//! says otherwise.

use std::{
    ffi::{CStr, OsStr},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use libc::{c_char, c_int, c_long, c_void, iovec, mode_t, off64_t, size_t, ssize_t};

use crate::{Layer, Verdict, die, undo::name_of, with};

fn fail(errno: c_int) -> c_int {
    // SAFETY: the place of this thread's error number is always valid.
    unsafe { *libc::__errno_location() = errno };
    -1
}

fn error() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The layer's own calls leave the error number as it was when the real call returned.
fn keeping_error<T>(work: impl FnOnce() -> T) -> T {
    let before = error();
    let done = work();
    fail(before);
    done
}

/// What these bytes of memory begin with, for the trace.
fn beginning(bytes: &[u8]) -> String {
    bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn is_socket(path: &Path) -> bool {
    path.as_os_str().as_bytes().starts_with(b"socket:")
}

/// What the layer says to an operation on an open file; `None`: nothing.
fn ask(
    fd: c_int,
    name: &str,
    is_write: bool,
    also: impl FnOnce(&mut Layer, &Verdict),
) -> Option<Verdict> {
    with(|mut layer| {
        let path = name_of(fd)?;
        if !layer.covers(&path) {
            return None;
        }
        let verdict = layer.begin(name, &path, is_write);
        also(&mut layer, &verdict);
        Some(verdict)
    })
    .flatten()
}

fn trace_sent(fd: c_int, first: &[u8]) {
    with(|mut layer| {
        if name_of(fd).is_some_and(|path| is_socket(&path)) {
            layer.note(format_args!("sent {fd} {}", beginning(first)));
        }
    });
}

/// Writes through `call`, which is told how many bytes; `at`: where, if not at the file's own place.
fn write_with(
    fd: c_int,
    name: &str,
    count: size_t,
    at: Option<u64>,
    call: impl FnOnce(size_t) -> c_long,
) -> c_long {
    let verdict = keeping_error(|| {
        ask(fd, name, true, |layer, verdict| {
            if !matches!(verdict, Verdict::Fail(_)) {
                layer.undo.writes(fd, at.or_else(|| place(fd)), count as u64);
            }
        })
    });
    match verdict {
        None | Some(Verdict::Go) => call(count),
        Some(Verdict::Fail(errno)) => c_long::from(fail(errno)),
        Some(Verdict::Half { kill }) => {
            let written = call(count.div_ceil(2));
            if kill {
                die();
            }
            written
        }
    }
}

/// Where the next write to a file goes, unless that is its end.
fn place(fd: c_int) -> Option<u64> {
    // SAFETY: neither call touches memory.
    let (flags, place) =
        unsafe { (libc::fcntl(fd, libc::F_GETFL), libc::lseek64(fd, 0, libc::SEEK_CUR)) };
    u64::try_from(place).ok().filter(|_| flags & libc::O_APPEND == 0)
}

/// # Safety
/// As of `write`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, count: size_t) -> ssize_t {
    // SAFETY: the caller vouches for the bytes.
    let first = unsafe { std::slice::from_raw_parts(bytes.cast(), count.min(16)) };
    keeping_error(|| trace_sent(fd, first));
    // SAFETY: as above; no more than `count` bytes are written.
    let call = |count: usize| unsafe { libc::syscall(libc::SYS_write, fd, bytes, count) };
    write_with(fd, "write", count, None, call) as ssize_t
}

/// # Safety
/// As of `send`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(
    fd: c_int,
    bytes: *const c_void,
    count: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller vouches for the bytes.
    let first = unsafe { std::slice::from_raw_parts(bytes.cast(), count.min(16)) };
    keeping_error(|| trace_sent(fd, first));
    let none = std::ptr::null::<c_void>();
    // SAFETY: as above; there is no address.
    let sent = unsafe { libc::syscall(libc::SYS_sendto, fd, bytes, count, flags, none, 0) };
    sent as ssize_t
}

/// # Safety
/// As of `pwrite64`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(
    fd: c_int,
    bytes: *const c_void,
    count: size_t,
    at: off64_t,
) -> ssize_t {
    // SAFETY: the caller vouches for the bytes.
    let call = |count: usize| unsafe { libc::syscall(libc::SYS_pwrite64, fd, bytes, count, at) };
    write_with(fd, "pwrite", count, u64::try_from(at).ok(), call) as ssize_t
}

/// # Safety
/// As of `pwrite`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(
    fd: c_int,
    bytes: *const c_void,
    count: size_t,
    at: off64_t,
) -> ssize_t {
    // SAFETY: as the caller's.
    unsafe { pwrite64(fd, bytes, count, at) }
}

/// # Safety
/// As of `writev`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller vouches for the parts.
    let all = unsafe { std::slice::from_raw_parts(parts, usize::try_from(count).unwrap_or(0)) };
    if let Some(part) = all.first() {
        // SAFETY: and for what they point to.
        let first =
            unsafe { std::slice::from_raw_parts(part.iov_base.cast(), part.iov_len.min(16)) };
        keeping_error(|| trace_sent(fd, first));
    }
    let bytes: usize = all.iter().map(|part| part.iov_len).sum();
    let call = |left: usize| {
        if left == bytes {
            // SAFETY: as above.
            return unsafe { libc::syscall(libc::SYS_writev, fd, parts, count) };
        }
        // A part of it: the first of its parts, or some of that.
        let part = all[0];
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_write, fd, part.iov_base, part.iov_len.min(left)) }
    };
    write_with(fd, "writev", bytes, None, call) as ssize_t
}

fn sync_with(fd: c_int, name: &str, number: c_long) -> c_int {
    let verdict = keeping_error(|| {
        ask(fd, name, false, |layer, verdict| {
            layer.undo.synced(fd, !matches!(verdict, Verdict::Fail(_)));
        })
    });
    if let Some(Verdict::Fail(errno)) = verdict {
        return fail(errno);
    }
    // SAFETY: it touches no memory.
    let done = unsafe { libc::syscall(number, fd) } as c_int;
    keeping_error(|| {
        with(|mut layer| {
            if name_of(fd).is_some_and(|path| layer.covers(&path)) {
                layer.note(format_args!("returned {name}"));
            }
        });
    });
    done
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn fsync(fd: c_int) -> c_int {
    sync_with(fd, "fsync", libc::SYS_fsync)
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync_with(fd, "fdatasync", libc::SYS_fdatasync)
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn ftruncate64(fd: c_int, length: off64_t) -> c_int {
    let verdict = keeping_error(|| {
        ask(fd, "ftruncate", false, |layer, verdict| {
            if matches!(verdict, Verdict::Go) {
                layer.undo.resizes(fd, u64::try_from(length).unwrap_or(0));
            }
        })
    });
    if let Some(Verdict::Fail(errno)) = verdict {
        return fail(errno);
    }
    // SAFETY: it touches no memory.
    unsafe { libc::syscall(libc::SYS_ftruncate, fd, length) as c_int }
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn ftruncate(fd: c_int, length: off64_t) -> c_int {
    ftruncate64(fd, length)
}

/// A path, as the caller gave it.
///
/// # Safety
/// It points to a string that ends with a zero.
unsafe fn path_at(path: *const c_char) -> PathBuf {
    // SAFETY: as promised.
    let path = unsafe { CStr::from_ptr(path) };
    PathBuf::from(OsStr::from_bytes(path.to_bytes()))
}

/// Does something to a name through `call`; `before` and `after` tell what a power cut undoes.
fn name_with(
    name: &str,
    path: &Path,
    before: impl FnOnce(&mut Layer),
    call: impl FnOnce() -> c_int,
    after: impl FnOnce(&mut Layer),
) -> c_int {
    let verdict = keeping_error(|| {
        with(|mut layer| {
            if !layer.covers(path) {
                return None;
            }
            let verdict = layer.begin(name, path, false);
            before(&mut layer);
            Some(verdict)
        })
        .flatten()
    });
    match verdict {
        Some(Verdict::Fail(errno)) => return fail(errno),
        None => return call(),
        _ => {}
    }
    let done = call();
    if done >= 0 {
        keeping_error(|| with(|mut layer| after(&mut layer)));
    }
    done
}

/// # Safety
/// As of `rename`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller vouches for both.
    let (old, new) = unsafe { (path_at(from), path_at(to)) };
    // SAFETY: as above.
    let call = || unsafe { libc::syscall(libc::SYS_rename, from, to) as c_int };
    let before = |layer: &mut Layer| layer.undo.goes(&new);
    name_with("rename", &new, before, call, |layer| layer.undo.moved(&old, &new))
}

/// # Safety
/// As of `unlink`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller vouches for it.
    let name = unsafe { path_at(path) };
    // SAFETY: as above.
    let call = || unsafe { libc::syscall(libc::SYS_unlink, path) as c_int };
    name_with("unlink", &name, |layer| layer.undo.goes(&name), call, |_| {})
}

/// # Safety
/// As of `mkdir`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller vouches for it.
    let name = unsafe { path_at(path) };
    // SAFETY: as above.
    let call = || unsafe { libc::syscall(libc::SYS_mkdir, path, c_long::from(mode)) as c_int };
    name_with("mkdir", &name, |_| {}, call, |layer| layer.undo.made(&name))
}

/// # Safety
/// As of `openat64`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller vouches for it.
    let mut name = unsafe { path_at(path) };
    if name.is_relative() && directory != libc::AT_FDCWD {
        let base = with(|_| name_of(directory)).flatten();
        name = base.unwrap_or_default().join(name);
    }
    let open = |flags: c_int| {
        let (flags, mode) = (c_long::from(flags), c_long::from(mode));
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_openat, directory, path, flags, mode) as c_int }
    };
    let is_new = with(|_| flags & libc::O_CREAT != 0 && !name.exists()).unwrap_or(false);
    let call = || {
        if flags & libc::O_TRUNC == 0 || is_new {
            return open(flags);
        }
        // What it held must be known before it is gone.
        let fd = open(flags & !libc::O_TRUNC);
        if fd >= 0 {
            with(|mut layer| layer.undo.resizes(fd, 0));
            // SAFETY: it touches no memory.
            unsafe { libc::syscall(libc::SYS_ftruncate, fd, 0) };
        }
        fd
    };
    let after = |layer: &mut Layer| {
        if is_new {
            layer.undo.made(&name);
        }
    };
    name_with("open", &name, |_| {}, call, after)
}

/// # Safety
/// As of `openat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: as the caller's.
    unsafe { openat64(directory, path, flags, mode) }
}

/// # Safety
/// As of `open64`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: as the caller's.
    unsafe { openat64(libc::AT_FDCWD, path, flags, mode) }
}

/// # Safety
/// As of `open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: as the caller's.
    unsafe { openat64(libc::AT_FDCWD, path, flags, mode) }
}
