"""Tables of recordings for pyarrow, pandas and Polars, beside the program's own answers."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from tables import COLUMNS, TOTALS

import highwater

HERE = os.path.dirname(os.path.abspath(__file__))
# Recorded in the middle of a program, on two GPUs.
PYTORCH = os.path.join(HERE, *[".."] * 3, "snapshots", "pytorch", "testdata", "two_devices.pickle.gz")
METHODS = {"to_arrow": ["pyarrow"], "to_pandas": ["pandas", "pyarrow"], "to_polars": ["polars"]}
NUMBERS = {"to_arrow": "int64", "to_pandas": "Int64", "to_polars": "Int64"}
TEXTS = {"to_arrow": "dictionary", "to_pandas": "category", "to_polars": "Categorical"}


def asked(*words, cwd=None):
    done = subprocess.run(["highwater", *words], cwd=cwd, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a recording of two steps, and a folder of two ranks with different programs."""
    folder = tmp_path_factory.mktemp("tables")
    size = ["--layers", "2", "--width", "96", "--vocab", "500", "--batch", "2", "--seq", "32"]
    asked("record", "gpt2", *size, "--steps", "2", "--device", "meta:cuda", "--out", "step.snap", "--json", cwd=folder)
    (folder / "ranks").mkdir()
    asked("record", "mlp", "--out", "ranks/step.rank10.snap", "--json", cwd=folder)
    shutil.copy(folder / "step.snap", folder / "ranks" / "step.rank2.snap")
    # Readers of partitioned data sets take a folder of this name for a column.
    (folder / "rank=7").mkdir()
    return folder


@pytest.fixture(scope="module", params=METHODS)
def read(folder, run_with, request):
    """What one of the libraries reads, as `tables.py` prints it."""
    script, files = os.path.join(HERE, "tables.py"), ["step.snap", PYTORCH, "ranks"]
    words = [script, request.param, *files]
    output = run_with(METHODS[request.param], *words, cwd=folder, TMPDIR=str(folder / "rank=7"))
    assert os.listdir(folder / "rank=7") == [], "nothing is left behind"
    return {"method": request.param, **json.loads(output)}


def test_live_blocks_sum_to_the_peaks_of_info_and_rows_are_those_of_events(read, folder):
    for file in ("step.snap", PYTORCH):
        answer = read["answers"][file]
        devices = asked("info", file, "--json", cwd=folder)["devices"]
        peaks = [[device["device"], total, device["peaks"][total]["bytes"]] for device in devices for total in TOTALS]
        assert answer["peaks"] == [[*peak, peak[-1]] for peak in peaks], file
        assert sum(answer["categories"].values()) > max(size for *_, size in peaks)

        rows = [dict(zip(COLUMNS, row)) for row in answer["rows"]]
        assert [row["event"] for row in rows if row["kind"] == "start"] == [-1] * len(devices)
        rows = [row for row in rows if row["kind"] != "start"]
        events = asked("events", file, "--json", cwd=folder)["events"]
        assert [(row["event"], row["kind"]) for row in rows] == [(event["index"], event["kind"]) for event in events]
        assert [row["time_ns"] // 1000 for row in rows] == [event["time_us"] for event in events]
        for row, event in zip(rows, events):
            if event["kind"] == "alloc":
                names = ("device", "block", "address", "category")
                assert [row[name] for name in names] == [event[name] for name in names]
                assert row["size_bytes"] == event["size"]


def test_numbers_have_nulls_texts_are_dictionaries_and_ranks_are_a_column(read):
    method, step, ranks = read["method"], read["answers"]["step.snap"], read["answers"]["ranks"]
    assert step["types"] == ranks["types"]
    for types in step["types"].values():
        assert next(iter(types)) == "rank"
        documented = highwater.Snapshot.to_arrow.__doc__
        assert [name for name in types if f"`{name}`" not in documented] == []
        texts = {name for name, kind in types.items() if kind.startswith(TEXTS[method])}
        assert {name for name, kind in types.items() if kind != NUMBERS[method]} == texts
        assert texts >= {"recording", "category", "op", "scope", "pool", "phase", "frame", "stack"}
    rank, number = COLUMNS.index("rank"), COLUMNS.index("event")
    assert {row[rank] for row in step["rows"]} == {None}
    assert [row[rank] for row in ranks["rows"] if row[number] == -1] == [2, 10]


@pytest.mark.parametrize("method", METHODS)
def test_a_missing_library_is_one_sentence(method, monkeypatch):
    packages = METHODS[method]
    monkeypatch.setitem(sys.modules, packages[0], None)
    sentence = f"Snapshot.{method} needs {' and '.join(packages)}: run `pip install {' '.join(packages)}`"
    with pytest.raises(ImportError, match=f"^{re.escape(sentence)}$"):
        getattr(highwater.Snapshot("step.snap"), method)()


def test_an_unknown_table_or_column_is_one_sentence(read):
    *errors, last = read["errors"]
    assert errors == [
        "table='steps': expected 'blocks' or 'events'",
        "columns='step': expected a list of names",
        "columns=[]: expected a list of names",
    ]
    assert last.startswith("columns=['step', 'bytes']: the table has no 'bytes'; it has rank, recording, block, ")
