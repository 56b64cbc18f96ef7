//! The window geometry of convolutions and pooling, as kernel arguments.

use bytemuck::{Pod, Zeroable};

use crate::backend::Window;

/// The kernel argument `struct Window` in window.cuh.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct WindowWords {
    kernel: [u64; 2],
    stride: [u64; 2],
    padding: [u64; 2],
    dilation: [u64; 2],
    places: [u64; 2],
    first: u64,
}

impl From<Window> for WindowWords {
    fn from(window: Window) -> Self {
        let Window { kernel, stride, padding, dilation, places, first } = window;
        let [kernel, stride, padding, dilation, places] =
            [kernel, stride, padding, dilation, places].map(|pair| pair.map(|length| length as u64));
        Self { kernel, stride, padding, dilation, places, first: first as u64 }
    }
}
