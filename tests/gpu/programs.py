"""Programs that the parts run: each with a time limit, its words in log.txt, and why it failed in a line. What fails is run
once more so that it tells more, since there may be no second visit to the machine."""

import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.environ.get("OUT", os.getcwd())
# A separate Python may have PyTorch, where this one has none.
PYTORCH = os.environ.get("HIGHWATER_GPU_PYTORCH", sys.executable)
DEADLINE = time.monotonic() + float(os.environ.get("HIGHWATER_GPU_SECONDS", "520"))
# Multiplies every time limit of a program: a test on a busy machine waits as long as it takes.
LIMIT_FACTOR = float(os.environ.get("HIGHWATER_GPU_LIMIT_FACTOR", "1"))
# NVIDIA's containers set these, which changes how PyTorch computes.
LEFT_OUT = ["TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"]
# Kept back for the page and the archive of recordings.
LAST_SECONDS = 10
# Of what a program says, so many characters from the beginning and from the end are kept.
MAX_WORDS = 60_000
# Programs side by side, where nothing is timed.
WORKERS = max(2, min(8, os.cpu_count() or 2))
# A debugger may look for so long at a program that does not end, and at so many of them.
DEBUGGER_SECONDS = 25
looks = threading.Semaphore(3)

writing = threading.Lock()


class Failure(Exception):
    """Why something has no result, in a line."""


class NoTime(Failure):
    """It was not begun."""

    def __init__(self):
        super().__init__("not run: no time was left")


class Stopped(Failure):
    """It did not end in time. Holds what it had said by then."""

    def __init__(self, why, words=""):
        super().__init__(why)
        self.words = words


def left():
    """Seconds until the page has to be made."""
    return DEADLINE - LAST_SECONDS - time.monotonic()


def log(text):
    with writing, open(os.path.join(OUT, "log.txt"), "a") as file:
        file.write(text.rstrip() + "\n")


def clipped(text):
    cut = len(text) - 2 * MAX_WORDS
    return text if cut <= 0 else f"{text[:MAX_WORDS]}\n[{cut} characters left out]\n{text[-MAX_WORDS:]}"


def reason(status, out, err):
    """Why a program failed, in a line: that there was no memory, what it panicked with, its last error, or its last words."""
    oom = attempt(lambda: read_json(out)["oom"]["description"])
    if isinstance(oom, str):
        return oom.splitlines()[0]
    lines = [line.strip() for line in (err.strip() or out).splitlines() if line.strip()]
    found = lines[-1] if lines else "no words"
    errors = [line for line in lines if line.lower().startswith("error")]
    if errors:
        found = errors[-1]
    for number, line in enumerate(lines):
        if " panicked at " in line:
            found = " ".join([line.split(" panicked at ")[1], *lines[number + 1 : number + 2]])
            break
    how = f"signal {-status}: " if status < 0 else ""
    return how + found[:300]


def shown(command):
    return " ".join(os.path.relpath(word, HERE) if word.startswith(HERE) else word for word in command)


def run(command, limit, may_fail=False, looked_at=True, **variables):
    """Runs a command for so many seconds at most, and gives its status and both its outputs."""
    if left() < 1:
        raise NoTime
    limit, start = min(limit * LIMIT_FACTOR, left()), time.monotonic()
    setting = "".join(f"{name}={value} " for name, value in variables.items())
    try:
        environment = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment | {"RUST_BACKTRACE": "1"} | variables,
            start_new_session=True,
        )
    except OSError as why:
        raise Failure(str(why)) from None
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        places = look_at(process.pid) if looked_at else ""
        # With whatever it started: that would keep its outputs open.
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        words = f"{clipped(out)}\n{clipped(err)}\n{places}\n[stopped after {limit:.0f} s]"
        log(f"$ {setting}{shown(command)}\n{words}")
        raise Stopped(f"stopped after {limit:.0f} s", out + err) from None
    seconds = time.monotonic() - start
    log(f"$ {setting}{shown(command)}\n{clipped(out)}\n{clipped(err)}\n[status {process.returncode} after {seconds:.1f} s]")
    if process.returncode != 0 and not may_fail:
        raise Failure(reason(process.returncode, out, err))
    return process.returncode, out, err


def look_at(process):
    """Where a program that does not end is, on the processor and on the GPU, as far as a debugger can tell."""
    debugger = shutil.which("cuda-gdb") or shutil.which("gdb")
    if not debugger or left() < 2 * DEBUGGER_SECONDS or not looks.acquire(blocking=False):
        return ""
    words = ["--batch", "-p", str(process), "-ex", "info cuda kernels", "-ex", "thread apply all backtrace 30"]
    try:
        told = subprocess.run(
            [debugger, *words], capture_output=True, text=True, errors="replace", timeout=DEBUGGER_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as why:
        return f"[{debugger}: {why}]"
    return f"[{debugger}]\n{clipped(told.stdout)}\n{clipped(told.stderr)}"


def program(name):
    return os.path.join(HERE, "bin", name)


def ours(name, *words, limit, **variables):
    """Runs one of our programs. If it fails, once more with launches that wait, so that the error names the kernel."""
    command = [program(name), *words]
    try:
        return run(command, limit, **variables)
    except (NoTime, Stopped):
        raise
    except Failure as first:
        again = attempt(lambda: run(command, limit, CUDA_LAUNCH_BLOCKING="1", **variables))
        told = again["failed"] if fails(again) else "no failure"
        told = "the same" if told == str(first) else told
        raise Failure(f"{first}; with launches that wait: {told}") from None


def pytorch(*words, limit, **variables):
    return read_json(run([PYTORCH, os.path.join(HERE, "pytorch.py"), *words], limit, **variables)[1])


class Budget:
    """Bytes of a device's memory that programs share: each starts only when what it needs is free."""

    def __init__(self, total):
        self.total = self.free = total
        self.changed = threading.Condition()

    @contextlib.contextmanager
    def reserved(self, needed):
        # A program that needs more than there is runs alone, and says itself that memory ran out.
        needed = min(needed, self.total)
        with self.changed:
            self.changed.wait_for(lambda: self.free >= needed)
            self.free -= needed
        try:
            yield
        finally:
            with self.changed:
                self.free += needed
                self.changed.notify_all()


def read_json(text):
    """The last JSON object among a program's words, which may be of one line or of many, and begins one."""
    for start in reversed([found.start() for found in re.finditer(r"^\{", text, re.M)]):
        try:
            return json.JSONDecoder().raw_decode(text, start)[0]
        except json.JSONDecodeError:
            continue
    raise Failure("no answer among its words: " + text.strip()[-200:])


def fails(result):
    return isinstance(result, dict) and "failed" in result


def attempt(action):
    """What the action gives, or why it failed."""
    try:
        return action()
    except Failure as why:
        return {"failed": str(why)}
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OSError) as why:
        return {"failed": f"an answer that cannot be read: {why!r}"}


def together(actions, workers=WORKERS):
    """What each of the actions gives, or why it failed; several at a time, begun in their order."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        running = {name: pool.submit(attempt, action) for name, action in actions.items()}
        return {name: future.result() for name, future in running.items()}
