//! Somebody who wants to be told of a change, once, and only while it is not looking itself.
//!
//! The watcher looks; if there is nothing it arms the watch and looks once more. Whoever changes
//! something claims the watch behind the change, and whoever gets it tells the watcher. Each does
//! its own step before it looks at the other's, with a full fence between, so at least one of them
//! sees the other.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries | Model |
//! | --- | --- | --- | --- | --- |
//! | V1 | fence of `claim` | fence of `arm` | either the change or the armed watch is seen | `no_change_is_missed` |
//! | V2 | store of `arm` | exchange of `claim` | what the watcher prepared for being told | `who_is_told_is_ready` |

use super::{AtomicBool, Ordering, edge, fence_edge};

/// One watcher's wish to be told. See the module's text.
///
/// Shape: one flag.
#[derive(Debug)]
pub struct Watch {
    armed: AtomicBool,
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

impl Watch {
    /// A watch that nobody has armed.
    #[must_use]
    pub fn new() -> Self {
        Self { armed: AtomicBool::new(false) }
    }

    /// Watcher: wants to be told from now on. It looks once more behind this call.
    pub fn arm(&self) {
        // Release (V2): whoever claims it sees what was prepared for that.
        self.armed.store(true, edge("watch.ready", Ordering::Release, Ordering::Relaxed));
        // SeqCst fence (V1): the flag against the look that follows. A release/acquire pair would
        // let both sides miss each other.
        fence_edge("watch.arm", Ordering::SeqCst);
    }

    /// Watcher: looks itself from now on.
    pub fn disarm(&self) {
        // Relaxed: whoever still claims it tells once too often, which is harmless.
        self.armed.store(false, Ordering::Relaxed);
    }

    /// Whoever has changed something: whether this call is the one to tell the watcher.
    #[must_use]
    pub fn claim(&self) -> bool {
        // SeqCst fence (V1): the change before it against the flag.
        fence_edge("watch.claim", Ordering::SeqCst);
        // Relaxed: the fence orders it. Mostly the watcher looks itself, and a load is all it takes.
        if !self.armed.load(Ordering::Relaxed) {
            return false;
        }
        // Forbids that two tell for one wish. Unlike a swap it writes nothing for whoever comes too
        // late, so everybody that clears the flag also tells; nothing else has to be argued (and
        // loom, which does not order a late swap before the next wish, can follow).
        // Success Acquire (V2): the watcher's preparations are visible. Failure Relaxed: nothing is
        // read behind it.
        let told = edge("watch.told", Ordering::Acquire, Ordering::Relaxed);
        self.armed.compare_exchange(true, false, told, Ordering::Relaxed).is_ok()
    }
}
