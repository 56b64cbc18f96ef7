"""What `highwater convert` writes for other programs, read by these programs' own readers."""

import gzip
import json
import os
import subprocess
import sys

import pytest


def highwater(*words, cwd):
    return subprocess.run(["highwater", *words], cwd=cwd, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a recording of two steps."""
    folder = tmp_path_factory.mktemp("formats")
    size = ["--layers", "2", "--width", "96", "--vocab", "500", "--batch", "2", "--seq", "32"]
    highwater("record", "gpt2", *size, "--steps", "2", "--device", "meta:cuda", "--out", "step.snap", cwd=folder)
    return folder


def test_perfettos_own_messages_have_the_peaks_of_info_and_the_steps(folder):
    messages = "perfetto.protos.perfetto.trace.perfetto_trace_pb2"
    trace_pb2 = pytest.importorskip(messages, reason="perfetto is not installed")
    highwater("convert", "step.snap", "step.perfetto-trace", cwd=folder)
    trace = trace_pb2.Trace()
    trace.ParseFromString((folder / "step.perfetto-trace").read_bytes())
    tracks = {packet.track_descriptor.uuid: packet.track_descriptor for packet in trace.packet}
    names = {uuid: track.name for uuid, track in tracks.items()}
    counters = {uuid for uuid, track in tracks.items() if track.counter.unit == track.counter.UNIT_SIZE_BYTES}
    events = [packet for packet in trace.packet if packet.HasField("track_event")]
    kind = trace_pb2.TrackEvent

    values = {}
    for packet in events:
        if packet.track_event.type == kind.TYPE_COUNTER:
            assert packet.track_event.track_uuid in counters
            values.setdefault(names[packet.track_event.track_uuid], []).append(packet.track_event.counter_value)
    device = json.loads(highwater("info", "step.snap", "--json", cwd=folder))["devices"][0]
    for total in ("requested", "allocated", "active", "reserved"):
        assert max(values[total]) == device["peaks"][total]["bytes"], total
        assert values[total][-1] == device["end"][total], total
    at_peak = json.loads(highwater("peak", "step.snap", "--by", "category", "--json", cwd=folder))["groups"]
    for group in at_peak:
        assert group["bytes"] in values[f"live {group['key']}"], group

    slices = [packet.track_event for packet in events if packet.track_event.type == kind.TYPE_SLICE_BEGIN]
    ends = [packet.track_event for packet in events if packet.track_event.type == kind.TYPE_SLICE_END]
    assert [event.name for event in slices if names[event.track_uuid] == "Steps"] == ["step 0", "step 1"]
    phases = [event.name for event in slices if names[event.track_uuid] == "Phases"]
    assert {"forward", "backward", "optimizer"} <= set(phases) and len(slices) == len(ends)
    instants = [packet.track_event.name for packet in events if packet.track_event.type == kind.TYPE_INSTANT]
    assert len(instants) == 1 and instants[0].startswith("peak: "), instants


PROFILE = """
import sys, gzip, profile_pb2
profile = profile_pb2.Profile()
profile.ParseFromString(gzip.open(sys.argv[1]).read())
text = profile.string_table
(space,) = [row for row, type in enumerate(profile.sample_type) if text[type.type] == "inuse_space"]
locations = {of.id: of.line[0] for of in profile.location}
functions = {of.id: text[of.name] for of in profile.function}
for sample in profile.sample:
    stack = [functions[locations[id].function_id] for id in sample.location_id]
    print(sample.value[space], text[sample.label[0].str], stack[-1])
"""


def test_a_reader_of_pprof_profiles_has_the_peak_by_category(folder):
    pypprof = pytest.importorskip("pypprof", reason="pypprof is not installed")
    highwater("convert", "step.snap", "peak.pb.gz", cwd=folder)
    # Its messages were generated for an older protobuf, which only the implementation in Python accepts.
    messages = os.path.dirname(pypprof.__file__)
    environment = {**os.environ, "PYTHONPATH": messages, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    program = [sys.executable, "-c", PROFILE, "peak.pb.gz"]
    lines = subprocess.run(program, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout
    samples = [line.split(maxsplit=2) for line in lines.splitlines()]
    peak = json.loads(highwater("peak", "step.snap", "--by", "category", "--json", cwd=folder))
    for group in peak["groups"]:
        assert sum(int(size) for size, category, _ in samples if category == group["key"]) == group["bytes"], group
    assert sum(int(size) for size, _, _ in samples) == peak["bytes"]
    assert {outermost for _, _, outermost in samples} - {"(no stack)"}, "stacks have names"


def test_speedscope_has_the_bytes_of_the_folded_stacks(folder):
    highwater("convert", "step.snap", "peak.speedscope.json", cwd=folder)
    highwater("convert", "step.snap", "peak.folded", cwd=folder)
    profile = json.loads((folder / "peak.speedscope.json").read_text())
    frames = [frame["name"] for frame in profile["shared"]["frames"]]
    (sampled,) = profile["profiles"]
    assert (sampled["type"], sampled["unit"]) == ("sampled", "bytes")
    folded = [line.rsplit(" ", 1) for line in (folder / "peak.folded").read_text().splitlines()]
    assert sum(sampled["weights"]) == sampled["endValue"] == sum(int(size) for _, size in folded)
    depths = {len(stack.split(";")) for stack, _ in folded}
    assert {len(stack) for stack in sampled["samples"]} == depths
    assert all(0 <= row < len(frames) for stack in sampled["samples"] for row in stack)


def test_a_recording_lies_beside_the_trace_of_the_profiler_on_its_clock(torch, tmp_path):
    from torch.profiler import ProfilerActivity, profile, record_function

    import highwater as package

    def traced(name):
        trace = json.loads(gzip.open(tmp_path / name).read())
        return trace, trace["traceEvents"]

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        with package.record_memory_history(tmp_path / "step.snap"):
            for size in (1 << 20, 3 << 20):
                with record_function("loading"):
                    kept = torch.ones(size, dtype=torch.uint8, device="cuda")
                del kept
    profiler.export_chrome_trace(str(tmp_path / "profile.json.gz"))
    highwater("convert", "step.snap", "both.trace.json.gz", "--with", "profile.json.gz", cwd=tmp_path)
    profiled, events = traced("profile.json.gz")
    both, joined = traced("both.trace.json.gz")
    assert {name for name in profiled if name != "traceEvents"} <= set(both)
    assert joined[-len(events) :] == events, "the profiler's events stay"
    requested = [event for event in joined if event.get("name") == "requested"]
    spans = [event for event in events if event.get("name") == "loading" and event["ph"] == "X"]
    assert len(spans) == 2
    for span, size in zip(sorted(spans, key=lambda span: span["ts"]), (1 << 20, 3 << 20)):
        # The times of a recording are whole microseconds.
        within = [of for of in requested if span["ts"] - 1 <= of["ts"] <= span["ts"] + span["dur"] + 1]
        assert size in [event["args"]["bytes"] for event in within], (span, requested)

    other = {"baseTimeNanoseconds": 1000, "traceEvents": [{"ph": "i", "name": "x", "ts": 1}]}
    (tmp_path / "other.json").write_text(json.dumps(other))
    words = ["highwater", "convert", "step.snap", "none.trace.json", "--with", "other.json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "not of the same run" in done.stderr, done.stderr
    assert not (tmp_path / "none.trace.json").exists()
