//! Replays of recordings, our own and PyTorch's.

mod unchanged;
