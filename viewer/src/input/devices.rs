//! Selects the devices of a report, and formats their names for its first line.

use highwater_analysis::Metric;
use highwater_snapshots::{DeviceId, Trace};

use crate::input::recording::choose_device;
use crate::input::source::Input;
use crate::output::{Failure, about};

const HOST: &str = "host memory";
/// The driver of tensors on the CPU, whose memory is host memory.
const CPU_DRIVER: &str = "cpu";

/// Returns the beginning of the first line of a report on `device`, such as `On device 1 of 3: `; empty if the
/// recording has only one device.
pub(crate) fn on_device(trace: &Trace, device: DeviceId) -> String {
    on_devices(trace, &[device])
}

/// Like [`on_device`], for a report about several devices, such as `On all 3 devices: ` or `On devices 0, 2 of 3: `.
pub(crate) fn on_devices(trace: &Trace, devices: &[DeviceId]) -> String {
    match where_phrase(trace, devices) {
        Some((preposition, phrase)) => format!("{}{} {phrase}: ", preposition[..1].to_uppercase(), &preposition[1..]),
        None => String::new(),
    }
}

/// Returns a phrase for `device` within a sentence, such as ` on device 1 of 3`; empty if the recording has only one
/// device.
pub(crate) fn where_on(trace: &Trace, device: DeviceId) -> String {
    where_phrase(trace, &[device]).map_or_else(String::new, |(preposition, phrase)| format!(" {preposition} {phrase}"))
}

fn where_phrase(trace: &Trace, devices: &[DeviceId]) -> Option<(&'static str, String)> {
    let phrase = phrase(trace, devices)?;
    Some((if phrase == HOST { "in" } else { "on" }, phrase))
}

/// Names devices, such as `device 1 of 3`, `all 3 devices`, `devices 0, 2 of 3` or `host memory`; `None` if the
/// recording has only one device.
pub(crate) fn phrase(trace: &Trace, devices: &[DeviceId]) -> Option<String> {
    let known = trace.device_ids();
    if known.len() < 2 {
        return None;
    }
    let is_host = |device: &DeviceId| trace.is_host_memory(*device);
    let gpus = known.iter().filter(|device| !is_host(device)).count();
    let named: Vec<String> =
        devices.iter().filter(|device| !is_host(device)).map(|device| device.0.to_string()).collect();
    let of = if gpus > 1 { format!(" of {gpus}") } else { String::new() };
    let host = devices.iter().any(is_host).then_some(HOST);
    let gpus = match named.as_slice() {
        [] => None,
        [one] => Some(format!("device {one}{of}")),
        all if all.len() == gpus => Some(format!("all {gpus} devices")),
        some => Some(format!("devices {}{of}", some.join(", "))),
    };
    let parts: Vec<String> = gpus.into_iter().chain(host.map(str::to_owned)).collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}

/// Returns a phrase for the devices that a check covers. Unlike [`phrase`], it names host memory even if that is the
/// only memory.
pub(crate) fn covered_phrase(trace: &Trace, devices: &[DeviceId]) -> Option<String> {
    let is_cpu = |device: DeviceId| trace.device_facts(device).is_some_and(|facts| facts.driver == CPU_DRIVER);
    let is_host = |device: &DeviceId| trace.is_host_memory(*device) || is_cpu(*device);
    phrase(trace, devices).or_else(|| (!devices.is_empty() && devices.iter().all(is_host)).then(|| HOST.to_owned()))
}

/// Returns the devices that a check covers: the requested device, which must be in the recording, or otherwise all
/// devices with memory. Includes host memory only if it is requested, or if no other device has memory. If no device has
/// any, all GPUs are covered.
pub(crate) fn covered(trace: &Trace, wanted: Option<u16>) -> Result<Vec<DeviceId>, Failure> {
    if wanted.is_some() {
        return Ok(vec![choose_device(trace, wanted)?]);
    }
    Ok(trace.covered_devices())
}

