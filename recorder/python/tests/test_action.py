"""The action `memory-check`: its steps as a workflow runs them, with a server in place of GitHub's API.

`UPDATE_EXPECT=1` writes the comments of `golden` anew.
"""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", "..", ".."))
ACTION = os.path.join(ROOT, ".github", "actions", "memory-check")
sys.path.insert(0, ACTION)
import memory_check  # noqa: E402

from highwater._test_memory import TestRecording  # noqa: E402

MODEL = "highwater record mlp --steps 2 --out step.snap"
LARGER = MODEL.replace("--steps", "--width 1024 --steps")
BOT, STRANGER = {"login": "github-actions[bot]", "type": "Bot"}, {"login": "mallory", "type": "User"}
MARKER = "<!-- highwater memory-check: memory -->"
TOKEN = "token-of-the-job"
REPOSITORY = 7


class GitHub(BaseHTTPRequestHandler):
    """Comments, artifacts and, at another address, the storage of artifacts."""

    def log_message(self, *_arguments):
        pass

    def do_GET(self):
        self.answer("GET")

    def do_POST(self):
        self.answer("POST")

    def do_PATCH(self):
        self.answer("PATCH")

    def answer(self, method):
        state, url = self.server.state, urlparse(self.path)
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")
        if url.path.startswith("/storage/"):
            assert self.headers.get("Authorization") is None, "the storage must not get the token"
            return self.send(200, state.files[int(url.path.split("/")[2])])
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.send(401, {})
        state.requests.append(f"{method} {url.path}")
        path, query = url.path.replace("/repos/acme/model/", "", 1), parse_qs(url.query)
        first, count = (int(query.get("page", "1")[0]) - 1) * 100, int(query.get("per_page", ["30"])[0])
        if path == "actions/artifacts":
            rows = [artifact for artifact in state.artifacts if artifact["name"] == query["name"][0]]
            return self.send(200, {"artifacts": rows[first : first + count]})
        if re.fullmatch(r"actions/artifacts/\d+/zip", path):
            return self.send(
                302, b"", {"Location": f"http://localhost:{self.server.server_port}/storage/{path[18:-4]}"}
            )
        if path == "issues/5/comments" and method == "GET":
            return self.send(200, state.comments[first : first + count])
        if state.is_read_only:
            return self.send(403, {"message": "Resource not accessible by integration"})
        if path == "issues/5/comments" and method == "POST":
            state.comments.append({"id": len(state.comments) + 1, "user": BOT, **body})
            return self.send(201, state.comments[-1])
        found = re.fullmatch(r"issues/comments/(\d+)", path)
        if found and method == "PATCH":
            state.comments[int(found[1]) - 1].update(body)
            return self.send(200, {})
        return self.send(404, {})

    def send(self, status, answer, headers=()):
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **dict(headers)}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


class Workflow:
    """A repository with the action, and what GitHub keeps of it."""

    def __init__(self, folder, port):
        self.folder, self.port = folder, port
        self.comments, self.artifacts, self.files, self.requests = [], [], {}, []
        self.is_read_only = False
        self.checkout = folder / "checkout"
        self.checkout.mkdir()

    def run(self, event="pull_request", branch="main", head="acme/model", environment=(), **inputs):
        """Runs the steps of the action; returns the exit status, the outputs, the summary and the log."""
        temporary = self.folder / "temporary"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        payload = {"repository": {"default_branch": "main"}}
        if event.startswith("pull_request"):
            payload["pull_request"] = {"number": 5, "head": {"sha": "c0ffee0123456789", "repo": {"full_name": head}}}
        (temporary / "event.json").write_text(json.dumps(payload))
        files = {name: temporary / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_PATH")}
        given = {"name": "memory", "recording": "step.snap", "max_growth": "2%", **inputs}
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "INPUT_"))},
            **{f"INPUT_{name.upper()}": value for name, value in given.items()},
            **{name: str(path) for name, path in files.items()},
            "RUNNER_TEMP": str(temporary),
            "GITHUB_API_URL": f"http://127.0.0.1:{self.port}",
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_RUN_ID": "33",
            "GITHUB_REPOSITORY": "acme/model",
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(temporary / "event.json"),
            "GITHUB_BASE_REF": branch if event.startswith("pull_request") else "",
            "GITHUB_REF_NAME": "5/merge" if event.startswith("pull_request") else branch,
            "GITHUB_REF_TYPE": "branch",
            "GITHUB_SHA": "0123456789abcdef",
            **dict(environment),
        }
        log, status = "", 0
        for step, has_token in steps():
            token = {"GITHUB_TOKEN": TOKEN} if has_token else {}
            status, output = self.run_step(step, {**environment, **token})
            log += output
            if status:
                break
            outputs = self.outputs(files["GITHUB_OUTPUT"])
            if step == "check":
                url = "https://github.com/acme/model/actions/runs/33/artifacts/"
                environment["INPUT_RESULTS_URL"] = url + "1"
                # Not every build of the tests has the app for browsers.
                environment["INPUT_PAGE_URL"] = url + "2"
                if "recordings" in outputs:
                    self.keep("memory-baseline", outputs["recordings"], branch)
        summary = files["GITHUB_STEP_SUMMARY"]
        text = summary.read_text() if summary.exists() else ""
        return subprocess.CompletedProcess((), status, (self.outputs(files["GITHUB_OUTPUT"]), text), log)

    def run_step(self, step, environment):
        """Runs a step in this process, which saves half of the time; returns the status and the output."""
        before, folder, output = dict(os.environ), os.getcwd(), io.StringIO()
        try:
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(self.checkout)
            with contextlib.redirect_stdout(output):
                return memory_check.main(step), output.getvalue()
        finally:
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(before)

    @staticmethod
    def outputs(file):
        return dict(line.split("=", 1) for line in file.read_text().splitlines()) if file.exists() else {}

    def keep(self, name, folder, branch, head=REPOSITORY):
        """Stores an artifact, as the action's upload does."""
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            for file in os.listdir(folder):
                archive.write(os.path.join(folder, file), file)
        number = len(self.artifacts) + 1
        run = {"head_branch": branch, "head_sha": "abcdef0123456789"}
        run.update(repository_id=REPOSITORY, head_repository_id=head)
        self.artifacts.insert(
            0, {"id": number, "name": name, "expired": False, "created_at": f"{number:04}", "workflow_run": run}
        )
        self.files[number] = data.getvalue()


