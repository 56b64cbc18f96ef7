//! Test helpers that create a snapshot with every kind of entry, as a value and as files.

use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::ControlFlow;

use base64::Engine as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use highwater_pytorch::RawSnapshot;
use highwater_pytorch::raw::RawEvent;
use highwater_snapshots::event::What;
use highwater_snapshots::format::Progress;
use highwater_snapshots::{StringId, Trace};
use serde_json::{Value, json};

/// A listener that never stops anything.
pub(crate) fn go(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn frame(name: &str, line: u32) -> Value {
    json!({"name": name, "filename": "net.py", "line": line})
}

/// A snapshot of two devices with every key that the format has.
pub(crate) fn snapshot() -> Value {
    let fx = json!({
        "name": "forward", "filename": "<eval_with_key>.0", "line": 5, "fx_node_op": "call_function",
        "fx_node_name": "relu", "fx_node_target": "aten.relu.default",
        "fx_original_trace": "File \"net.py\", line 7, in forward\n    return relu(x)\n",
    });
    let event = |action: &str, addr: u64, size: u64, time: u64| {
        json!({
            "action": action, "addr": addr, "size": size, "stream": 0, "time_us": 1_700_000_000_000_000_u64 + time,
            "compile_context": "N/A", "user_metadata": "", "pool_id": [0, 0],
            "frames": [frame("step", 3), frame("main", 9)],
        })
    };
    let mut rich = event("alloc", 0x7f52_2400_0200, 1000, 2);
    rich["frames"] = json!([fx, frame("main", 9)]);
    rich["forward_frames"] = json!(["  File \"net.py\", line 7", "  File \"main.py\", line 9"]);
    rich["compile_context"] = json!("Torch-Compiled Region: 0/0");
    rich["user_metadata"] = json!("{\"step\":4}");
    rich["internal_metadata"] = json!("mallocWithAddress");
    rich["category"] = json!("ACTIVATION");
    rich["pool_id"] = json!([0, 3]);
    rich["stream"] = json!(0x55d0_1234_u64);
    let mut plain = event("free_completed", 0x7f52_2400_0000, 512, 4);
    plain.as_object_mut().unwrap().remove("frames");
    json!({
        "segments": [{
            "device": 0, "address": 0x7f52_2400_0000_u64, "total_size": 2_097_152, "allocated_size": 1024,
            "active_size": 1536, "requested_size": 1000, "stream": 0, "segment_type": "small",
            "segment_pool_id": [0, 0], "is_expandable": false, "frames": [frame("make", 1)],
            "blocks": [
                {"address": 0x7f52_2400_0000_u64, "size": 512, "requested_size": 500, "state": "active_pending_free",
                 "frames": []},
                {"address": 0x7f52_2400_0200_u64, "size": 1024, "requested_size": 1000, "state": "active_allocated",
                 "frames": [frame("step", 3)], "forward_frames": ["  File \"net.py\", line 7"]},
                {"address": 0x7f52_2400_0600_u64, "size": 2_095_616, "requested_size": 7, "state": "inactive",
                 "frames": []},
            ],
        }],
        "device_traces": [
            [event("segment_alloc", 0x7f52_2400_0000, 2_097_152, 0), event("alloc", 0x7f52_2400_0000, 500, 1), rich,
             event("free_requested", 0x7f52_2400_0000, 500, 3), plain],
            [{"action": "oom", "device_free": 4096, "size": 8192, "stream": 0, "time_us": 1_700_000_000_000_005_u64}],
        ],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "max_split_size": -1,
            "garbage_collection_threshold": 0.0, "expandable_segments": true, "release_lock_on_cudamalloc": false,
            "roundup_power2_divisions": {"1": 0, "256": 4},
        },
        "external_annotations": [
            {"stage": "START", "name": "step 0", "device": 0, "time_us": 1_700_000_000_000_000_u64},
            {"stage": "END", "name": "step 0", "device": 0, "time_us": 1_700_000_000_000_009_u64},
        ],
        "host_segments": [{
            "device": -1, "address": 4096, "total_size": 64, "stream": 0, "segment_type": "small",
            "is_expandable": false, "segment_pool_id": [0, 0], "blocks":
                [{"address": 4096, "size": 64, "requested_size": 64, "state": "active_allocated", "frames": []}],
        }],
        "host_traces": [{"action": "alloc", "addr": 4096, "size": 64, "stream": 0, "time_us": 7}],
        "highwater": "kept",
    })
}

