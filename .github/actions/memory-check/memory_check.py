"""The steps of the action: install, baseline, check, report. Needs Python 3.9 and its standard library.

Inputs arrive in environment variables, and no text of a pull request reaches a shell. A folder connects the steps.

Only `baseline` and `report` get the token. This does not keep it from the code of the pull request, which `check` runs:
code can change the environment of the later steps of its job, and these files. The protection is that GitHub gives a
run for a fork a token that can only read; the event pull_request_target, which would give it more, is refused.
"""

import argparse
import glob
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import urllib.error
import urllib.parse
import zipfile

import report as reports
from github import Api, Event, Problem, advice, annotate, write_line

# The package on the index, where `highwater` is another project.
_PACKAGE = "highwater-gpu"
# Options of `highwater check` that the action gives.
_OWN_OPTIONS = "--baseline --max-growth --json --csv --markdown --picture --github".split()


def option(name):
    return os.environ.get(f"INPUT_{name.upper()}", "").strip()


def folder(*names):
    """Returns a path in the folder that the steps share."""
    name = option("name")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", name):
        raise Problem(f"invalid name {name!r}: expected letters, digits, '.', '_' and '-'")
    return os.path.join(os.environ.get("RUNNER_TEMP") or tempfile.gettempdir(), f"memory-check-{name}", *names)


def save(name, value):
    with open(folder(f"{name}.json"), "w", encoding="utf-8") as file:
        json.dump(value, file)


def load(name):
    with open(folder(f"{name}.json"), encoding="utf-8") as file:
        return json.load(file)


def highwater(*arguments):
    return subprocess.run(["highwater", *arguments], capture_output=True, text=True, encoding="utf-8")


# The program.


def install():
    """Installs the program unless it is installed: a version from the package index, a wheel, or a program at a
    path."""
    wanted = option("version")
    if not wanted and shutil.which("highwater"):
        return
    is_file = os.path.isfile(wanted)
    if is_file and not wanted.endswith(".whl"):
        if os.path.basename(wanted) not in ("highwater", "highwater.exe"):
            raise Problem(f"{wanted} is neither a wheel nor a program called highwater")
        write_line("GITHUB_PATH", os.path.dirname(os.path.abspath(wanted)))
        return
    if not is_file and not re.fullmatch(r"[0-9A-Za-z.+!]*", wanted):
        raise Problem(f"invalid version {wanted!r}: expected a version such as 0.1.0, or the path of a file")
    package = os.path.abspath(wanted) if is_file else f"{_PACKAGE}=={wanted}" if wanted else _PACKAGE
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--disable-pip-version-check", package])
    if done.returncode:
        raise Problem(f"cannot install {package}: see pip's messages; a Python from actions/setup-python can")
    if not shutil.which("highwater"):
        write_line("GITHUB_PATH", sysconfig.get_path("scripts", f"{os.name}_user"))


# The baseline.


def baseline():
    """Gets the baselines: files of the repository, or recordings of the last run on the branch."""
    shutil.rmtree(folder(), ignore_errors=True)
    os.makedirs(folder("baseline"))
    event, given = Event(), option("baseline")
    described = None
    if given:
        files = recordings_in(given)
        if not files:
            raise Problem(f"no baseline: {given} is neither a recording nor a folder of recordings")
        for file in files:
            shutil.copy(file, folder("baseline"))
        described = reports.code(given)
    elif event.repository:
        try:
            described = download_baseline(event)
        except (urllib.error.URLError, OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise Problem(f"the baseline cannot be downloaded: {error}{advice(error, 'actions: read')}") from None
    save("baseline", described)
    print(f"baseline: {described or 'none'}")


def download_baseline(event):
    """Downloads the newest artifact of the branch, or otherwise of the default branch. Returns its description, or
    None."""
    api, name = Api(event.repository), urllib.parse.quote(f"{option('name')}-baseline")
    # A fork may have a branch of the same name; what it uploads is not a baseline.
    artifacts = [
        artifact
        for artifact in api.rows(f"actions/artifacts?name={name}", "artifacts")
        if not artifact["expired"] and is_own(artifact.get("workflow_run") or {})
    ]
    for branch in dict.fromkeys([event.branch, event.default_branch]):
        own = [artifact for artifact in artifacts if artifact["workflow_run"]["head_branch"] == branch]
        if own:
            newest = max(own, key=lambda artifact: (artifact["created_at"], artifact["id"]))
            extract(api.download(f"actions/artifacts/{int(newest['id'])}/zip"))
            return f"{reports.code(branch)} at {reports.code(newest['workflow_run'].get('head_sha', '')[:10])}"
    return None


def is_own(run):
    return run.get("repository_id") is not None and run.get("repository_id") == run.get("head_repository_id")


def is_plain(name):
    return re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+=@ -]*", name) is not None


