//! The properties of the devices, from which PyTorch chooses its kernels and thus their allocations.
#![expect(unsafe_code, reason = "exports functions under NVIDIA's names")]

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;

use crate::abi::{INVALID_VALUE, Out, SUCCESS, Status, answer, functions, give};
use crate::devices::checked;
use crate::settings::settings;

/// A numeric property of a device, with its attribute number and its byte offset in `cudaDeviceProp` of CUDA 12 and 13
/// (0 if the structure lacks it). CUDA 13 removed fields in the middle.
struct Property {
    attribute: c_int,
    offset_12: usize,
    offset_13: usize,
    bytes: usize,
    value: i64,
}

/// The properties that are the same for all devices.
#[rustfmt::skip]
fn properties() -> [Property; 39] {
    let gpu = &settings().gpu;
    let of_capability = gpu.architecture();
    let of = |attribute, offset_12, offset_13, bytes, value: i64| Property { attribute, offset_12, offset_13, bytes, value };
    [
        of(8, 296, 296, 8, 49152),                                                      // sharedMemPerBlock
        of(12, 304, 304, 4, 65536),                                                     // regsPerBlock
        of(10, 308, 308, 4, 32),                                                        // warpSize
        of(11, 312, 312, 8, 2_147_483_647),                                             // memPitch
        of(1, 320, 320, 4, 1024),                                                       // maxThreadsPerBlock
        of(2, 324, 324, 4, 1024),                                                       // maxThreadsDim
        of(3, 328, 328, 4, 1024),
        of(4, 332, 332, 4, 64),
        of(5, 336, 336, 4, 2_147_483_647),                                              // maxGridSize
        of(6, 340, 340, 4, 65535),
        of(7, 344, 344, 4, 65535),
        of(9, 352, 352, 8, 65536),                                                      // totalConstMem
        of(75, 360, 360, 4, gpu.capability.0.into()),                                   // major
        of(76, 364, 364, 4, gpu.capability.1.into()),                                   // minor
        of(14, 368, 368, 8, 512),                                                       // textureAlignment
        of(51, 376, 376, 8, 32),                                                        // texturePitchAlignment
        of(16, 388, 384, 4, gpu.multiprocessors.into()),                                // multiProcessorCount
        of(19, 400, 392, 4, 1),                                                         // canMapHostMemory
        of(30, 568, 552, 8, 512),                                                       // surfaceAlignment
        of(31, 576, 560, 4, 1),                                                         // concurrentKernels
        of(40, 600, 584, 4, 3),                                                         // asyncEngineCount
        of(41, 604, 588, 4, 1),                                                         // unifiedAddressing
        of(37, 612, 592, 4, 5120),                                                      // memoryBusWidth
        of(38, 616, 596, 4, gpu.l2_bytes.into()),                                       // l2CacheSize
        of(39, 624, 604, 4, of_capability.threads_per_multiprocessor.into()),           // maxThreadsPerMultiProcessor
        of(78, 628, 608, 4, 1),                                                         // streamPrioritiesSupported
        of(81, 640, 624, 8, of_capability.shared_bytes_per_multiprocessor.into()),      // sharedMemPerMultiprocessor
        of(82, 648, 632, 4, 65536),                                                     // regsPerMultiprocessor
        of(83, 652, 636, 4, 1),                                                         // managedMemory
        of(89, 672, 652, 4, 1),                                                         // concurrentManagedAccess
        of(95, 688, 668, 4, 1),                                                         // cooperativeLaunch
        of(97, 696, 672, 8, of_capability.shared_bytes_per_block.into()),               // sharedMemPerBlockOptin
        of(106, 712, 688, 4, of_capability.blocks_per_multiprocessor.into()),           // maxBlocksPerMultiProcessor
        of(111, 720, 696, 8, 1024),                                                     // reservedSharedMemPerBlock
        of(13, 0, 0, 4, 1_410_000),                                                     // clock rate in kHz
        of(36, 0, 0, 4, 1_593_000),                                                     // memory clock rate in kHz
        of(102, 0, 0, 4, 1),                                                            // virtual memory management
        of(115, 0, 0, 4, 1),                                                            // memory pools
        of(18, 0, 0, 4, 0),                                                             // integrated
    ]
}

/// `cudaDeviceProp` of CUDA 12, which is larger, or of CUDA 13.
type Properties = [MaybeUninit<u8>; 1032];

fn describe(
    out: Option<&mut [MaybeUninit<u8>]>,
    device: c_int,
    pci_bus: usize,
    offset: impl Fn(&Property) -> usize,
) -> Result<(), Status> {
    let number = checked(device)?;
    let out = out.ok_or(INVALID_VALUE)?;
    let mut bytes = vec![0; out.len()];
    let mut store = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let name = settings().gpu.name.as_bytes();
    store(0, &name[..name.len().min(255)]);
    store(256 + 15, &[number as u8]); // uuid
    store(288, &settings().gpu.memory_bytes.to_ne_bytes());
    for property in properties().iter().filter(|property| offset(property) > 0) {
        store(offset(property), &property.value.to_ne_bytes()[..property.bytes]);
    }
    store(pci_bus, &(device + 1).to_ne_bytes());
    for (place, byte) in out.iter_mut().zip(bytes) {
        place.write(byte);
    }
    Ok(())
}

