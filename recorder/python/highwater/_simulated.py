"""Runs a program on a simulated GPU and records it, as `highwater simulate` has it done.

The command puts this package and a `sitecustomize.py` in front of the program's path, so that every Python process of
the program starts here. Before PyTorch is imported, the simulated GPU is loaded in place of CUDA; when the program
first uses CUDA, the recording begins; after the wanted number of steps, the program is ended.
"""

import atexit
import collections
import contextlib
import ctypes
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import linecache
import os
import sys

# Set by `highwater simulate`: the library, the folder for recordings, and the settings below.
_LIBRARY = "HIGHWATER_SIMULATE_LIBRARY"
_FOLDER = "HIGHWATER_SIMULATE_FOLDER"
_STEPS = "HIGHWATER_SIMULATE_STEPS"
_KEEP_INIT = "HIGHWATER_SIMULATE_KEEP_INIT"
_RANK = "HIGHWATER_SIMULATE_RANK"
_RANKS = "HIGHWATER_SIMULATE_RANKS"
_WRITES_ANSWERS = "HIGHWATER_SIMULATE_WRITES_ANSWERS"

# The exit status of a program that cannot go on, as it calls a function which is not simulated.
MISSING_STATUS = 3
# Reads of device values by one line in one step after which the program is taken to loop for ever.
_MOST_READS = 10_000
# As in the library's `notes.rs`.
_MISSING, _UNKNOWN_WORKSPACE, _UNKNOWN_VALUE = 0, 1, 2
# More than any program makes in a few steps.
_MOST_EVENTS = 1 << 31
# Smaller tensors of the host are initialized: it costs next to nothing.
_LEAST_BYTES_SKIPPED = 1 << 20

_LISTENER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p)
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep

_active = None


def start():
    """Prepares this process, if it is one of a simulated program."""
    global _active
    if os.environ.get(_LIBRARY) and os.environ.get(_FOLDER) and _active is None:
        _active = _Simulation()
        sys.meta_path.insert(0, _BeforeTorch(_active))


class _BeforeTorch(importlib.abc.MetaPathFinder):
    """Calls the simulation before and after PyTorch is imported."""

    def __init__(self, simulation):
        self._simulation = simulation
        self._is_searching = False

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._is_searching = False
        if spec is None or spec.loader is None:
            return None
        sys.meta_path.remove(self)
        self._simulation.before_torch(spec)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            self._simulation.after_torch(module)

        spec.loader.exec_module = exec_module
        return spec


class _Stop(SystemExit):
    """Ends the program after the wanted steps, with status 0."""

    def __init__(self):
        super().__init__(0)


