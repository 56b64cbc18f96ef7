"""Runs every command of the documentation, and the Python code of the pages for users of PyTorch.

The pages of `docs/tasks` show output: the lines below a `$ command`, of which each must be in what the command prints.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

import highwater._binary

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
# Pages whose Python code is run, and all pages with commands that need PyTorch.
CODE_PAGES = ("README.md", "docs/pytorch.md")
PAGES = (*CODE_PAGES, "docs/plan.md", "docs/simulate.md")
ALL_PAGES = {f"docs/{name}" for name in os.listdir(os.path.join(ROOT, "docs")) if name.endswith(".md")}
# The skill for assistants.
SKILL = "recorder/python/highwater/skill"
ALL_PAGES |= {f"{SKILL}/SKILL.md"} | {f"{SKILL}/references/{name}" for name in os.listdir(f"{ROOT}/{SKILL}/references")}
OTHER_PAGES = sorted(ALL_PAGES - {*PAGES})
TASKS = os.path.join(ROOT, "docs", "tasks")
TASK_PAGES = sorted(f"docs/tasks/{name}" for name in os.listdir(TASKS) if name.endswith(".md"))

# Commands that are not run here, by how they begin, and why.
ELSEWHERE = {
    "cargo run": ".ci/run runs it as the page has it",
    "cargo test": ".ci/run runs it as the page has it",
    "cargo install": "an optimized build takes longer than all tests",
    "cargo page": ".ci/run runs it",
    "rustup target": ".ci/run runs it",
    "apt install": ".ci/run installs the same packages",
    "pip install": "an optimized build takes longer than all tests; the page says so",
    "cd recorder/python": "see maturin",
    "maturin build": "an optimized build takes longer than all tests; the page says so",
    "python recorder/python/benches/cost.py": "a benchmark of minutes",
    "highwater run": "Linux with a CUDA driver; tests/run.rs runs it over the simulated one",
    "highwater attach": "needs a running program; test_launched.py has one",
    "highwater record": "models of many gigabytes; viewer/tests/cli/record.rs runs them smaller",
    "highwater convert step.snap step.trace.json --with": "needs a profiler's trace; test_formats.py has one",
    "highwater serve": "does not end; `Snapshot.serve` is tested below",
    "pytest --highwater-simulate": "test_pytest_simulated.py",
    "highwater --help": "viewer/tests/cli",
    "cargo bench": "a benchmark of minutes",
    "cargo build": "an optimized build takes longer than all tests",
    "highwater simulate --gpu x": "an error",
    "highwater simulate --gpu a100 -- python train.py": "README.md has it with another GPU",
    "highwater plan --budget 24GiB --gpu a100 -- python train.py": "docs/simulate.md has it with another GPU",
    "highwater plan --scenario": "models of many gigabytes; viewer/tests/cli/plan.rs plans smaller ones",
    "highwater whatif falcon-7b.snap": "a model of many gigabytes; viewer/tests/cli/whatif.rs runs smaller ones",
    "highwater render ours.snap candle.snap": "recordings of docs/candle.md",
    "highwater diff ours.snap candle.snap": "recordings of docs/candle.md",
    "highwater phases candle.snap": "recordings of docs/candle.md",
    "highwater peak candle.snap": "recordings of docs/candle.md",
    "highwater explain candle.snap": "recordings of docs/candle.md",
    "PYTORCH_CUDA_ALLOC_CONF": "see highwater run",
    "highwater-gpu/run.sh": "tests/gpu_scripts.rs",
    "HIGHWATER_": "tests/gpu_scripts.rs, and test_launched.py",
    "RANK=": "a thousand ranks; viewer/tests/cli/fleet.rs runs fewer",
    "PYTHONPATH=": "viewer/tests/cli/query.rs",
    "python -": "an outline",
    "python viewer/tests/cli/questions/ask.py": "needs an assistant",
    "highwater mcp": "does not end; viewer/tests/cli/mcp.rs",
    "highwater completions": "files of the user's shell; viewer/tests/cli/names.rs prints them",
}


def read(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return file.read()


def blocks(page, language):
    """The blocks of code of a language; "" for commands."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", read(page), re.MULTILINE | re.DOTALL)
    return [text for known, text in found if known == language]


# What a line of a block begins with if it is a command and no output.
COMMAND = r"(?:\$ )?((?:[A-Z_]+=\S+ +)*(?:highwater|cargo|pip|python|maturin|rustup|pytest|apt|cd)\b.*)"
# Words in capitals that stand for something that only the reader knows.
PLACEHOLDER = r"…|\b(?:IN|OUT|COMMAND|SHELL|SIZE|FROM)\b"


