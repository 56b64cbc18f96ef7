"""Runs this process on a simulated GPU, for `highwater simulate` and for `pytest --highwater-simulate`.

Both prepend this package and a `sitecustomize.py` to the program's module path, so that every Python process of the
program starts here. Before PyTorch is imported, the simulated GPU is loaded in place of CUDA.

`highwater simulate` also names a folder for recordings: when the program first uses CUDA, the recording begins; after
the wanted number of steps, the program is ended.
"""

import collections
import contextlib
import ctypes
import functools
import gc
import importlib.machinery
import os
import random
import sys
import threading
import time

from ._around_torch import AroundTorch
from ._groups import note_groups, replace_function
from ._noted import MISSING, TIME, UNKNOWN_VALUE, Noted, is_autotuning, place
from ._objects import Objects
from ._operators import replace_operators
from ._program import ProgramRecording

# Set by `highwater simulate`: the library, its GPU, the folder for the recording of the program, and settings of that.
_LIBRARY = "HIGHWATER_SIMULATE_LIBRARY"
_GPU = "HIGHWATER_SIMULATE_GPU"
_FOLDER = "HIGHWATER_SIMULATE_FOLDER"
_STEPS = "HIGHWATER_SIMULATE_STEPS"
_KEEP_INIT = "HIGHWATER_SIMULATE_KEEP_INIT"
_RANK = "HIGHWATER_SIMULATE_RANK"
_RANKS = "HIGHWATER_SIMULATE_RANKS"
_DEVICES = "HIGHWATER_SIMULATE_DEVICES"
_WRITES_ANSWERS = "HIGHWATER_SIMULATE_WRITES_ANSWERS"
_READS_ANSWERS = "HIGHWATER_SIMULATE_READS_ANSWERS"
# The file with the lines of a plan, set by `highwater plan`.
_LINES = "HIGHWATER_SIMULATE_LINES"
# The test that pytest runs, as `test_it.py::test (call)`.
_TEST = "PYTEST_CURRENT_TEST"

# The exit status of a program that cannot go on, as it calls a function which is not simulated.
MISSING_STATUS = 3
# Reads of device values by one line in one step after which the program is taken to loop for ever.
_MAX_READS = 10_000
# The same for reads that take long, as each token of a generation may: seconds since the line's first, and reads.
_MAX_READING_SECONDS, _MIN_SLOW_READS = 120, 50
# Reads whose order is known: to find the first that decides about memory.
_MAX_ORDERED_READS = 100_000
# More than any program makes in a few steps.
_MAX_EVENTS = 1 << 31
# Smaller tensors of the host are initialized: it costs next to nothing.
_MIN_BYTES_SKIPPED = 1 << 20

_LISTENER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p)

_active = None
# Called before the process is ended, such as to show its message: pytest has some.
before_end: list = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=before_end.clear)


def start():
    """Prepares this process if it belongs to a simulated program."""
    global _active
    if os.environ.get(_LIBRARY) and _active is None:
        _active = _Simulation()
        sys.meta_path.insert(0, AroundTorch(_active.before_torch, _active.after_torch))


def stop():
    """Undoes `start`, unless PyTorch has already been imported."""
    global _active
    if _active is not None and not _active.is_loaded():
        _active = None
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, AroundTorch)]


def is_started():
    """Returns whether PyTorch uses, or will use, the simulated GPU in this process."""
    return _active is not None


def is_recording_program():
    """Returns whether `highwater simulate` records this process."""
    return is_started() and bool(os.environ.get(_FOLDER))


def gpu():
    """Returns the name and the memory in bytes of the simulated GPU; None if no GPU is simulated."""
    description = os.environ.get(_GPU)
    if _active is None or not description:
        return None
    _capability, _multiprocessors, _l2, memory, name = description.split(",", 4)
    return name, int(memory)


def observe():
    """Begins to count the calls that the simulated GPU cannot answer exactly. Returns None if nothing is simulated."""
    return None if _active is None else Noted(_active)


class _Stop(SystemExit):
    """Ends the program after the wanted steps, with status 0."""

    def __init__(self):
        super().__init__(0)