functions! {
    /// The function called by programs built for CUDA 12.
    fn cudaGetDeviceProperties_v2(out: Option<&mut Properties>, device: c_int) {
        describe(out.map(|out| &mut out[..]), device, 584, |property| property.offset_12)
    }

    /// The version of the function for programs built for CUDA 13, whose structure is shorter.
    fn cudaGetDeviceProperties(out: Option<&mut [MaybeUninit<u8>; 1008]>, device: c_int) {
        describe(out.map(|out| &mut out[..]), device, 568, |property| property.offset_13)
    }

    /// Returns an attribute. Unknown attributes are 0, since they are features that the simulated GPU lacks.
    fn cudaDeviceGetAttribute, cuDeviceGetAttribute(value: Out<'_, c_int>, attribute: c_int, device: c_int) {
        let known = properties();
        let known = known.iter().find(|property| property.attribute == attribute);
        // 33: the PCI bus.
        let otherwise = if attribute == 33 { device + 1 } else { 0 };
        checked(device).map(|_| give(value, known.map_or(otherwise, |property| property.value as c_int)))
    }

    fn cuDeviceTotalMem_v2(bytes: Out<'_, usize>, device: c_int) {
        checked(device).map(|_| give(bytes, settings().gpu.memory_bytes as usize))
    }

    fn cuDeviceGetUuid_v2(out: Option<&mut [u8; 16]>, device: c_int) {
        match (checked(device), out) {
            (Ok(device), Some(out)) => { *out = [0; 16]; out[15] = device as u8; SUCCESS }
            (Err(status), _) => status,
            _ => INVALID_VALUE,
        }
    }

    fn cuDeviceGetName(text: *mut c_char, length: c_int, device: c_int) {
        checked(device).and_then(|_| copy_text(text, length, &settings().gpu.name))
    }

    fn cudaDeviceGetPCIBusId(text: *mut c_char, length: c_int, device: c_int) {
        checked(device).and_then(|device| copy_text(text, length, &format!("0000:{:02x}:00.0", device + 1)))
    }
}

/// Writes a null-terminated text to `out`, a buffer of `length` bytes.
fn copy_text(out: *mut c_char, length: c_int, text: &str) -> Result<(), Status> {
    let most = usize::try_from(length).ok().and_then(|length| length.checked_sub(1)).filter(|_| !out.is_null());
    let most = most.ok_or(INVALID_VALUE)?;
    let text = &text.as_bytes()[..text.len().min(most)];
    // SAFETY: the caller's buffer has `length` bytes, of which at most all are written.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), out, text.len());
        *out.add(text.len()) = 0;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_and_both_structures_agree() {
        let mut of_12 = [MaybeUninit::new(0xff_u8); 1032];
        let mut of_13 = [MaybeUninit::new(0xff_u8); 1008];
        assert_eq!(cudaGetDeviceProperties_v2(Some(&mut of_12), 0), SUCCESS);
        assert_eq!(cudaGetDeviceProperties(Some(&mut of_13), 0), SUCCESS);
        // SAFETY: every byte was initialized above.
        let [of_12, of_13] = [&of_12[..], &of_13[..]]
            .map(|bytes| bytes.iter().map(|byte| unsafe { byte.assume_init() }).collect::<Vec<u8>>());
        assert!(of_12.starts_with(b"NVIDIA A100-SXM4-80GB\0") && of_13.starts_with(b"NVIDIA A100-SXM4-80GB\0"));
        for property in properties().iter().filter(|property| property.offset_12 > 0) {
            let wanted = &property.value.to_ne_bytes()[..property.bytes];
            assert_eq!(&of_12[property.offset_12..][..property.bytes], wanted, "{}", property.attribute);
            assert_eq!(&of_13[property.offset_13..][..property.bytes], wanted, "{}", property.attribute);
            let mut value = MaybeUninit::new(-1);
            assert_eq!(cudaDeviceGetAttribute(Some(&mut value), property.attribute, 0), SUCCESS);
            // SAFETY: initialized above.
            assert_eq!(i64::from(unsafe { value.assume_init() }), property.value & 0xffff_ffff);
        }
    }

    #[test]
    fn a_device_that_does_not_exist_is_refused() {
        assert_eq!(cudaGetDeviceProperties(Some(&mut [MaybeUninit::new(0); 1008]), 1), crate::abi::INVALID_DEVICE);
        assert_eq!(cudaDeviceGetAttribute(None, 1, -1), crate::abi::INVALID_DEVICE);
    }
}