class _Simulation:
    def __init__(self):
        self._library = None
        self._seen = set()
        # Counts by kind, function and line of the program.
        self._notes = collections.Counter()
        self._recording = None
        self._is_stopped = False
        # Reads by line in the current step, and the line that has made too many.
        self._step, self._reads, self._endless = None, collections.Counter(), None
        self._skipped_bytes = 0
        # Whether this process is one of several ranks, without the others.
        self._is_alone = False

    def before_torch(self, spec):
        """Loads the simulated GPU before PyTorch's libraries, which then find its functions first."""
        self._library = ctypes.CDLL(os.environ[_LIBRARY], mode=ctypes.RTLD_GLOBAL)
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
        """Has the recording begin when the program first uses CUDA."""
        if torch.version.cuda is None:
            _end(f"this PyTorch ({torch.__version__}) is built without CUDA: install the CUDA wheel of the same version")
        if not os.environ.get(_KEEP_INIT):
            self._skip_initialization(torch)
        # With a launcher, the ranks are processes of their own.
        if os.environ.get(_RANKS) and "TORCHELASTIC_RUN_ID" not in os.environ:
            self._is_alone = True
            _fake_process_group(torch)
        torch.cuda._lazy_call(self._begin)

    def _define_missing(self, path):
        path = os.fspath(path)
        if ".so" in os.path.basename(path) and path not in self._seen:
            self._seen.add(path)
            self._library.highwater_simulate_define_missing(os.fsencode(path))

    def _wrap_loading(self):
        """Defines what other libraries with kernels import before they are loaded."""
        loader = importlib.machinery.ExtensionFileLoader
        create, initialize = loader.create_module, ctypes.CDLL.__init__

        @functools.wraps(create)
        def create_module(extension, spec):
            self._define_missing(extension.path)
            return create(extension, spec)

        @functools.wraps(initialize)
        def load(library, name, *args, **kwargs):
            if name is not None and os.path.isfile(name):
                self._define_missing(name)
            initialize(library, name, *args, **kwargs)

        loader.create_module = create_module
        ctypes.CDLL.__init__ = load

    # What the simulation cannot answer exactly.

    def _listen(self, kind, name):
        name = name.decode(errors="replace")
        place = _place()
        self._notes[(kind, name, place)] += 1
        if kind == _UNKNOWN_VALUE:
            self._count_read(place)
        if kind == _MISSING:
            self._finish()
            at = f" (called at {place[0]}:{place[1]})" if place else ""
            _end(f"{name} is not simulated{at}: what the program needs from there on is not known", MISSING_STATUS)

    def _count_read(self, place):
        step = self._recording._step_number() if self._recording is not None else None
        if step != self._step:
            self._step = step
            self._reads.clear()
        self._reads[place] += 1
        if place and self._reads[place] > _MOST_READS:
            self._endless = place
            self._finish()
            what = f"has read {_MOST_READS:,} values of the device in one step, which are zeros"
            _end(f"{place[0]}:{place[1]} {what}: it seems to wait for one that never comes", MISSING_STATUS)

    def _skip_initialization(self, torch):
        """Leaves large tensors of the host as they are: their values are not copied to a device that has none."""

        def is_large(tensor):
            is_plain = isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu" and tensor.is_floating_point()
            return is_plain and tensor.nbytes >= _LEAST_BYTES_SKIPPED

        def skipping(original):
            @functools.wraps(original)
            def initialize(tensor, *args, **kwargs):
                if not is_large(tensor):
                    return original(tensor, *args, **kwargs)
                self._skipped_bytes += tensor.nbytes
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
        from ._recording import record_memory_history

        if self._recording is not None:
            return
        steps = int(os.environ.get(_STEPS) or 0)
        path = os.path.join(os.environ[_FOLDER], f"{os.getpid()}.snap")
        self._recording = record_memory_history(path, steps=range(steps) if steps else None, max_entries=_MOST_EVENTS)
        self._recording._describe, self._recording._on_over = self._describe, self._stop
        atexit.register(self._finish)
        self._recording.__enter__()
        if os.environ.get(_WRITES_ANSWERS):
            from ._values import Values

            # Until the end of the process.
            self._values = Values(self._library)
            self._values.__enter__()

    def _stop(self):
        """Ends the program after its last step that is recorded."""
        self._is_stopped = True
        raise _Stop

    def _finish(self):
        recording, self._recording = self._recording, None
        if recording is not None:
            kind = None if self._is_stopped else getattr(sys, "last_type", None)
            recording.__exit__(kind, None, None)

    def _describe(self):
        """Returns facts about the simulation, and what every answer notes."""
        import torch

        device = torch.cuda.get_device_properties(torch.cuda.current_device())
        name = f"{device.name} (compute capability {device.major}.{device.minor})"
        notes = [f"simulated: recorded on a simulated {name}; what lies outside of PyTorch's allocator is not included"]
        if self._is_alone:
            ranks = f"rank {os.environ[_RANK]} of {os.environ[_RANKS]}"
            notes.append(f"simulated alone as {ranks}: the other ranks are taken to have the same values")
        found = {
            "gpu": device.name,
            "capability": f"{device.major}.{device.minor}",
            "skipped_bytes": self._skipped_bytes,
            "cudnn": torch.backends.cudnn.version(),
            "endless": f"{self._endless[0]}:{self._endless[1]}" if self._endless else None,
            "missing": self._rows(_MISSING),
            "unknown_workspaces": self._rows(_UNKNOWN_WORKSPACE),
            "reads": self._rows(_UNKNOWN_VALUE),
        }
        return {"simulated": name, "simulation": json.dumps(found)}, notes

    def _rows(self, kind):
        rows = []
        for (of_kind, name, place), count in sorted(self._notes.items(), key=str):
            if of_kind == kind:
                file, line, function = place or (None, None, None)
                text = linecache.getline(file, line).strip() if file else ""
                rows.append({"name": name, "file": file, "line": line, "function": function, "text": text, "count": count})
        return rows


def _place():
    """The innermost line of the program that is running: file, line and function."""
    frame, fallback = sys._getframe(2), None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_PACKAGE) and not file.startswith("<") and f"{os.sep}torch{os.sep}" not in file:
            found = (file, frame.f_lineno, frame.f_code.co_name)
            if "site-packages" not in file and "dist-packages" not in file:
                return found
            fallback = fallback or found
        frame = frame.f_back
    return fallback


def _fake_process_group(torch):
    """Has this process run as one rank of several: the others are taken to have the same values."""
    if not torch.distributed.is_available():
        return
    import torch.distributed as distributed

    rank, ranks = int(os.environ[_RANK]), int(os.environ[_RANKS])

    class AloneStore(distributed.Store):
        """A store in which the other ranks have set what is asked for."""

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
            return True

        def delete_key(self, key):
            return self._values.pop(key, None) is not None

        def num_keys(self):
            return len(self._values)

        def set_timeout(self, timeout):
            return None

    original = distributed.init_process_group

    @functools.wraps(original)
    def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank_=-1, store=None, **others):
        others.pop("rank", None)
        options = {"timeout": timeout} if timeout is not None else {}
        return original(backend, world_size=ranks, rank=rank, store=AloneStore(), **options, **others)

    distributed.init_process_group = init_process_group
    distributed.distributed_c10d.init_process_group = init_process_group


def _end(message, status=2):
    """Ends the process at once: nothing that follows would be right."""
    sys.stdout.flush()
    print(f"highwater: {message}", file=sys.stderr, flush=True)
    os._exit(status)