def commands(page):
    """The commands of a page: lines of blocks, and quoted ones in sentences and tables."""
    text = read(page)
    lines = [line.split("   ")[0] for block in blocks(page, "") for line in block.splitlines()]
    lines = [found[1] for found in map(re.compile(COMMAND).match, lines) if found]
    quoted = re.findall(
        r"`((?:highwater|cargo|pip|python|maturin|rustup) [^`]+)`", re.sub(r"(?ms)^```.*?^```", "", text)
    )
    quoted = [line for line in quoted if not re.search(PLACEHOLDER, line)]
    return [line.strip() for line in [*lines, *quoted]]


def outputs(page):
    """The lines that a page shows below each of its `$ command` lines."""
    found = {}
    for block in blocks(page, ""):
        for text in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = text.splitlines()
            found[command] = lines
    return found


def plain(text):
    """A line of output without the width of its columns and bars, and without the folder of a file."""
    return re.sub(r"[█▉▊▋▌▍▎▏\s]+", " ", text.replace(os.getcwd() + "/", "")).strip()


def missing_lines(shown, printed):
    """The lines of a page that a command does not print, in this order; `…` stands for what the page leaves out."""
    printed = iter([plain(line) for line in printed.splitlines()])
    for line in filter(None, map(plain, shown)):
        start = line.removesuffix("…").strip()
        if not any(other == line or line != start and other.startswith(start) for other in printed):
            yield line


@pytest.fixture
def recordings(torch, tmp_path, monkeypatch):
    """A folder with the files that the pages name."""
    from models import Gpt

    monkeypatch.chdir(tmp_path)
    model = Gpt(blocks=2).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    with highwater.record_memory_history("step.snap", keep_pickle=True) as run:
        for _ in range(3):
            model.loss().backward()
            optimizer.step()
            optimizer.zero_grad()
        run._session.observe_oom()
    os.rename("step.pickle", "snapshot.pickle")
    os.rename("step.oom.snap", "run.oom.snap")
    # The program of `highwater simulate`.
    with open("train.py", "w") as file:
        file.write("import torch\ntorch.nn.Linear(8, 8).cuda()(torch.zeros(2, 8, device='cuda')).sum().backward()\n")
    os.mkdir("ranks")
    for name in ("a.snap", "b.snap", "main.snap", "before.snap", "train.snap", "ranks/a.snap", "ranks/b.snap"):
        os.link("step.snap", name)
    return tmp_path


