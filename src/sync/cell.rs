//! A cell whose accesses the model can watch.

/// Interior mutability without checks, entered through closures so that loom sees each access.
///
/// Shape: exactly one `T`. The owner of the cell must make sure by other means (a claimed word,
/// a gate) that no two accesses overlap unless both only read.
#[derive(Debug)]
pub struct UnsafeCell<T> {
    #[cfg(not(loom))]
    #[allow(clippy::disallowed_types, reason = "the facade wraps the real cell")]
    inner: std::cell::UnsafeCell<T>,
    #[cfg(loom)]
    inner: loom::cell::UnsafeCell<T>,
}

impl<T> UnsafeCell<T> {
    /// Puts a value into a new cell.
    pub fn new(value: T) -> Self {
        Self {
            #[cfg(not(loom))]
            #[allow(clippy::disallowed_types, reason = "the facade wraps the real cell")]
            inner: std::cell::UnsafeCell::new(value),
            #[cfg(loom)]
            inner: loom::cell::UnsafeCell::new(value),
        }
    }

    /// Runs `f` with a pointer for reading.
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        #[cfg(not(loom))]
        {
            f(self.inner.get())
        }
        #[cfg(loom)]
        {
            self.inner.with(f)
        }
    }

    /// Runs `f` with a pointer for writing.
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        #[cfg(not(loom))]
        {
            f(self.inner.get())
        }
        #[cfg(loom)]
        {
            self.inner.with_mut(f)
        }
    }
}