def steps():
    """The steps of the action that run its program, and whether each gets the token."""
    with open(os.path.join(ACTION, "action.yml"), encoding="utf-8") as file:
        parts = file.read().split("\n    - ")[1:]
    found = [(re.search(r"memory_check\.py\" (\w+)", part), "GITHUB_TOKEN" in part) for part in parts]
    return [(step[1], has_token) for step, has_token in found if step]


@pytest.fixture
def workflow(tmp_path):
    if shutil.which("highwater") is None:
        pytest.skip("needs the binary")
    server = ThreadingHTTPServer(("127.0.0.1", 0), GitHub)
    server.state = Workflow(tmp_path, server.server_port)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server.state
    server.shutdown()
    server.server_close()


def golden(name, text):
    path = os.path.join(HERE, "golden", name)
    if os.environ.get("UPDATE_EXPECT"):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    with open(path, encoding="utf-8") as file:
        assert text == file.read(), f"UPDATE_EXPECT=1 writes {path} anew"


def test_a_regression_names_the_module_and_the_comment_is_updated_in_place(workflow):
    model = "highwater record vit-l-16 --layers 2 --steps 2 --out step.snap"
    first = workflow.run("push", run=model)
    assert first.returncode == 0 and "no baseline yet" in first.stdout[1], first.stderr
    # Somebody else's comment that begins as ours does, on the first of two pages.
    workflow.comments += [{"id": 1, "body": f"{MARKER} hello", "user": STRANGER}]
    workflow.comments += [{"id": number, "body": "", "user": STRANGER} for number in range(2, 102)]

    worse = workflow.run(run=f"{model} --hidden 4608")
    assert worse.returncode == 1 and worse.stdout[0]["passed"] == "false", worse.stderr
    assert re.search(r"::error::step\.snap: max-growth exceeded: .*encoder\.layers\.\*\.mlp", worse.stderr)
    assert len(workflow.comments) == 102
    golden("memory_check_failed.md", workflow.comments[-1]["body"])
    assert worse.stdout[1].strip() == workflow.comments[-1]["body"].replace(MARKER, "").strip()

    better = workflow.run(run=model)
    assert better.returncode == 0 and better.stdout[0]["passed"] == "true", better.stderr
    assert len(workflow.comments) == 102 and workflow.comments[0]["body"] == f"{MARKER} hello"
    golden("memory_check_passed.md", workflow.comments[-1]["body"])
    # A push to the main branch becomes the next baseline, and its growth is not limited.
    merged = workflow.run("push", run=f"{model} --hidden 4608")
    assert merged.returncode == 0 and "| 559.58 MiB | 519.56 MiB | +40.02 MiB |" in merged.stdout[1], merged.stderr
    assert len(workflow.artifacts) == 2