class _Simulation:
    def __init__(self):
        self._library = None
        self._seen = set()
        # Counts by kind, function and line of the program.
        self.notes = collections.Counter()
        self._recording = None
        # Reads in order: how many allocations came before, and the note.
        self.reads = []
        # Reads by line in the current step, and the line that has made too many.
        self._step, self._reads, self.endless = None, collections.Counter(), None
        # When each line has read its first.
        self._first_reads = {}
        # Bytes of the host that were not initialized.
        self.skipped_bytes = 0
        # Whether no failed request has ended the process.
        self.outlives_failures = False
        # The rank and how many there are, of a process that is one of several ranks, without the others.
        self.rank = None

    def is_loaded(self):
        """Returns whether the simulated GPU has been loaded."""
        return self._library is not None

    def before_torch(self, spec):
        """Loads the simulated GPU before PyTorch's libraries, so that they find its functions first."""
        if _is_launched():
            # Each of its processes on this machine has a device.
            os.environ[_DEVICES] = os.environ.get("LOCAL_WORLD_SIZE", "1")
        self._library = ctypes.CDLL(os.environ[_LIBRARY], mode=ctypes.RTLD_GLOBAL)
        self._library.highwater_simulate_end_with(_command())
        self._library.highwater_simulate_define_missing.argtypes = [ctypes.c_char_p]
        # Kept, as the library calls it until the end.
        self._listener = _LISTENER(self._listen)
        self._library.highwater_simulate_listen(self._listener)
        for folder in spec.submodule_search_locations or ():
            for inner in (folder, os.path.join(folder, "lib")):
                with contextlib.suppress(OSError):
                    for entry in os.scandir(inner):
                        self._define_missing(entry.path)
        self._wrap_loading()

    def after_torch(self, torch):
        """Makes the recording begin when the program first uses CUDA."""
        if torch.version.cuda is None:
            built = f"this PyTorch ({torch.__version__}) is built without CUDA"
            _end(f"{built}: install the CUDA wheel of the same version")
        if not os.environ.get(_KEEP_INIT):
            self._skip_initialization(torch)
        if os.environ.get(_WRITES_ANSWERS) or os.environ.get(_READS_ANSWERS):
            _seed(torch)
        # With a launcher, the ranks are processes of their own.
        if os.environ.get(_RANKS) and not _is_launched():
            self.rank = int(os.environ[_RANK]), int(os.environ[_RANKS])
            _fake_process_group(torch, *self.rank)
        replace_operators(torch, self._library)
        if torch.distributed.is_available():
            note_groups(torch, self._library)
            Objects(torch, is_alone=self.rank is not None).replace()
        torch.cuda._lazy_call(lambda: _check_kernels(torch))
        if os.environ.get(_FOLDER):
            torch.cuda._lazy_call(self._begin)

    def _define_missing(self, path):
        path = os.fspath(path)
        if ".so" in os.path.basename(path) and path not in self._seen:
            self._seen.add(path)
            self._library.highwater_simulate_define_missing(os.fsencode(path))

    def _wrap_loading(self):
        """Defines the functions that other libraries with kernels import, before those libraries are loaded."""
        loader = importlib.machinery.ExtensionFileLoader
        create, initialize = loader.create_module, ctypes.CDLL.__init__
        folder = os.path.dirname(os.environ[_LIBRARY])
        # The driver and NVML.
        names = set(os.listdir(folder))

        @functools.wraps(create)
        def create_module(extension, spec):
            self._define_missing(extension.path)
            return create(extension, spec)

        @functools.wraps(initialize)
        def load(library, name, *args, **kwargs):
            name = None if name is None else os.fsdecode(name)
            if name in names:
                # The loader of a process that was started otherwise does not know the folder.
                name = os.path.join(folder, name)
            elif name is not None and os.path.isfile(name):
                self._define_missing(name)
            initialize(library, name, *args, **kwargs)

        loader.create_module = create_module
        ctypes.CDLL.__init__ = load

    def allocations(self):
        """Returns the number of allocations on the current device."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return 0
        return torch._C._cuda_memoryStats(torch._C._cuda_getDevice())["allocation"]["all"]["allocated"]

    # The calls that the simulation cannot answer exactly.

    def _listen(self, kind, name):
        if kind == TIME and not is_autotuning():
            return
        name = name.decode(errors="replace")
        at = place()
        self.notes[(kind, name, at)] += 1
        if kind == UNKNOWN_VALUE:
            if len(self.reads) < _MAX_ORDERED_READS:
                self.reads.append((self.allocations(), (kind, name, at)))
            self._count_read(at)
        if kind == MISSING:
            self._finish()
            line = f" (called at {at[0]}:{at[1]})" if at else ""
            _end(f"{name} is not simulated{line}: the memory needed after it is unknown", MISSING_STATUS)

    def _count_read(self, at):
        # Of any recording, and of the test that pytest runs.
        session = _session()
        step = session and (id(session), session.step_number()), os.environ.get(_TEST)
        if step != self._step:
            self._step = step
            self._reads.clear()
            self._first_reads.clear()
        self._reads[at] += 1
        reads, seconds = self._reads[at], time.monotonic() - self._first_reads.setdefault(at, time.monotonic())
        if at and (reads > _MAX_READS or (reads >= _MIN_SLOW_READS and seconds > _MAX_READING_SECONDS)):
            self.endless = f"{at[0]}:{at[1]}"
            self._finish()
            what = f"read {reads:,} device values in one step. Values of the simulated device are always zero"
            _end(f"{self.endless} {what}, so the program probably waits for one that never changes", MISSING_STATUS)

    def _skip_initialization(self, torch):
        """Skips the initialization of large host tensors, whose values are never copied to the simulated device."""

        def is_large(tensor):
            is_plain = isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu" and tensor.is_floating_point()
            return is_plain and tensor.nbytes >= _MIN_BYTES_SKIPPED

        def skipping(original):
            @functools.wraps(original)
            def initialize(tensor, *args, **kwargs):
                if not is_large(tensor):
                    return original(tensor, *args, **kwargs)
                self.skipped_bytes += tensor.nbytes
                return tensor

            return initialize

        names = ("normal_", "uniform_", "trunc_normal_", "constant_", "ones_", "zeros_", "orthogonal_", "sparse_")
        names += ("xavier_normal_", "xavier_uniform_", "kaiming_normal_", "kaiming_uniform_")
        for name in names:
            if hasattr(torch.nn.init, name):
                setattr(torch.nn.init, name, skipping(getattr(torch.nn.init, name)))
        for name in ("normal_", "uniform_"):
            setattr(torch.Tensor, name, skipping(getattr(torch.Tensor, name)))

    # The recording.

    def _begin(self):
        if self._recording is not None:
            return
        steps = int(os.environ.get(_STEPS) or 0)
        path = os.path.join(os.environ[_FOLDER], f"{os.getpid()}.snap")
        self._recording = ProgramRecording(path, steps=range(steps) if steps else None, max_entries=_MAX_EVENTS)
        self._recording.on_over, self._recording.before_end = self._stop, self._note_end
        # Without a recording, this tells that CUDA was used.
        with open(os.path.join(os.environ[_FOLDER], f".{os.getpid()}.begun"), "w", encoding="ascii"):
            pass
        self._recording.begin()
        if os.environ.get(_LINES):
            from ._applied import Applied

            self._applied = Applied(os.environ[_LINES])
        if os.environ.get(_WRITES_ANSWERS):
            from ._values import Values

            # Until the end of the process.
            self._values = Values(self._library)
            self._values.__enter__()

    def is_over(self):
        """Returns whether the requested steps are over, after which the program is ended."""
        is_active = self._recording is not None and self._recording.is_active()
        steps, session = int(os.environ.get(_STEPS) or 0), is_active and _session()
        return bool(steps and session) and session.step_number() >= steps

    def waiting_optimizers(self):
        """Returns the number of PyTorch optimizers that exist but have made no step, when the requested steps are
        over."""
        session = self.is_over() and _session()
        if not session:
            return 0
        import torch

        stepped = session._tracker.optimizers()
        # The class of a proxy, which `isinstance` asks for, may warn.
        made = [one for one in gc.get_objects() if issubclass(type(one), torch.optim.Optimizer)]
        # Wrappers of optimizers, such as those of accelerate, only call the step of another.
        made = [one for one in made if getattr(type(one).step, "hooked", False) and one.param_groups]
        return sum(all(one is not other for other in stepped) for one in made)

    def _stop(self):
        """Ends the program after the last recorded step."""
        self._recording.is_stopped = True
        if threading.current_thread() is threading.main_thread():
            raise _Stop
        # An exception would end this thread alone, for which the others may wait.
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(0)

    def _finish(self):
        if self._recording is not None:
            self._recording.finish()

    def _note_end(self, is_out_of_memory):
        self.outlives_failures = not is_out_of_memory


def _session():
    """Returns the active recording, whether started by `highwater simulate` or by the program; None if there is
    none."""
    return getattr(sys.modules.get(f"{__package__}._session"), "_active", None)


def _seed(torch):
    """Makes both runs of a program draw the same random numbers, unless the program sets a seed itself."""
    random.seed(0)
    torch.manual_seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


def _is_launched():
    """Returns whether `torchrun` started this process as one of its ranks."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def _command():
    """Returns the process id of the `highwater simulate` among the ancestors of this process; 0 if there is none."""
    process = os.getppid()
    with contextlib.suppress(OSError, ValueError):
        while process > 1:
            if os.path.samefile(f"/proc/{process}/exe", os.environ.get("HIGHWATER_BINARY", "")):
                return process
            with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
                # The name of the program stands before, in parentheses.
                process = int(file.read().rpartition(")")[2].split()[1])
    return 0


