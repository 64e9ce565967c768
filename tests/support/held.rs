//! An allocator that counts what is held: bytes that were asked for and not given back.

use std::alloc::{GlobalAlloc, Layout, System};

use tidegate::internals::sync::{AtomicU64, Ordering::Relaxed};

struct Counting;

static HELD: AtomicU64 = AtomicU64::new(0);
static MOST: AtomicU64 = AtomicU64::new(0);

/// Bytes held now.
pub fn now() -> u64 {
    HELD.load(Relaxed)
}

/// Most bytes held since the last call.
pub fn most() -> u64 {
    MOST.swap(now(), Relaxed)
}

fn grow(by: usize) {
    MOST.fetch_max(HELD.fetch_add(by as u64, Relaxed) + by as u64, Relaxed);
}

fn shrink(by: usize) {
    HELD.fetch_sub(by as u64, Relaxed);
}

// SAFETY: everything is passed on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grow(size);
        shrink(layout.size());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
