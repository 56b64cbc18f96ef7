"""What `highwater convert` writes for other programs, read by these programs' own readers."""

import base64
import gzip
import json
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys

import pytest
import trace_processor


def highwater(*words, cwd):
    return subprocess.run(["highwater", *words], cwd=cwd, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a recording of two steps."""
    folder = tmp_path_factory.mktemp("formats")
    size = ["--layers", "2", "--width", "96", "--vocab", "500", "--batch", "2", "--seq", "32"]
    highwater("record", "gpt2", *size, "--steps", "2", "--device", "meta:cuda", "--out", "step.snap", cwd=folder)
    return folder


def peaks_and_ends(folder):
    """What `info` says of the totals of its device: the bytes at the peak and at the end."""
    device = json.loads(highwater("info", "step.snap", "--json", cwd=folder))["devices"][0]
    totals = ("requested", "allocated", "active", "reserved")
    return {total: (device["peaks"][total]["bytes"], device["end"][total]) for total in totals}


def by_category(folder):
    """The peak by category: all bytes, and those of each."""
    peak = json.loads(highwater("peak", "step.snap", "--by", "category", "--json", cwd=folder))
    return peak["bytes"], {group["key"]: group["bytes"] for group in peak["groups"]}


COUNTERS = """
select replace(t.name, ' bytes', '') as name, c.ts, cast(c.value as int) as value
from counter c join track t on c.track_id = t.id order by c.ts, c.id
"""


@pytest.mark.parametrize("name", ["step.perfetto-trace", "step.trace.json.gz"])
def test_perfettos_trace_processor_has_the_totals_of_info_and_the_steps(folder, name):
    highwater("convert", "step.snap", name, cwd=folder)
    slices, peaks = "select name, dur from slice where dur != 0", "select ts from slice where name like 'peak: %'"
    problems = "select name, value from stats where value > 0 and severity in ('error', 'data_loss')"
    counted, slices, peaks, problems = trace_processor.ask(folder / name, COUNTERS, slices, peaks, problems)
    assert problems == []
    values = {}
    for row in counted:
        values.setdefault(row["name"], []).append((row["ts"], row["value"]))
    for total, expected in peaks_and_ends(folder).items():
        assert (max(value for _, value in values[total]), values[total][-1][1]) == expected, total

    (peak,) = peaks
    _, categories = by_category(folder)
    at_peak = {of: [value for ts, value in values[f"live {of}"] if ts <= peak["ts"]][-1] for of in categories}
    assert at_peak == categories
    assert [row["name"] for row in slices if row["name"].startswith("step ")] == ["step 0", "step 1"]
    assert {"forward", "backward", "optimizer"} <= {row["name"] for row in slices}
    assert all(row["dur"] > 0 for row in slices), "everything ends"


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
    peak, categories = by_category(folder)
    sizes = {of: sum(int(size) for size, category, _ in samples if category == of) for of in categories}
    assert sizes == categories and sum(int(size) for size, _, _ in samples) == peak
    assert {outermost for _, _, outermost in samples} - {"(no stack)"}, "stacks have names"


@pytest.mark.parametrize("name", ["peak.speedscope.json", "peak.pb", "peak.folded"])
def test_speedscope_shows_the_peak(folder, tmp_path, name):
    page = pathlib.Path(os.environ.get("HIGHWATER_SPEEDSCOPE", "missing"), "dist", "release", "index.html")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not page.exists() or chromium is None:
        pytest.skip("Chromium is not installed, or HIGHWATER_SPEEDSCOPE does not name the package's folder")
    highwater("convert", "step.snap", name, cwd=folder)
    content = base64.b64encode((folder / name).read_bytes()).decode()
    (tmp_path / "profile.js").write_text(f"speedscope.loadFileFromBase64({json.dumps(name)}, '{content}')")
    # As its own command opens a file. The simulated GPU is for Python.
    address = f"{page.resolve().as_uri()}#localProfilePath={tmp_path / 'profile.js'}&view=sandwich"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    words = [chromium, "--headless", "--no-sandbox", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    words += ["--allow-file-access-from-files", "--virtual-time-budget=2000"]
    # The table shows what fits.
    words += ["--window-size=800,9000", address]
    shown = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120).stdout
    # The columns are the bytes of a function with those that it calls, and its own.
    own = re.findall(r"<td[^>]*>([\d,.]+)(?: ([KMGT]?)B)? \((?:&lt;)?[\d.]+%\)", shown)[1::2]
    sizes = [(float(number.replace(",", "")), 1024 ** " KMGT".index(unit or " ")) for number, unit in own]
    peak, _ = by_category(folder)
    rounded = sum(scale / 200 for number, scale in sizes if scale > 1)
    assert abs(sum(number * scale for number, scale in sizes) - peak) <= rounded < peak / 1000, own


@pytest.mark.parametrize("name", ["step.pickle", "step.json"])
def test_pytorchs_own_viewer_reads_the_totals_at_the_end_and_every_event(folder, name):
    viz = pytest.importorskip("torch.cuda._memory_viz", reason="PyTorch is not installed")
    highwater("convert", "step.snap", name, cwd=folder)
    data = (folder / name).read_bytes()
    snapshot = json.loads(data) if name.endswith("json") else pickle.loads(data)
    ends = {total: end for total, (_, end) in peaks_and_ends(folder).items()}

    def sizes(view):
        # The text that it passes to its flame graph program.
        return [line.rsplit(" ", 1) for line in view(snapshot, format_flamegraph=str).splitlines()]

    assert sum(int(size) for _, size in sizes(viz.segments)) == ends["reserved"]
    assert sum(int(size) for stack, size in sizes(viz.memory) if ";active_" in stack) == ends["active"]
    events = json.loads(highwater("events", "step.snap", "--json", cwd=folder))["events"]
    kinds = [event["kind"] for event in events]
    text = viz.trace(snapshot)
    assert text.count(" = cudaMalloc(") == kinds.count("segment_alloc") > 0
    assert len(re.findall(r"(?m)^\w+ = \w+\[", text)) == kinds.count("alloc") > 0
    assert "viz" in viz.trace_plot(snapshot)


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
    assert done.returncode == 2 and "not from the same run" in done.stderr, done.stderr
    assert not (tmp_path / "none.trace.json").exists()