def _check_kernels(torch):
    """Ends the process if this PyTorch has no kernels for the simulated GPU, since the program would fail on a real
    one."""
    major, minor = torch.cuda.get_device_capability()
    names = torch.cuda.get_arch_list()
    for name in names:
        kind, _, number = name.rstrip("af").partition("_")
        known = divmod(int(number), 10)
        # Kernels run on later devices of the same generation; their intermediate form on all later ones.
        if (known[0] == major and known[1] <= minor) or (kind == "compute" and known <= (major, minor)):
            return
    device = f"{torch.cuda.get_device_name()}, of compute capability {major}.{minor}"
    _end(f"this PyTorch ({torch.__version__}) has no kernels for {device}: it has {', '.join(names)}")


def _fake_process_group(torch, rank, ranks):
    """Makes this process run as one of several ranks. The other ranks are assumed to have the same values."""
    if not torch.distributed.is_available():
        return
    import torch.distributed as distributed

    class AloneStore(distributed.Store):
        """A store that has a value for every requested key, as if set by the other ranks."""

        def __init__(self):
            super().__init__()
            self._values = {}

        def set(self, key, value):
            self._values[key] = value if isinstance(value, bytes) else value.encode()

        def get(self, key):
            # As long as the id of a communicator.
            return self._values.get(key, bytes(128))

        def add(self, key, amount):
            # Barriers count the ranks.
            total = int(self._values.get(key, b"0")) + amount * (ranks if amount == 1 else 1)
            self._values[key] = str(total).encode()
            return total

        def compare_set(self, key, expected, desired):
            if self._values.get(key, b"") == expected or key not in self._values:
                self.set(key, desired)
            return self.get(key)

        def wait(self, keys, timeout=None):
            return None

        def check(self, keys):
            # Ranks that fail set keys, for which others look.
            return all(key in self._values for key in keys)

        def delete_key(self, key):
            return self._values.pop(key, None) is not None

        def num_keys(self):
            return len(self._values)

        def set_timeout(self, timeout):
            return None

    original = distributed.init_process_group
    # PyTorch finds the methods above only as long as Python has the object.
    stores = []

    @functools.wraps(original)
    def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank_=-1, store=None, **others):
        # Processes that the program starts itself name their ranks.
        given = others.pop("rank", -1)
        own = given if world_size == ranks and 0 <= given < ranks else rank
        if own != rank:
            os.environ.update(RANK=str(own), LOCAL_RANK=str(own % torch.cuda.device_count()))
        options = {"timeout": timeout} if timeout is not None else {}
        stores.append(AloneStore())
        return original(backend, world_size=ranks, rank=own, store=stores[-1], **options, **others)

    replace_function(original, init_process_group)


def _end(message, status=2):
    """Ends the process at once, because all further results would be wrong."""
    test = os.environ.get(_TEST, "").rpartition(" (")[0]
    if test:
        # Or a program that the test has started.
        is_pytest = bool(before_end)
        message = f"{test}: {message}"
        message += f"; pytest ends here, and --deselect {test} leaves the test out" if is_pytest else ""
    for function in before_end:
        with contextlib.suppress(Exception):
            function()
    sys.stdout.flush()
    print(f"highwater: {message}", file=sys.stderr, flush=True)
    os._exit(status)