def test_a_baseline_is_taken_from_the_branch_and_never_from_a_fork(workflow):
    def snapshot(command):
        return {"run": f"{command} && highwater convert step.snap snapshot.pickle", "recording": "snapshot.pickle"}

    workflow.run("push", **snapshot(MODEL.replace("--steps", "--width 2048 --steps")))
    large = workflow.folder / "large"
    large.mkdir()
    shutil.move(workflow.checkout / "snapshot.pickle", large)
    workflow.run("push", **snapshot(MODEL))
    workflow.keep("memory-baseline", large, "main", head=8)
    workflow.keep("memory-baseline", large, "release")
    assert workflow.run(**snapshot(LARGER)).returncode == 1
    # A pull request into a branch is compared with that branch; of one without a run, with the default branch.
    onto_release = workflow.run(**snapshot(LARGER), branch="release")
    assert onto_release.returncode == 0 and "baseline: `release` at `abcdef0123`" in onto_release.stdout[1]
    assert workflow.run(**snapshot(LARGER), branch="new").returncode == 1


def test_a_fork_gets_the_report_in_the_summary_only(workflow):
    workflow.is_read_only = True
    done = workflow.run(run=MODEL, options="--max-peak 1MiB", head="mallory/model")
    assert done.returncode == 1 and "`layers.*`" in done.stdout[1], done.stderr
    assert "::notice::no comment" in done.stderr and not any("comments" in request for request in workflow.requests)
    # A token that cannot write, as Dependabot's, is a warning.
    done = workflow.run(run=MODEL)
    assert done.returncode == 0 and "permissions: pull-requests: write" in done.stderr and workflow.comments == []


def test_names_of_a_pull_request_are_neither_run_nor_markup(workflow):
    # What a pull request can choose: the names of recordings.
    name = "$(touch pwned)`touch pwned`;touch pwned @acme [x](y) <b>.snap"
    command = f"""{LARGER}; mkdir out; cp step.snap out/a.snap; mv step.snap 'out/{name}'"""
    done = workflow.run(run=command, recording="out", options="--max-peak 1MiB")
    assert done.returncode == 1, done.stderr
    assert not list(workflow.folder.rglob("pwned"))
    report = workflow.comments[0]["body"]
    assert "(2 of 2 recordings)" in report
    outside = re.sub(r"`[^`\n]*`|<code>[^<]*</code>", "", report)
    assert not re.search(r"@acme|\]\(y\)|<b>|touch", outside), outside


def test_what_fails_is_said(workflow):
    done = workflow.run(run=f"{MODEL}; exit 3")
    assert done.returncode == 1 and "### Memory: failed\n\nThe command failed with exit status 3." in done.stdout[1]
    # A recording that was there before is not what the command recorded.
    done = workflow.run(run="true")
    assert done.returncode == 1 and "`step.snap` was not recorded" in workflow.comments[0]["body"]
    # A limit that is met up to a failed request is not confirmed.
    oom = MODEL.replace("--steps", "--capacity 8MiB --steps")
    done = workflow.run(run=f"{oom} || true", options="--max-peak 1GiB")
    assert done.returncode == 1 and "::error::step.snap: max-peak not confirmed: " in done.stderr, done.stderr
    (workflow.checkout / "step.snap").write_text("no recording")
    done = workflow.run(options="--max-peak 1GiB")
    assert done.returncode == 1 and "::error::step.snap: error:" in done.stderr
    for inputs, message in (
        ({"options": "--baseline=x"}, "--baseline cannot be used in the input options"),
        ({"name": "../x"}, "invalid name '../x'"),
        ({"run": "true", "pytest": "tests"}, "exclude each other"),
        ({"baseline": "missing.snap"}, "no baseline: missing.snap"),
        ({"version": "1.0; touch pwned"}, "invalid version"),
        ({"version": "step.snap"}, "neither a wheel nor a program"),
        ({"event": "pull_request_target"}, "pull_request_target is not supported"),
    ):
        done = workflow.run(**inputs)
        assert done.returncode == 2 and message in done.stderr, done.stderr


def test_a_baseline_of_the_repository_and_limits_need_no_artifact(workflow):
    subprocess.run(MODEL.split(), cwd=workflow.checkout, check=True, capture_output=True)
    os.rename(workflow.checkout / "step.snap", workflow.checkout / "main.snap")
    done = workflow.run(run=LARGER, baseline="main.snap")
    assert done.returncode == 1 and "baseline: `main.snap`" in done.stdout[1], done.stderr
    done = workflow.run(recording="step.snap", baseline="main.snap", max_growth="", options="--max-peak '1 GiB'")
    assert done.returncode == 0 and "`max-peak`" in done.stdout[1], done.stderr
    # The program by its path.
    done = workflow.run(recording="step.snap", max_growth="", comment="false", version=shutil.which("highwater"))
    path = (workflow.folder / "temporary" / "GITHUB_PATH").read_text().strip()
    assert path == os.path.dirname(os.path.abspath(shutil.which("highwater")))
    assert done.returncode == 0 and done.stdout[1].startswith("### Memory: recorded")
    assert len(workflow.comments) == 1 and not any("artifacts/" in request for request in workflow.requests)


