//! CUDA graphs. Captured work is not executed, so a graph is only a handle. PyTorch keeps its memory in a private pool.
#![expect(unsafe_code, reason = "exports functions under NVIDIA's names")]

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::abi::{INVALID_VALUE, Out, SUCCESS, answer, creates, functions, give, new_handle, refuses, succeeds};

#[derive(Default)]
struct Captures {
    /// Ids of captures, by stream.
    running: HashMap<usize, u64>,
    last: u64,
}

static CAPTURES: LazyLock<Mutex<Captures>> = LazyLock::new(Mutex::default);

/// Returns the id of the stream's capture, or 0 if the stream is not being captured.
fn capture_of(stream: usize) -> u64 {
    CAPTURES.lock().unwrap_or_else(PoisonError::into_inner).running.get(&stream).copied().unwrap_or(0)
}

/// Ends the capture of a stream, and returns whether there was one.
fn end(stream: usize) -> bool {
    CAPTURES.lock().unwrap_or_else(PoisonError::into_inner).running.remove(&stream).is_some()
}

functions! {
    fn cudaStreamBeginCapture, cudaStreamBeginCaptureToGraph(stream: usize) {
        let mut captures = CAPTURES.lock().unwrap_or_else(PoisonError::into_inner);
        captures.last += 1;
        let id = captures.last;
        captures.running.insert(stream, id);
    }
    fn cudaStreamEndCapture(stream: usize, graph: Out<'_, usize>) {
        if !end(stream) { return INVALID_VALUE; }
        give(graph, new_handle());
        SUCCESS
    }

    fn cudaStreamIsCapturing, cuStreamIsCapturing(stream: usize, status: Out<'_, c_int>) {
        give(status, c_int::from(capture_of(stream) != 0));
    }

    /// Defined for programs built for CUDA 13, and as `_v2` and `_v3` for those built for CUDA 12.
    fn cudaStreamGetCaptureInfo, cudaStreamGetCaptureInfo_v2, cudaStreamGetCaptureInfo_v3(
        stream: usize, status: Out<'_, c_int>, id: Out<'_, u64>, graph: Out<'_, usize>,
    ) {
        let capture = capture_of(stream);
        give(status, c_int::from(capture != 0));
        give(id, capture);
        give(graph, new_handle());
    }

    /// Returns one kernel node, so that the graph is not empty.
    fn cudaGraphGetNodes(_graph: usize, nodes: Out<'_, usize>, count: Out<'_, usize>) {
        give(nodes, new_handle());
        give(count, 1);
    }
    fn cudaGraphNodeGetType(_node: usize, kind: Out<'_, c_int>) { give(kind, 0) }
    fn cudaGraphNodeGetDependencies(_node: usize, _dependencies: usize, _edges: usize, count: Out<'_, usize>) {
        give(count, 0);
    }
}

creates! { cudaGraphCreate cudaGraphInstantiate cudaGraphInstantiateWithFlags cudaUserObjectCreate cudaGraphAddNode }

succeeds! {
    cudaGraphLaunch cudaGraphDestroy cudaGraphExecDestroy cudaGraphRetainUserObject cudaUserObjectRelease
    cudaGraphDebugDotPrint cudaThreadExchangeStreamCaptureMode cudaStreamUpdateCaptureDependencies cudaGraphUpload
    cudaGraphExecUpdate
}

refuses! { cudaDeviceGetGraphMemAttribute cudaDeviceSetGraphMemAttribute cudaGraphConditionalHandleCreate }

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;

    #[test]
    fn a_stream_captures_from_the_begin_to_the_end() {
        let is_capturing = |stream| {
            let mut status = MaybeUninit::new(-1);
            cudaStreamIsCapturing(stream, Some(&mut status));
            // SAFETY: initialized above.
            unsafe { status.assume_init() }
        };
        assert_eq!(is_capturing(77), 0);
        cudaStreamBeginCapture(77);
        assert_eq!((is_capturing(77), is_capturing(78)), (1, 0));
        assert_eq!(cudaStreamEndCapture(77, None), SUCCESS);
        assert_eq!((is_capturing(77), cudaStreamEndCapture(77, None)), (0, INVALID_VALUE));
    }
}
