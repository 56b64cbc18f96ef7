//! CUPTI. Reports that tracing is unsupported, so that PyTorch's profiler continues without the device.
#![cfg_attr(not(test), expect(unsafe_code, reason = "exports functions under NVIDIA's names"))]

use std::ffi::{c_char, c_int};

use crate::abi::{Out, answer, functions, give, refuses};

/// `CUPTI_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: c_int = 27;

functions! {
    fn cuptiSubscribe() { NOT_SUPPORTED }
    fn cuptiSubscribe_v2() { NOT_SUPPORTED }
    fn cuptiGetResultString(_result: c_int, text: Out<'_, *const c_char>) {
        give(text, c"not supported by the simulated GPU".as_ptr());
    }
    fn cuptiGetVersion(version: Out<'_, u32>) { give(version, 130_000) }
}

refuses! {
    cuptiActivityEnable cuptiActivityDisable cuptiActivityRegisterCallbacks cuptiActivityPushExternalCorrelationId
    cuptiActivityPopExternalCorrelationId cuptiActivityFlushAll cuptiActivitySetAttribute
    cuptiActivityRegisterTimestampCallback cuptiActivityEnableDriverApi cuptiActivityEnableRuntimeApi
    cuptiActivityEnableCudaEventDeviceTimestamps cuptiActivityGetNextRecord cuptiActivityGetNumDroppedRecords
    cuptiActivityEnableHWTrace cuptiEnableDomain cuptiEnableCallback cuptiFinalize cuptiUnsubscribe cuptiGetCallbackName
    cuptiGetTimestamp
}
