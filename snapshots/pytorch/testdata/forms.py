"""Forms: recorded snapshots in the other forms that files have, or have had, and with things that may come."""

import copy
import gzip
import io
import json
import pathlib
import pickle
import pickletools
import subprocess
import sys
import tempfile

from replay import load

HUGE = 0xFFFF_8000_0000_0000 - 0x7F00_0000_0000


def events_of(snapshot):
    return (event for trace in snapshot["device_traces"] for event in trace)


def without_blocks_addresses(snapshot):
    """A bare list of segments as of 2022: no traces, no addresses of blocks, the newest history in place of frames."""
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            frames, requested = block.pop("frames"), block.pop("requested_size")
            if block["state"] != "inactive":
                past = {"addr": block["address"], "frames": [], "real_size": 1}
                block["history"] = [{"addr": block["address"], "frames": frames, "real_size": requested}, past]
            del block["address"]
    return snapshot["segments"]


def as_of_2023(snapshot):
    """Events without times, pools or texts; blocks without a requested size; another word for waiting."""
    snapshot = {key: snapshot[key] for key in ("segments", "device_traces")}
    for event in events_of(snapshot):
        for key in ("time_us", "pool_id", "compile_context", "user_metadata"):
            event.pop(key, None)
    for segment in snapshot["segments"]:
        for key in ("segment_pool_id", "is_expandable", "requested_size", "frames"):
            segment.pop(key, None)
        for block in segment["blocks"]:
            if block["state"] == "active_pending_free":
                block["state"] = "active_awaiting_free"
    return snapshot


def with_the_unknown(snapshot):
    """Keys and actions that no version of PyTorch has written, everywhere."""
    news = {"none": None, "yes": True, "no": False, "half": 0.5, "minus": -7, "far": -(1 << 40), "long": "x" * 300}
    news |= {"nested": {"a": [1, {"b": (1, 2, 3, 4, 5)}, []], "empty": {}}, "wide": 1 << 100, "names": ("é", "☂", "𝄞")}
    snapshot |= {"of_the_future": copy.deepcopy(news), "": []}
    for number, event in enumerate(events_of(snapshot)):
        if number % 3 == 0:
            event.update({"thread": 7, **news} if number % 2 else {"size_class": None})
        for frame in event.get("frames", [])[:1]:
            frame["column"] = 12
    for segment in snapshot["segments"]:
        segment["heat"] = [0.25, None]
        for block in segment["blocks"]:
            block["owner"] = {"rank": 3}
    trace = snapshot["device_traces"][0]
    for position in range(len(trace) - 1, -1, -4):
        event = {"action": ("teleport", "segment_defrag", "")[position % 3], "addr": 64, "size": 1 << 30, "stream": 0}
        trace.insert(position, {**event, "time_us": trace[position]["time_us"]})
    return snapshot


def with_other_values(snapshot):
    """Values of kinds that snapshots do not have, under keys that nobody knows."""
    snapshot["kept"] = [b"bytes", b"b" * 300, bytearray(b"array"), {1, 2}, frozenset({3}), {(1, 2): "key", 5: 6, None: 0}]
    return snapshot


def with_user_defined(snapshot):
    """Annotations as nightlies of 2024 recorded them: events, whose one frame has START or END and the name."""
    trace = snapshot["device_traces"][0]
    ends = [(2, "START", "load"), (5, "END", "load"), (5, "START", "step 0"), (len(trace), "END", "step 0")]
    for position, stage, name in reversed(ends):
        time = trace[min(position, len(trace) - 1)]["time_us"]
        frame = {"name": stage, "filename": name, "line": 0}
        event = {"action": "user_defined", "addr": 0, "size": 0, "stream": 0, "time_us": time, "frames": [frame]}
        trace.insert(position, event)
    return snapshot


def with_huge_addresses(snapshot):
    """Addresses of 2^63 and more, which need nine bytes in a pickle."""
    for event in events_of(snapshot):
        if event.get("addr"):
            event["addr"] += HUGE
    for segment in snapshot["segments"]:
        segment["address"] += HUGE
        for block in segment["blocks"]:
            block["address"] += HUGE
    return snapshot


def on_two_devices(snapshot):
    """Made up: the same addresses in use on devices 0 and 3, with no device between that has any event."""
    (trace,) = (trace for trace in snapshot["device_traces"] if trace)
    other = copy.deepcopy(snapshot["segments"])
    for segment in other:
        segment["device"] = 3
    later = [{**event, "time_us": event["time_us"] + 11} for event in trace]
    snapshot["segments"] += other
    snapshot["device_traces"] = [trace, [], [], later]
    return snapshot


