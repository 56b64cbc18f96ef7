"""Tests on a GPU, and what compute-sanitizer finds in them. Each module of a test binary runs in a process of its own: after
a kernel has strayed, nothing that follows in its process works."""

import glob
import os
import re
import shutil
import time

from programs import HERE, Failure, Stopped, attempt, fails, left, reason, run, together

# These look at how much of the device is free, so nothing else may use it meanwhile; they are few and short.
UNDISTURBED = ["kernels-device", "kernels-products"]
# This takes nearly all of the device.
FILLING = "full_device"
MODULE_SECONDS = 90
# Of what failed, so many are run again, each alone.
MAX_AGAIN = 16
AGAIN_SECONDS = 25

# What compute-sanitizer looks at, by its tools: what matters most comes first.
SANITIZED = {
    "memcheck": ["attention", "reduce", "norm", "index", "device", "softmax", "scan", "pick", "optim"],
    "racecheck": ["attention", "reduce", "norm", "scan"],
}
SANITIZER_SECONDS = 120
# With less time, it is left for a separate run.
MIN_SANITIZER_SECONDS = 60
SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) errors?|RACECHECK SUMMARY: (\d+) hazards? displayed)")
COMPLAINT = re.compile(r"^========= (?:Error: |Warning: )?(?:Invalid|Misaligned|Race reported|Program hit|Uninitialized|Potential)", re.M)


def modules():
    """The names of all tests, by binary and module; those that may not be disturbed as one module, named for the binary."""
    found = {}
    for binary in sorted(glob.glob(os.path.join(HERE, "tests", "*"))):
        name = os.path.basename(binary)
        for test in re.findall(r"^(\S+): test$", run([binary, "--list", "--format", "terse"], 30)[1], re.M):
            module = name.split("-")[1] if name in UNDISTURBED else test.split("::")[0]
            found.setdefault((binary, module), []).append(test)
    if not found:
        raise Failure("there are no tests here")
    return found


def command(binary, names):
    return [binary, "--exact", *names, "--test-threads=1", "--show-output"]


def outcome(binary, names, limit=MODULE_SECONDS, **variables):
    """How tests of a binary went; those that were not reached count as failed."""
    start, why = time.monotonic(), None
    try:
        status, out, err = run(command(binary, names), limit, may_fail=True, **variables)
        why = None if re.search(r"^test result: ", out, re.M) else f"ended with status {status}"
        words = out + err
    except Stopped as stopped:
        why, words = str(stopped), stopped.words
    passed = re.findall(r"^test (\S+) \.\.\. (?:ok|ignored)", words, re.M)
    failing = [name for name in names if name not in passed]
    begun = re.findall(r"^test (\S+) \.\.\. ", words, re.M)
    if why and begun:
        why += f" in {begun[-1]}"
    skipped = len(re.findall(r"^skipped: ", words, re.M))
    told = reason(0, "", words) if " panicked at " in words else why
    seconds = time.monotonic() - start
    return {"passed": len(passed), "failing": failing, "skipped": skipped, "why": why, "reason": told, "seconds": seconds}


def tests():
    """All tests, a module at a time, and what failed once more: each alone, with launches that wait."""
    found = modules()
    outcomes, rest = {}, {}
    for (binary, module), names in found.items():
        if os.path.basename(binary) in UNDISTURBED or module == FILLING:
            outcomes[binary, module] = attempt(lambda: outcome(binary, names))
        else:
            rest[binary, module] = lambda binary=binary, names=names: outcome(binary, names)
    outcomes |= together(rest)
    failing = [(place, binary, name) for (binary, _), went in outcomes.items() for place, name in enumerate(went.get("failing", []))]
    # The first of each module before the second of any.
    failing = sorted(failing, key=lambda failed: failed[0])[:MAX_AGAIN]
    again = together(
        {
            (binary, name): lambda binary=binary, name=name: outcome(binary, [name], AGAIN_SECONDS, CUDA_LAUNCH_BLOCKING="1")
            for _, binary, name in failing
        }
    )
    told = {}
    for (binary, module), went in outcomes.items():
        name = os.path.basename(binary)
        if fails(went):
            told[f"{name} {module}"] = went
            continue
        row = told.setdefault(name, {"passed": 0, "skipped": 0, "seconds": 0, "failing": {}, "why": []})
        row["passed"] += went["passed"]
        row["skipped"] += went["skipped"]
        row["seconds"] = round(row["seconds"] + went["seconds"], 1)
        row["why"] += [f"{module} {went['why']}"] if went["why"] else []
        for test in went["failing"]:
            alone = again.get((binary, test), {})
            row["failing"][test] = "passes alone" if alone.get("passed") else alone.get("reason", alone.get("failed"))
    return told


def sanitizer():
    """What compute-sanitizer says of chosen modules, with each of its tools."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(tool):
        raise Failure("there is no compute-sanitizer")
    if left() < MIN_SANITIZER_SECONDS:
        raise Failure(f"not run: less than {MIN_SANITIZER_SECONDS} s were left; run.sh sanitizer runs it alone")
    found = {module: (binary, names) for (binary, module), names in modules().items()}
    actions = {}
    for check, wanted in SANITIZED.items():
        for module in wanted:
            if module in found:
                actions[f"{check} {module}"] = lambda check=check, module=module: sanitized(tool, check, *found[module])
    return together(actions)


def sanitized(tool, check, binary, names):
    """The number of errors, and what the first of them are. Calls that are refused are the tests' own affair."""
    start, finished = time.monotonic(), True
    words = [tool, "--tool", check, "--report-api-errors", "no", "--print-limit", "50", *command(binary, names)]
    try:
        _, out, err = run(words, SANITIZER_SECONDS, may_fail=True, looked_at=False)
        text = out + err
    except Stopped as stopped:
        text, finished = stopped.words, False
    summary = SUMMARY.findall(text)
    complaints = COMPLAINT.findall(text)
    if finished and not summary:
        lines = [line for line in text.splitlines() if line.startswith("=========")] or text.splitlines()
        raise Failure((lines or ["no words"])[-1][:300])
    count = sum(int(one or other) for one, other in summary) if summary else len(complaints)
    passed = len(re.findall(r"^test \S+ \.\.\. ok$", text, re.M))
    first = [" ".join(lines_at(text, at.start())) for at in list(COMPLAINT.finditer(text))[:3]]
    seconds = round(time.monotonic() - start, 1)
    return {"errors": count, "tests": [passed, len(names)], "finished": finished, "first": first, "seconds": seconds}


def lines_at(text, start):
    """A complaint, and where it says the kernel is."""
    return [line.removeprefix("=========").strip() for line in text[start:].splitlines()[:2]]