def extract(archive):
    with zipfile.ZipFile(io.BytesIO(archive)) as archive:
        for entry in archive.infolist():
            if is_plain(entry.filename):
                with archive.open(entry) as source, open(folder("baseline", entry.filename), "wb") as copy:
                    shutil.copyfileobj(source, copy)


# The check.


def check():
    """Makes the recordings, compares each with its baseline, and stores the results for the report."""
    event = Event()
    for name in ("recordings", "results"):
        os.makedirs(folder(name))
    problem = make_recordings()
    options = check_options()
    names = sorted(os.listdir(folder("recordings")))
    rows = [compare(name, options, event) for name in names]
    for name in names:
        shutil.copy(folder("recordings", name), folder("results"))
    if len(rows) == 1 and rows[0]["baseline"]:
        page = folder(f"{option('name')}-comparison.html")
        if highwater("convert", rows[0]["baseline"], folder("recordings", names[0]), page).returncode == 0:
            write_line("GITHUB_OUTPUT", f"page={page}")
    save("run", {"rows": rows, "problem": problem, "baseline": load("baseline")})
    write_line("GITHUB_OUTPUT", f"results={folder('results')}")
    # What a branch records is the next baseline, whether or not it keeps the limits.
    if event.is_of_branch and rows and not problem:
        write_line("GITHUB_OUTPUT", f"recordings={folder('recordings')}")


def make_recordings():
    """Runs the command or the tests, and copies their recordings. Returns the problem as text, or None."""
    command, tests, pattern = option("run"), option("pytest"), option("recording")
    if command and tests:
        raise Problem("the inputs run and pytest exclude each other")
    before = {file: os.stat(file).st_mtime_ns for file in recordings_in(pattern)} if command else {}
    status = 0
    if tests:
        # In the working folder: tests are named by their path from there.
        pattern = tempfile.mkdtemp(prefix="highwater-", dir=".")
        given = [f"--highwater-baseline={pattern}", f"--highwater-dir={pattern}"]
        status = subprocess.run([sys.executable, "-m", "pytest", *shlex.split(tests), *given]).returncode
    elif command:
        # The command is the workflow's own, as that of any step.
        status = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command]).returncode
    # An older file is not what the command recorded.
    files = [file for file in recordings_in(pattern) if before.get(file) != os.stat(file).st_mtime_ns]
    for file in files:
        name = re.sub(r"[^A-Za-z0-9._+=@ -]", "-", os.path.basename(file)).lstrip(".+=@- ")
        copy = folder("recordings", name)
        if not is_plain(name) or os.path.exists(copy):
            raise Problem(f"invalid or repeated name of a recording {name!r}: baselines are matched by name")
        shutil.copy(file, copy)
    if tests:
        shutil.rmtree(pattern)
    if status:
        return f"{'pytest' if tests else 'the command'} failed with exit status {status}"
    if not files:
        return "no test with a memory limit was run" if tests else f"{reports.code(pattern)} was not recorded"
    return None


def recordings_in(path):
    """Returns the recordings at a path, in a folder or matching a pattern, sorted."""
    if os.path.isdir(path):
        path = os.path.join(glob.escape(path), "*.snap")
    return sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))


def check_options():
    options = shlex.split(option("options"))
    for word in options:
        if word.split("=")[0] in _OWN_OPTIONS:
            raise Problem(f"{word.split('=')[0]} cannot be used in the input options: the action sets it")
    return options