/// Returns the devices to compare: the requested devices, which must be in their recordings, or otherwise the default
/// devices. Fails if one of them lacks `metric`.
pub(crate) fn compared_devices(
    inputs: [&Input; 2],
    wanted: [Option<u16>; 2],
    metric: Metric,
) -> Result<[DeviceId; 2], Failure> {
    let mut devices = inputs.map(|input| input.facts().main_device());
    for (side, device) in devices.iter_mut().enumerate() {
        let of_side = |failure| about(["A", "B"][side], failure);
        if wanted[side].is_some() {
            *device = choose_device(inputs[side].facts(), wanted[side]).map_err(of_side)?;
        }
        inputs[side].check_metric(*device, metric).map_err(of_side)?;
    }
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use highwater_analysis::source::Source;
    use highwater_notation::trace_from_text;
    use highwater_pytorch::open::{FileFormat, FileKind};
    use highwater_snapshots::trace::{DeviceFacts, PINNED_DRIVER};

    use super::*;

    fn trace(devices: &[u16], host: Option<u16>) -> Trace {
        let lines = devices.iter().map(|device| format!("alloc d{device} 10 device={device}\n"));
        trace_from_text(&lines.collect::<String>()).unwrap().edited(|trace| {
            trace.devices = host
                .map(|device| DeviceFacts {
                    device: DeviceId(device),
                    driver: PINNED_DRIVER.to_owned(),
                    ..DeviceFacts::default()
                })
                .into_iter()
                .collect();
        })
    }

    #[test]
    fn first_lines_name_the_device_where_there_are_several() {
        let on = |trace: &Trace, devices: &[u16]| {
            on_devices(trace, &devices.iter().map(|device| DeviceId(*device)).collect::<Vec<_>>())
        };
        assert_eq!(on(&trace(&[0], None), &[0]), "");
        let three = trace(&[0, 1, 4], None);
        assert_eq!(on(&three, &[4]), "On device 4 of 3: ");
        assert_eq!(on(&three, &[0, 4]), "On devices 0, 4 of 3: ");
        assert_eq!(on(&three, &[0, 1, 4]), "On all 3 devices: ");
        assert_eq!(on_device(&three, DeviceId(1)), "On device 1 of 3: ");
        let pinned = trace(&[0, 255], Some(255));
        assert_eq!(on(&pinned, &[0]), "On device 0: ", "host memory is no second GPU");
        assert_eq!(on(&pinned, &[255]), "In host memory: ");
        assert_eq!(where_on(&pinned, DeviceId(255)), " in host memory");
        assert_eq!(where_on(&three, DeviceId(4)), " on device 4 of 3");
        assert_eq!(where_on(&trace(&[0], None), DeviceId(0)), "");
        assert_eq!(on(&pinned, &[0, 255]), "On device 0 and host memory: ");
    }

    #[test]
    fn a_verdict_names_host_memory_where_the_recording_has_nothing_else() {
        let on = |trace: &Trace| covered_phrase(trace, &[trace.main_device()]);
        assert_eq!(on(&trace(&[255], Some(255))).as_deref(), Some(HOST));
        let driven_by = |driver: &str| trace(&[0], Some(0)).edited(|one| one.devices[0].driver = driver.to_owned());
        assert_eq!(on(&driven_by(CPU_DRIVER)).as_deref(), Some(HOST));
        assert_eq!(on(&driven_by("cuda 13.0")), None);
        assert_eq!(on(&trace(&[0, 255], Some(255))).as_deref(), Some("device 0"));
    }

    #[test]
    fn each_recording_is_compared_on_its_default_device() {
        let devices = |a: &Input, b: &Input| {
            compared_devices([a, b], [None; 2], Metric::Requested).unwrap().map(|device| device.0)
        };
        let format = FileFormat { kind: FileKind::Snap, is_gzipped: false };
        let of = |text: &str| Input::of(Source::in_memory(trace_from_text(text).unwrap()), format, Path::new(""));
        let (on_0, on_1) = (of("alloc a 20\nalloc b 5 device=1"), of("alloc a 5\nalloc b 20 device=1"));
        assert_eq!(devices(&on_0, &on_0), [0, 0]);
        assert_eq!(devices(&on_0, &on_1), [0, 1]);
        let ran_out = of("alloc a 5\nalloc b 5 device=1\nalloc c 5 device=2\noom 9 free=0 device=2");
        assert_eq!(devices(&on_0, &ran_out), [0, 2]);
        assert_eq!(devices(&ran_out, &on_1), [2, 1]);
        let chosen = |wanted| compared_devices([&on_0, &on_1], wanted, Metric::Requested).unwrap();
        assert_eq!(chosen([Some(1), Some(0)]).map(|device| device.0), [1, 0]);
    }

    #[test]
    fn a_verdict_covers_every_gpu_unless_one_device_is_asked_for() {
        let of = |trace: &Trace, wanted| covered(trace, wanted).map(|all| all.iter().map(|device| device.0).collect());
        let all: Vec<u16> = of(&trace(&[0, 2, 255], Some(255)), None).unwrap();
        assert_eq!(all, [0, 2]);
        assert_eq!(of(&trace(&[0, 2], None), Some(2)).unwrap(), [2]);
        assert_eq!(of(&trace(&[0, 255], Some(255)), Some(255)).unwrap(), [255]);
        assert_eq!(of(&trace(&[255], Some(255)), None).unwrap(), [255]);
        assert!(
            of(&trace(&[0], None), Some(3)).unwrap_err().to_string().contains("no such device; its only device is 0")
        );
    }
}
