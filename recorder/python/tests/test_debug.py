"""The page of PyTorch's debug server, with the real server and two ranks."""

import glob
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

import highwater

RANKS = """
import os, sys, time
import torch
import torch.distributed
from torch.distributed.debug import start_debug_server, stop_debug_server
import highwater
from highwater import _session
from highwater.debug import Memory

def train_step(model, rank):
    model(torch.zeros(1024 * (rank + 1), 64, device="cuda")).sum().backward()
    time.sleep(0.2)
    # A recorded step lasts as long as the test looks at it.
    while os.path.exists("hold") and _session.active() is not None and _session.active().step_number() > 0:
        time.sleep(0.01)

def main(port):
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    start_debug_server(
        port=port, handlers=[Memory("dumps", steps=1, step_at="train_step")], dump_dir="dumps", dump_interval=3600,
        enabled_dumps={"memory"}, start_method="spawn",
    )
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)).cuda()
    while not os.path.exists("own"):
        train_step(model, rank)
    with highwater.record_memory_history("own.snap"):
        while not os.path.exists("stop"):
            train_step(model, rank)
    torch.distributed.barrier()
    if rank == 0:
        stop_debug_server()
    sys.stdout.flush()
    # Other ranks have no function that ends their servers.
    os._exit(0)

if __name__ == "__main__":
    main(int(sys.argv[1]))
"""


class Page:
    """The page of a program of two ranks, in a folder of the test's own."""

    def __init__(self, folder):
        with socket.socket(socket.AF_INET6) as free:
            free.bind(("::", 0))
            self._address = f"http://localhost:{free.getsockname()[1]}"
        self.folder = folder
        (folder / "ranks.py").write_text(RANKS)
        words = ["-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        package = os.path.dirname(os.path.dirname(highwater.__file__))
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        with open(folder / "log", "w") as log:
            self._process = subprocess.Popen(
                [sys.executable, *words, "ranks.py", self._address.rpartition(":")[2]],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": path},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def get(self, path="/memory"):
        with urllib.request.urlopen(self._address + path, timeout=30) as answer:
            return answer.read()

    def until(self, is_as_expected, path="/memory"):
        """Returns the text of the page as soon as it is as expected."""
        deadline, text = time.monotonic() + 60, ""
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                text = self.get(path).decode()
            except OSError as error:
                text = str(error)
            if is_as_expected(text):
                return text
            time.sleep(0.1)
        raise AssertionError(text + (self.folder / "log").read_text())

    def stop(self):
        (self.folder / "hold").unlink(missing_ok=True)
        (self.folder / "own").touch()
        (self.folder / "stop").touch()
        return self._process.wait(60)


@pytest.fixture
def page(torch, tmp_path):
    for module in ("jinja2", "tabulate", "requests", "torch.distributed.debug._frontend"):
        pytest.importorskip(module, reason=f"PyTorch's debug server needs {module}")
    if shutil.which("highwater") is None:
        pytest.skip("needs the binary")
    page = Page(tmp_path)
    yield page
    page.stop()


def recordings(folder):
    return sorted(glob.glob(str(folder / "dumps" / "*.snap")))


def dumps(folder):
    return [path.read_text() for path in (folder / "dumps").glob("memory_*.txt")]


def test_all_ranks_are_shown_and_record_what_is_asked_for(page):
    # The first dump of the server, which comes with its start.
    first = page.until(lambda text: len(re.findall(r"rank[01]\.snap</a>", text)) == 2 and "recording, step" not in text)
    rows = [re.sub("<[^>]*>", "|", line) for line in first.splitlines() if line.startswith("<tr><td>")]
    assert [row.split("|")[2].strip() for row in rows] == ["0", "1"], rows
    assert all(re.search(r"\| *[\d.]+ [KM]iB *\|", row) for row in rows), rows
    # The server writes its text when it has made all ranks record, which may be over by then.
    line = rf"^[01] +{re.escape(socket.gethostname())} "
    page.until(lambda text: [len(re.findall(line, dump, re.MULTILINE)) for dump in dumps(page.folder)] == [2])
    assert [highwater.Snapshot(path).info()["rank"] for path in recordings(page.folder)] == [0, 1]

    # The button of the page; a file has the asked name after a second.
    time.sleep(1)
    (page.folder / "hold").touch()
    asked = page.get("/memory/record?steps=3").decode()
    assert len(re.findall("recording, step [01]", asked)) == 2, asked
    # Parameters are known when the model was called.
    page.until(lambda text: len(re.findall("recording, step 1; [^<]*parameter 32.50 KiB", text)) == 2)
    assert "is already being recorded" in page.get("/memory/record?steps=3").decode()
    (page.folder / "hold").unlink()
    done = page.until(lambda text: len(re.findall(r"rank[01]\.snap</a>", text)) == 4 and "recording, step" not in text)
    queries = re.findall(r'href="(/memory/file\?[^"]*)" download="([^"]*)"', done)
    assert len(queries) == 4
    for query, name in queries:
        with open(page.folder / "dumps" / name, "rb") as file:
            assert file.read() == page.get(query.replace("&amp;", "&"))
    for rank, path in enumerate(recordings(page.folder)[2:]):
        snapshot = highwater.Snapshot(path)
        assert {row["step"] for row in snapshot.phases()["rows"]} == {1, 2, 3}
        peak = snapshot.peak(by="scope")
        assert {"0", "1"} <= {group["key"] for group in peak["groups"]}, "modules are known"
        # Rank 1 has twice the activations of rank 0, of which each is 256 KiB there.
        assert peak["bytes"] > (rank + 1) * 2 * 256 * 1024
        assert f"{os.path.basename(path)}</a>\non {socket.gethostname()}, " in done

    # What the program records itself is written as far as it is.
    (page.folder / "own").touch()
    page.until(lambda text: "KiB" in text and len(recordings(page.folder)) == 6, "/memory/record?steps=1")
    assert page.stop() == 0, (page.folder / "log").read_text()
    assert len(glob.glob(str(page.folder / "own.rank[01].snap"))) == 2


def test_options_that_no_recording_has_are_an_error_at_the_start(torch):
    debug = pytest.importorskip("highwater.debug", reason="needs PyTorch's debug server", exc_type=ImportError)
    with pytest.raises(TypeError, match="depht"):
        debug.Memory("dumps", depht=3)


def test_what_the_page_needs_is_said_in_a_sentence(torch, monkeypatch):
    monkeypatch.delitem(sys.modules, "highwater.debug", raising=False)
    monkeypatch.setitem(sys.modules, "tabulate", None)
    with pytest.raises(ImportError, match="highwater.debug requires a PyTorch version whose debug server accepts"):
        __import__("highwater.debug")


def test_a_program_that_imports_the_page_ends_as_usual(torch):
    pytest.importorskip("highwater.debug", reason="needs PyTorch's debug server", exc_type=ImportError)
    program = "import torch, highwater.debug; highwater.debug.Memory('dumps'); torch.zeros(1, device='cuda')"
    environment = {**os.environ, "RANK": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode == 0
