"""What `highwater convert` writes for other programs, read by these programs' own readers."""

import json
import subprocess

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
    trace_pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="perfetto is not installed")
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
