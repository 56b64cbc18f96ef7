//! Tests of `.snap` files through the public interface.

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
