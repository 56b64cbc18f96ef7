//! Format: what is true of `.snap` files, tested through the public interface alone.

mod strange;
mod made;
mod roundtrip;
mod corrupt;
mod hostile;
mod hostile_windows;
mod shapes;
mod follow;
mod golden;
mod spec;