def with_fused_frees(snapshot):
    """free_requested and free_completed in one, as PyTorch's viewer holds them; and categories of torch.profiler."""
    for trace in snapshot["device_traces"]:
        for position in range(len(trace) - 2, -1, -1):
            one, two = trace[position : position + 2]
            if (one["action"], two["action"]) == ("free_requested", "free_completed") and one["addr"] == two["addr"]:
                trace[position : position + 2] = [{**one, "action": "free"}]
        for position, event in enumerate(trace):
            event["category"] = ("PARAMETER", "GRADIENT", "unknown")[position % 3]
    return snapshot


def least(snapshot):
    """No more than the keys that PyTorch's viewer needs."""
    for event in events_of(snapshot):
        for key in set(event) - {"action", "addr", "size", "stream"}:
            del event[key]
    for segment in snapshot["segments"]:
        for key in ("frames", "segment_pool_id", "is_expandable", "allocated_size", "active_size", "requested_size"):
            segment.pop(key, None)
        for block in segment["blocks"]:
            block.pop("frames")
    return {key: snapshot[key] for key in ("device_traces", "segments")}


def unshared(snapshot):
    """Nothing is kept for reuse: no memo at all."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, 4)
    pickler.fast = True
    pickler.dump(snapshot)
    return file.getvalue()


def page(snapshot):
    """The page of `python -m torch.cuda._memory_viz trace_plot`."""
    with tempfile.TemporaryDirectory() as folder:
        recording, out = pathlib.Path(folder, "a.pickle"), pathlib.Path(folder, "a.html")
        recording.write_bytes(pickle.dumps(snapshot, 4))
        command = [sys.executable, "-m", "torch.cuda._memory_viz", "trace_plot", recording, "-o", out]
        subprocess.run(command, check=True)
        return out.read_bytes()


def pickled(change, protocol=4):
    return lambda snapshot: pickle.dumps(change(snapshot), protocol)


def same(snapshot):
    return snapshot


# name -> (the recording that it is made from, what makes its bytes)
FORMS = {
    "protocol_2.pickle": ("pools.pickle", pickled(same, 2)),
    "protocol_3.pickle": ("pools.pickle", pickled(same, 3)),
    "protocol_4.pickle": ("pools.pickle", pickled(same, 4)),
    "protocol_5.pickle": ("pools.pickle", pickled(same, 5)),
    "optimized.pickle": ("pools.pickle", lambda snapshot: pickletools.optimize(pickle.dumps(snapshot, 4))),
    "unshared.pickle.gz": ("pools.pickle", lambda snapshot: gzip.compress(unshared(snapshot), 9, mtime=0)),
    "padded.pickle": ("pools.pickle", lambda snapshot: pickle.dumps(snapshot, 4) + bytes(3)),
    "snapshot.json": ("pools.pickle", lambda snapshot: json.dumps(snapshot, indent=1).encode()),
    "snapshot.json.gz": ("train_from_zero.pickle.gz", lambda s: gzip.compress(json.dumps(s).encode(), 9, mtime=0)),
    "trace_plot.html": ("two_streams.pickle", page),
    "list_of_segments.pickle": ("slack.pickle", pickled(without_blocks_addresses, 3)),
    "as_of_2023.pickle": ("two_streams.pickle", pickled(as_of_2023)),
    "least.pickle": ("two_streams.pickle", pickled(least)),
    "unknown.pickle": ("slack.pickle", pickled(with_the_unknown)),
    "other_values.pickle": ("slack.pickle", pickled(with_other_values, 5)),
    "user_defined.pickle": ("slack.pickle", pickled(with_user_defined)),
    "huge_addresses.pickle": ("two_streams.pickle", pickled(with_huge_addresses)),
    "same_addresses.pickle": ("slack.pickle", pickled(on_two_devices)),
    "fused_frees.pickle": ("two_streams.pickle", pickled(with_fused_frees)),
}


def write_forms(folder):
    """Writes every form; what each was made from."""
    for name, (source, form) in FORMS.items():
        snapshot = load(folder / source)
        (folder / name).write_bytes(form(snapshot))
    return {name: source for name, (source, _) in FORMS.items()}