/// `value` as a pickle: protocol 2 as PyTorch's C++ writes it, others as Python does, but nothing shared.
pub(crate) fn pickle(value: &Value, protocol: u8) -> Vec<u8> {
    fn put(out: &mut Vec<u8>, value: &Value, protocol: u8) {
        match value {
            Value::Null => out.push(b'N'),
            Value::Bool(flag) => out.push(if *flag { 0x88 } else { 0x89 }),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(number @ 0..=255), _) => out.extend([b'K', number as u8]),
                (Some(number), _) => {
                    out.extend([0x8a, 8]);
                    out.extend(number.to_le_bytes());
                }
                (None, number) => {
                    out.push(b'G');
                    out.extend(number.unwrap().to_be_bytes());
                }
            },
            Value::String(text) if text.len() < 256 && protocol >= 4 => {
                out.extend([0x8c, text.len() as u8]);
                out.extend(text.as_bytes());
            }
            Value::String(text) => {
                out.push(b'X');
                out.extend((text.len() as u32).to_le_bytes());
                out.extend(text.as_bytes());
            }
            Value::Array(items) => {
                out.extend(b"](");
                items.iter().for_each(|item| put(out, item, protocol));
                out.push(b'e');
            }
            Value::Object(items) => {
                out.extend(b"}(");
                for (key, value) in items {
                    put(out, &Value::String(key.clone()), protocol);
                    put(out, value, protocol);
                }
                out.push(b'u');
            }
        }
    }
    let mut out = vec![0x80, protocol];
    put(&mut out, value, protocol);
    out.push(b'.');
    out
}

/// `bytes` in a gzip file.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

/// A page with files in it, as PyTorch saves it: padded with NULs, so that the text needs no other padding.
pub(crate) fn page(files: &[(&str, &[u8])]) -> String {
    let encoded = files.iter().map(|(name, bytes)| {
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().next_multiple_of(3), 0);
        let text = base64::engine::general_purpose::STANDARD.encode(bytes);
        format!("{{\"name\": {}, \"base64\": \"{text}\"}}", json!(name))
    });
    let files: Vec<String> = encoded.collect();
    format!(
        "<!DOCTYPE html>\n<html>\n<head>\n</head>\n<body>\n<script type=\"module\">\n\
         import {{add_local_files}} from \"https://example.org/MemoryViz.js\"\n\
         const local_files = [{}]\n\
         add_local_files(local_files, 'Allocator State History')\n</script>\n</body>\n",
        files.join(", ")
    )
}

/// The events of a recording.
pub(crate) fn events(trace: &Trace) -> Vec<What> {
    trace.events.ids().map(|id| trace.what(id)).collect()
}

/// Everything that a snapshot says, its rows looked up.
pub(crate) fn contents(raw: &RawSnapshot) -> String {
    let mut out = String::new();
    let text = |id: StringId| id.index().map_or("-", |row| raw.strings[row].as_str());
    let stack = |number: u32| {
        let frames = raw.stacks.get(number).iter().map(|row| raw.frames[*row as usize]);
        let frame = |f: highwater_pytorch::raw::RawFrame| {
            format!("{}({}:{}) {}", text(f.name), text(f.file), f.line, text(f.fx))
        };
        frames.map(frame).collect::<Vec<_>>().join(" < ")
    };
    let texts = |number: u32| raw.texts.get(number).iter().map(|id| text(StringId(*id))).collect::<Vec<_>>().join("|");
    let event = |event: &RawEvent| {
        let extras = raw.extras[event.extras as usize];
        let [context, user, internal, category, action] =
            [extras.compile_context, extras.user_metadata, extras.internal_metadata, extras.category, extras.action]
                .map(text);
        format!(
            "{:?} {:#x} {} at {} on {:#x} [{}] {:?} {context} {user} {internal} {category} {action} [{}]",
            event.action,
            event.address,
            event.size,
            event.time_us,
            event.stream,
            stack(event.stack),
            extras.pool_id,
            texts(extras.forward),
        )
    };
    for (device, trace) in raw.traces.iter().enumerate() {
        for row in trace {
            writeln!(out, "{device}: {}", event(row)).unwrap();
        }
    }
    for row in &raw.host_trace {
        writeln!(out, "host: {}", event(row)).unwrap();
    }
    for (kind, segments) in [("segment", &raw.segments), ("host segment", &raw.host_segments)] {
        for segment in segments {
            let shown = highwater_pytorch::raw::RawSegment { stack: 0, blocks: 0..0, ..segment.clone() };
            writeln!(out, "{kind}: {shown:?} [{}]", stack(segment.stack)).unwrap();
            for block in &raw.blocks[segment.blocks.clone()] {
                let (state, stack, forward) = (block.state, stack(block.stack), texts(block.forward));
                let (address, size, requested) = (block.address, block.size, block.requested_size);
                writeln!(out, "  {address:#x} {size} {requested} {state:?} [{stack}] [{forward}]").unwrap();
            }
        }
    }
    for row in &raw.annotations {
        writeln!(out, "{} {} {} {}", text(row.name), row.is_start, row.device, row.time_us).unwrap();
    }
    let mut settings = raw.settings.clone();
    settings.sort();
    writeln!(out, "{settings:?} {:?}", raw.highwater).unwrap();
    for problem in &raw.problems {
        writeln!(out, "! {problem}").unwrap();
    }
    out
}