def has_page():
    """Whether the program has the app for browsers."""
    done = subprocess.run([highwater._binary.path(), "convert", "step.snap", "page.html"], capture_output=True)
    return done.returncode == 0


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A folder with the files that the other pages name, of a built-in model and on no device."""
    monkeypatch.chdir(tmp_path)
    record = [highwater._binary.path(), "record", "vit-l-16", "--batch", "4", "--steps", "2", "--uses", "--out"]
    subprocess.run([*record, "step.snap"], check=True, capture_output=True)
    # Status 2: it runs out of memory.
    assert subprocess.run([*record, "oom.snap", "--capacity", "5GiB"], capture_output=True).returncode == 2
    convert = [highwater._binary.path(), "convert", "step.snap", "snapshot.pickle"]
    subprocess.run(convert, check=True, capture_output=True)
    names = "a b main before after serve run run.0001 run.0144 torch torch.driver train driver changed".split()
    for name in [*names, "symbols/step", "ranks/a", "ranks/b", "ranks-before/a", "ranks-after/a"]:
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        shutil.copy("step.snap", name + ".snap")
    return tmp_path


@pytest.fixture
def programs(torch, tmp_path, monkeypatch, page):
    """A folder with the programs of the task pages, a recording, and a snapshot of PyTorch if the page needs one."""
    for name in os.listdir(os.path.join(TASKS, "programs")):
        shutil.copy(os.path.join(TASKS, "programs", name), tmp_path)
    monkeypatch.chdir(tmp_path)
    snapshot = (
        "import sys, torch, train; sys.argv += ['--blocks', '4']; history = torch.cuda.memory._record_memory_history; "
        "history(stacks='python'); train.main(); torch.cuda.memory._dump_snapshot('snapshot.pickle')"
    )
    if "snapshot.pickle" in "".join(outputs(page)):
        subprocess.run([sys.executable, "-W", "ignore", "-c", snapshot], check=True)
    subprocess.run([highwater._binary.path(), "record", "mlp", "--out", "step.snap"], check=True, capture_output=True)
    # `highwater simulate` brings its own library.
    for name in os.environ:
        if name.startswith(("LD_", "CUBLAS", "HIGHWATER_SIMULATE")):
            monkeypatch.delenv(name)


def run_commands(pages, has_outputs=False):
    """Runs the commands of pages, each once, and returns how many it ran. With outputs, compares what they print."""
    ran = 0
    shown = {line: lines for page in pages for line, lines in outputs(page).items()} if has_outputs else {}
    for line in {line: None for page in pages for line in commands(page)}:
        if any(line.startswith(known) for known in ELSEWHERE):
            continue
        words = shlex.split(line.replace("FOLDER", "ranks").replace("FILE", "step.snap"), comments=True)
        assert words[0] == "highwater", f"neither run here nor in the list of those that are not: {line}"
        if len(words) == 1 or words[1].endswith((".snap", ".pickle")) or os.path.exists(words[1]):
            # Opens the app, which needs a display.
            continue
        # The name of a command, with options at most.
        options = words[2:] if all(word.startswith("--") for word in words[2:]) else None
        words = words if options is None else [*words[:2], "--help"]
        words = [sys.executable if word == "python" else word for word in words]
        done = subprocess.run([highwater._binary.path(), *words[1:]], capture_output=True, text=True)
        # Status 1 is an answer: a plan or a budget does not fit.
        is_without_page = "does not include the browser app" in done.stderr and not has_page()
        assert done.returncode in (0, 1) or is_without_page, f"{line}\n{done.stderr}"
        assert all(option in done.stdout for option in options or []), line
        missing = [*missing_lines(shown.pop(line, []), done.stdout)]
        assert not missing, f"{line} does not print, in this order:\n" + "\n".join(missing) + f"\nbut:\n{done.stdout}"
        ran += 1
    assert not shown, f"output of commands that were not run: {[*shown]}"
    return ran


def test_every_command_of_the_pages_runs(recordings):
    assert run_commands(PAGES) > 12


def test_every_command_of_the_other_pages_runs(models):
    assert run_commands(OTHER_PAGES) > 40


@pytest.mark.parametrize("page", TASK_PAGES)
def test_every_command_of_a_task_page_prints_what_the_page_shows(programs, page):
    assert run_commands([page], has_outputs=True) > 1


def test_a_line_that_is_not_printed_is_found():
    printed = "a  1 GiB  ███▏  5\n\nb  2 GiB  █    6\ntotal: 3 GiB, two groups\n"
    assert [*missing_lines(["a 1 GiB ██ 5", "…", "total: …"], printed)] == []
    assert [*missing_lines(["b  2 GiB  █  6", "a  1 GiB  █  5"], printed)] == ["a 1 GiB 5"]
    assert [*missing_lines(["total: 3 GiB"], printed)] == ["total: 3 GiB"]


def test_every_line_of_python_in_the_pages_runs(torch, recordings, capsys):
    from types import SimpleNamespace

    model = torch.nn.Linear(8, 8).cuda()
    trainer = SimpleNamespace(fit=lambda: model(torch.zeros(4, 8, device="cuda")))
    names = {"torch": torch, "batches": [1], "train_step": lambda batch: trainer.fit(), "trainer": trainer}
    for page in (*CODE_PAGES, *TASK_PAGES):
        for text in blocks(page, "python"):
            text = text if has_page() else text.replace("snapshot.serve().url", "")
            code = compile(text, page, "exec")
            # Lightning and transformers are not installed; pytest's tests are run by pytest.
            if "Trainer(" not in text and "def test_" not in text:
                exec(code, {"highwater": highwater, **names})
    # A block of README.md starts it.
    torch.cuda.memory._record_memory_history(None)


def test_tables_of_the_pages_are_printed(tmp_path, run_with):
    (record,) = [line for line in commands("docs/pytorch.md") if line.startswith("highwater record")]
    subprocess.run(shlex.split(record), cwd=tmp_path, check=True, capture_output=True)
    session = "\n".join(blocks("docs/pytorch.md", "pycon"))
    assert session.count(">>>") > 8
    (tmp_path / "session.txt").write_text(session)
    run_with(["pandas", "pyarrow"], "-m", "doctest", "session.txt", cwd=tmp_path)


def test_a_server_answers_until_it_is_stopped(recordings):
    from urllib.request import urlopen

    if not has_page():
        pytest.skip("this program has no app for browsers: cargo page")
    with highwater.Snapshot("step.snap").serve() as server:
        with urlopen(server.url, timeout=30) as answer:
            assert answer.status == 200
        process = server._process
        assert process.poll() is None
    assert process.poll() is not None
    with pytest.raises(highwater.HighwaterError):
        highwater.Snapshot("missing.snap").serve()


def test_checks_events_and_steps_of_a_recording_are_answered(recordings):
    snapshot = highwater.Snapshot("step.snap")
    assert snapshot.check(max_peak="1TiB", max={"activation": 2**40}, max_phase={"forward": "1TiB"})["passed"]
    broken = snapshot.check(max_peak=1)
    assert not broken["passed"] and broken["broken"][0]["limit_bytes"] == 1
    assert snapshot.check(baseline=highwater.Snapshot("a.snap"), max_growth="1%")["passed"]
    events = snapshot.events(10, 19)["events"]
    assert [event["index"] for event in events] == list(range(10, 20))
    assert {event["kind"] for event in snapshot.events(kind=["alloc"])["events"]} == {"alloc"}
    rows = snapshot.phases()["rows"]
    assert [row["step"] for row in snapshot.phases(steps=1)["rows"]] == [1] * sum(row["step"] == 1 for row in rows)
    assert {row["step"] for row in snapshot.phases(steps=range(1, 3))["rows"]} == {1, 2}
