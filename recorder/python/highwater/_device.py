"""The kind of device whose memory is recorded. Only this file accesses PyTorch's modules for devices.

CUDA's module has all functions that are used here. The modules of other devices, such as `torch.xpu` and that of
`torch_npu`, have some of them; the others are not called.
"""

import functools
import sys

import torch

# The functions that a module must have to be recorded.
_NEEDED = ("_record_memory_history", "_snapshot")

OutOfMemoryError = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)


@functools.lru_cache(maxsize=None)
def name():
    """Returns the kind: `cuda` (also without any device), `xpu`, `npu` and so on."""
    accelerator = None if torch.cuda.is_available() else getattr(torch, "accelerator", None)
    found = accelerator and accelerator.current_accelerator()
    return found.type if found else "cuda"


def module():
    """Returns PyTorch's module for the kind."""
    return getattr(torch, name(), None)


def memory():
    """Returns PyTorch's module that contains the recorder."""
    return getattr(module(), "memory", module())


def call_at_first_use(function):
    """Calls a function when the program first uses a device of any kind, even if PyTorch does not support the kind
    yet."""
    others = ("xpu", "mtia", torch._C._get_privateuse1_backend_name())
    for kind in ("cuda", *others):
        # Of a kind that this PyTorch was built without, it waits for ever.
        call = getattr(getattr(torch, kind, None), "_lazy_call", None)
        if call is not None:
            call(function)


def why_unavailable():
    """Returns the reason that nothing can be recorded; None if recording is possible."""
    kind, found = name(), module()
    if found is None or not found.is_available():
        return "CUDA is not available" if kind == "cuda" else f"PyTorch finds no device of type {kind!r}"
    missing = [function for function in _NEEDED if not hasattr(memory(), function)]
    if missing:
        lacks = f"torch.{kind}.memory has no {' and no '.join(missing)}"
        return f"PyTorch {torch.__version__} has no recorder for {kind!r}: {lacks}"
    if kind == "cuda" and torch.cuda.get_allocator_backend() != "native":
        backend = torch.cuda.get_allocator_backend()
        return f"PyTorch uses {backend}, and only its own allocator can be recorded"
    return None


def is_used():
    """Returns whether the program has used a device."""
    return module() is not None and module().is_initialized()


def is_capturing():
    """Returns whether a graph is being captured, during which the device cannot be queried."""
    return getattr(module(), "is_current_stream_capturing", lambda: False)()


def has(tensor):
    """Returns whether a tensor is on a device of the kind."""
    return tensor.device.type == name()


def in_use():
    """Returns the devices on which the program has allocated. Querying other devices further would initialize them."""
    return [device for device in range(module().device_count()) if allocations(device)]


def stats(device):
    """Returns the allocator's counters of a device as nested dicts. Some kinds of devices lack some of them."""
    return torch._C._cuda_memoryStats(device) if name() == "cuda" else memory().memory_stats_as_nested_dict(device)


def allocations(device):
    """Returns the number of allocations on a device since the program began, or their bytes if the number is not
    counted."""
    counters = stats(device)
    return counters.get("allocation", counters["allocated_bytes"])["all"]["allocated"]


def is_history_enabled():
    """Returns whether the history is being recorded; False if this kind of device does not report it."""
    return _native("isHistoryEnabled", lambda: False)()


def recorders():
    """Returns the functions behind the program's calls of the recorder, as pairs of owner and name."""
    if name() == "cuda":
        # The program may have imported by name what calls these.
        names = ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy")
        return [(torch._C, one) for one in names if hasattr(torch._C, one)]
    return [(memory(), "_record_memory_history")]


def attach_oom_observer(observer):
    """Registers a function that is called when an allocation fails. Cannot be undone. Has no effect for kinds of
    devices without such a callback."""
    found = getattr(module(), "attach_out_of_memory_observer", None)
    attach = found or _native("attach_out_of_memory_observer", lambda observer: None)
    attach(observer)


def _native(suffix, default):
    """Returns a C++ function of PyTorch, or of an extension such as `torch_npu`."""
    extension = getattr(sys.modules.get(f"torch_{name()}"), "_C", None)
    for owner in (torch._C, extension):
        found = getattr(owner, f"_{name()}_{suffix}", None)
        if found is not None:
            return found
    return default
