//! Canaries: every edge has a name by which a model can break it.
//!
//! A model that cannot fail proves nothing. So each ordering that carries an edge is written
//! through [`edge`], each fence through [`fence_edge`], and each step whose place matters asks
//! [`broken`]. A normal build gets the ordering as written, a constant. Under loom the variable
//! `TIDEGATE_CANARY` names one edge; that one is weakened or moved, and the model that stands for
//! it must then fail. `loom-tests/` runs each canary in a process of its own.

use super::Ordering;

/// The ordering of the edge `name`: `real`, or `weak` if a canary run broke this edge.
#[inline(always)]
#[must_use]
pub fn edge(name: &str, real: Ordering, weak: Ordering) -> Ordering {
    if broken(name) { weak } else { real }
}

/// A fence that is the edge `name`; left out if a canary run broke this edge.
#[inline(always)]
pub fn fence_edge(name: &str, ordering: Ordering) {
    if !broken(name) {
        super::fence(ordering);
    }
}

/// Stands between a `SeqCst` exchange of one location and `SeqCst` looks at another, as the edge
/// `name`. Nothing in a normal build, where these accesses have the total order themselves; loom
/// takes them as `AcqRel` and needs the fence.
#[inline(always)]
pub fn order_edge(name: &str) {
    #[cfg(loom)]
    fence_edge(name, Ordering::SeqCst);
    #[cfg(not(loom))]
    let _ = name;
}

/// Whether this is a canary run that broke the edge `name`. Always `false` in a normal build.
#[cfg(not(loom))]
#[inline(always)]
#[must_use]
pub const fn broken(_name: &str) -> bool {
    false
}

/// Whether this is a canary run that broke the edge `name`.
#[cfg(loom)]
#[must_use]
pub fn broken(name: &str) -> bool {
    static CANARY: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    CANARY.get_or_init(|| std::env::var("TIDEGATE_CANARY").ok()).as_deref() == Some(name)
}
