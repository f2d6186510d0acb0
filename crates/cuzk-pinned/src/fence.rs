//! When memory that a device still reads may be touched again.

/// An event after which a buffer may be written, reused or freed, such as the
/// end of a copy to a device.
pub trait Fence: Send {
    /// Returns once the event has passed. Also returns if the device failed, as
    /// soon as it is certain that it does not touch the memory any more.
    fn wait(&self);

    /// Whether the event has passed. Does not block.
    fn has_passed(&self) -> bool;
}

impl<F: Fence + ?Sized> Fence for Box<F> {
    fn wait(&self) {
        (**self).wait();
    }

    fn has_passed(&self) -> bool {
        (**self).has_passed()
    }
}