def compare(name, options, event):
    """Checks one recording. Returns its row of the report."""
    file, base = folder("recordings", name), baseline_of(name)
    stem = folder("results", name[: -len(".snap")] if name.endswith(".snap") else name)
    row = {"name": name, "baseline": base, "passed": True, "errors": [], "report": None}
    row["phases"], row["baseline_phases"] = phases_of(file, options), phases_of(base, options) if base else {}
    limits = [*options]
    # A branch has what was merged into it: its growth is shown, and is not a failure.
    if base and event.is_change and option("max_growth"):
        limits += ["--max-growth", option("max_growth")]
    if not any(word.startswith(("--max", "--budgets")) for word in limits):
        sides, view = ([base, file], ["--view", "diff"]) if base else ([file], [])
        highwater("render", *sides, *view, "--out", stem + ".png")
        return row
    words = ["check", file, *limits, *(["--baseline", base] if base else [])]
    done = highwater(*words, "--json", "--markdown", stem + ".md", "--picture", stem + ".png")
    if done.returncode not in (0, 1) or not done.stdout:
        row["passed"], row["errors"] = False, [done.stderr.strip()[-2000:] or f"exit status {done.returncode}"]
        return row
    figures = json.loads(done.stdout)
    # The recording of a test that allocates nothing has no events, which leaves limits unconfirmed.
    is_whole = option("pytest") and figures["undecided"] and not figures["broken"] and not figures["oom"]
    row["passed"], row["report"] = figures["passed"] or bool(is_whole), stem + ".md"
    if not row["passed"]:
        row["errors"] = [error_of(rule) for rule in [*figures["broken"], *figures["undecided"]]]
    return row


def error_of(rule):
    reason = rule["unconfirmed_because"]
    verdict, why = (f"not confirmed: {reason}", None) if reason else ("exceeded", rule["culprit"])
    return f"{rule['rule']} {verdict}: {rule['subject']}" + (f": {why}" if why else "")


def baseline_of(name):
    """Returns the baseline of the same name, or the only baseline if there is only one recording on each side."""
    names = os.listdir(folder("baseline"))
    if name not in names and len(names) == 1 and len(os.listdir(folder("recordings"))) == 1:
        name = names[0]
    return folder("baseline", name) if name in names else None


def phases_of(file, options):
    """Returns the peak of each phase in bytes, for the checked total and device; empty if there are no phases."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    for name in ("--metric", "--device"):
        parser.add_argument(name)
    given = vars(parser.parse_known_args(options)[0])
    done = highwater("phases", file, *(f"--{name}={value}" for name, value in given.items() if value), "--json")
    peaks = {}
    for row in json.loads(done.stdout)["rows"] if done.returncode == 0 else []:
        phase = row["phase"] or "other"
        peaks[phase] = max(peaks.get(phase, 0), row["peak_bytes"])
    return peaks


# The report.


def report():
    """Writes the summary and the comment. Returns 1 if a limit is exceeded."""
    event, run = Event(), load("run")
    failed = [row for row in run["rows"] if not row["passed"]]
    for row in failed:
        for error in row["errors"]:
            annotate("error", f"{row['name']}: {error}")
    if run["problem"]:
        annotate("error", run["problem"])
    links = {"Comparison in the app": option("page_url"), "Recordings and pictures": option("results_url")}
    server, number = (os.environ.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "RUN_ID"))
    links["Log"] = f"{server}/{event.repository}/actions/runs/{number}"
    text = reports.text(event, run, links)
    write_line("GITHUB_STEP_SUMMARY", text)
    is_passed = not failed and not run["problem"]
    write_line("GITHUB_OUTPUT", f"passed={'true' if is_passed else 'false'}")
    if event.pull_request and option("comment") != "false":
        reports.comment(event, option("name"), text)
    print(text.split("\n")[0].lstrip("# "))
    return 0 if is_passed else 1


def main(step):
    """Runs a step and returns its exit status."""
    try:
        return {"install": install, "baseline": baseline, "check": check, "report": report}[step]() or 0
    except Problem as why:
        annotate("error", str(why))
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