def test_tests_with_memory_limits_are_compared_one_by_one(workflow):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    if "HIGHWATER_SIMULATE_CUDNN" not in os.environ:
        pytest.skip("needs PyTorch as tests/pytorch installs it")
    left_out = ("LD_PRELOAD", "LD_LIBRARY_PATH", "CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE")
    environment = {name: "" for name in os.environ if name.startswith(("PYTEST_", "HIGHWATER_SIMULATE", *left_out))}
    environment.update(PYTHONPATH=os.path.join(ROOT, "recorder", "python"), PYTEST_PLUGINS="highwater.pytest_plugin")
    source = """
        import pytest, torch

        @pytest.mark.max_memory("64MiB")
        @pytest.mark.parametrize("size", [1, 8], ids=["small", "large"])
        def test_linear(size):
            model = torch.nn.Sequential(torch.nn.Linear(1024, size << 10)).cuda()
            model(torch.zeros(1, 1024, device="cuda"))
    """
    (workflow.checkout / "test_it.py").write_text(textwrap.dedent(source))
    # Baselines of 13 MiB, under the names that the tests get.
    (workflow.checkout / "base").mkdir()
    subprocess.run(MODEL.split(), cwd=workflow.checkout, check=True, capture_output=True)
    for name in ("small", "large"):
        recording = TestRecording(f"test_it.py::test_linear[{name}]")._name
        shutil.copy(workflow.checkout / "step.snap", workflow.checkout / "base" / recording)
    done = workflow.run(environment=environment, pytest="-q --highwater-simulate=h100", baseline="base")
    assert done.returncode == 1, done.stderr
    report = workflow.comments[0]["body"]
    assert "### Memory: failed (1 of 2 recordings)" in report
    row = r"\*\*failed\*\* \| `[^`]*large[^`]*` \| (\d+)\.\d+ MiB \| 13\.16 MiB \| \+"
    assert int(re.search(row, report)[1]) >= 32, report
    assert not [name for name in os.listdir(workflow.checkout) if name.startswith("highwater-")]


def test_the_package_that_is_installed_is_ours(workflow, monkeypatch):
    commands = []
    monkeypatch.setattr(memory_check.shutil, "which", lambda name: None)
    done = subprocess.CompletedProcess((), 0)
    monkeypatch.setattr(memory_check.subprocess, "run", lambda command: commands.append(command) or done)
    for version in ("", "0.1.0"):
        assert workflow.run_step("install", {"INPUT_VERSION": version}) == (0, "")
    assert [command[-1] for command in commands] == ["highwater-gpu", "highwater-gpu==0.1.0"]
    assert all(command[1:4] == ["-m", "pip", "install"] for command in commands)


def test_the_chart_has_every_phase_in_the_order_of_a_step():
    with open(os.path.join(ROOT, "snapshots", "src", "category.rs"), encoding="utf-8") as file:
        declared = re.search(r"\n    Phase \{\n(.*?)\n    \}\n", file.read(), re.DOTALL)[1]
    names = re.findall(r'= "(\w+)"', declared)
    assert len(names) >= 7 and sorted(names) == sorted(memory_check.reports._PHASES)
    own = {phase: 2**20 for phase in ["warmup", *reversed(names)]}
    chart = memory_check.reports._chart({"phases": own, "baseline_phases": {}})
    assert f"    x-axis [{', '.join([*memory_check.reports._PHASES, 'warmup'])}]" in chart


def test_a_step_is_a_process(workflow):
    script = os.path.join(ACTION, "memory_check.py")
    environment = {**os.environ, "INPUT_VERSION": "no version"}
    done = subprocess.run([sys.executable, script, "install"], env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout.startswith("::error::invalid version 'no version'")


def test_no_text_of_a_workflow_is_put_into_a_shell():
    with open(os.path.join(ACTION, "action.yml"), encoding="utf-8") as file:
        text = file.read()
    runs = re.findall(r"^ +run: (.*)$", text, re.MULTILINE)
    assert len(runs) == 4 and all("${{" not in run for run in runs)
    assert [step for step, _ in steps()] == ["install", "baseline", "check", "report"]
    assert [step for step, has_token in steps() if has_token] == ["baseline", "report"]
    declared = set(re.findall(r"^  ([\w-]+):$", text.split("\noutputs:")[0], re.MULTILINE))
    assert declared == set(re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", text))
