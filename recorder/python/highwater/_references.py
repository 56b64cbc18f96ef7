"""Follows the references to tensors that autograd saves, in the first recorded steps.

A snapshot shows when a block is freed. With activation checkpointing, a module's tensors are freed as soon as the
program itself drops them, long before backward. To predict this, each tensor that the graph saves is replaced by an
alias of the same storage. The storage's reference count then shows when only the graph still refers to it. Counts are
read whenever a tensor is saved, and at the beginning and end of modules. Neither values nor allocations change.

A position is the number of allocations on a device since the program began. It identifies an event of the snapshot.
"""

import collections
import contextlib
import math
import sys
import threading
import weakref

import torch

from . import _device
from ._shapes import shape_line

# Steps that are followed in any case: the first may differ from all others.
MAX_STEPS = 2
# Shapes of inputs with which a further step is followed.
MAX_SHAPES = 16
# Facts that are kept. A program without steps would have ever more; then nothing is followed.
MAX_LINES = 200_000
# How often a storage's count is read in vain; from then on only the end of one of its tensors is noticed.
MAX_READS = 256
# Nodes whose gradients are reduced to the shape of an input, after the node has dropped what it saved: all inputs of
# those that broadcast, and the first of those that add a bias.
_BROADCASTING = {
    f"{name}Backward0"
    for name in "Mul Div Where Pow Atan2 Hypot Fmod Remainder Xlogy Addcmul Addcdiv Lerp Maximum Minimum".split()
}
_ADDING = {"AddmmBackward0", "AddbmmBackward0", "BaddbmmBackward0", "AddmvBackward0"}

_count = getattr(torch._C, "_storage_Use_Count", None)
_hooks = torch._C._autograd
_top_hooks = getattr(_hooks, "_top_saved_tensors_default_hooks", None)
_next_node = _hooks._get_sequence_nr


def is_available():
    """Returns whether this version of PyTorch has the needed functions, such as one that returns whether the program
    has its own hooks."""
    return _count is not None and _top_hooks is not None


class References:
    """Follows the references of one recording. `scope` returns the path of the current module."""

    def __init__(self, scope):
        self._scope = scope
        self._steps = 0
        # The shapes of the inputs of followed steps, but for the first.
        self._shapes = set()
        self._is_wanted = self._is_undecided = False
        self._is_running = False
        self._paused_thread = None
        self._open = {}
        self._storages = {}
        self._reduced = {}
        self._lines = []
        # Of saved tensors and gradients, also in steps that are not followed.
        self._shape_lines = collections.deque(maxlen=MAX_LINES)
        self._wants_shapes = False
        # Why the references of some of the program are not followed.
        self._reasons = {}
        self._own_count = self._argument_count = 0

    def begin_step(self, is_recorded, is_wanted=True, wants_shapes=False):
        """Begins a step. Follows references in the first recorded steps if `is_wanted`, and lists shapes in all steps
        if `wants_shapes`."""
        if is_recorded and not is_wanted:
            self._reasons["the program was recorded with references=False"] = None
        elif is_recorded and not is_available():
            self._reasons["this PyTorch version does not report whether the program has its own hooks"] = None
        elif is_recorded and _device.name() != "cuda":
            self._reasons["the device is not a CUDA device"] = None
        self._wants_shapes = wants_shapes and is_recorded and is_available() and _device.name() == "cuda"
        is_recorded = is_recorded and is_wanted and _device.name() == "cuda"
        can_follow = is_recorded and is_available()
        self._is_wanted = can_follow and self._steps < MAX_STEPS
        self._is_undecided = can_follow and self._steps > 0
        self._steps += is_recorded
        self._reduced.clear()
        if (self._is_wanted or self._wants_shapes) and not self._argument_count:
            self._own_count, self._argument_count = _own_count(), _argument_count()

    def stop(self):
        """Stops following."""
        self._is_wanted = self._is_undecided = self._wants_shapes = False
        # Tensors that live on until PyTorch itself is gone are not followed to their end.
        for storage in self._open.values():
            storage.watches.clear()
        self._open.clear()

    def notes(self):
        """Yields the reason that references were not followed, as a sentence."""
        if self._reasons:
            reasons = "; ".join(self._reasons)
            what = "references to tensors were not all followed, so predictions with recomputed modules are estimates"
            yield f"{what}: {reasons}"

    def devices(self):
        """Returns the devices with recorded facts."""
        return {line[1] for line in self._lines} | {int(line.split(" ", 1)[0]) for line in self._shape_lines}

    def shapes(self):
        """Returns the shapes of saved tensors and gradients, as lines in the format of `_shapes`."""
        return list(self._shape_lines)

    def text(self):
        """Returns the recorded facts, one per line; an empty text if there are none.

            saved DEVICE ADDRESS BYTES PACKED UNPACKED REDUCED RELEASED MODULE
            end DEVICE ADDRESS BYTES POSITION
            input DEVICE ADDRESS BYTES POSITION MODULE

        `saved`: a node created by MODULE saves a tensor at position PACKED, reads it at UNPACKED, and the graph drops
        its reference at RELEASED. If the node reduces gradients to REDUCED bytes each, it no longer needs the tensor by
        then. `end`: from POSITION on, only the graph refers to the storage.
        """
        return "\n".join(" ".join("-" if part is None else str(part) for part in line) for line in self._lines)

    @contextlib.contextmanager
    def forward(self, args, kwargs):
        """Follows the tensors saved during a call with these arguments."""
        self._decide(args, kwargs)
        if not self._can_run():
            yield
            return
        undo = self._push()
        try:
            yield
        finally:
            undo()
            self.poll()

    def enter(self, scope, args, kwargs):
        """Records the tensors among the arguments of a module call."""
        if not self._is_running:
            return
        self.poll()
        for value in (*args, *kwargs.values()):
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                if _is_followed(tensor):
                    with contextlib.suppress(Exception):
                        place = _place(tensor)
                        if place[2] > 0:
                            self._add(["input", *place, _position(place[0]), scope])

    def leave(self, args):
        """Records the storages whose last reference ended in a module, and the arguments to which only the call
        refers."""
        if not self._is_running:
            return
        self.poll()
        for tensor in args:
            if sys.getrefcount(tensor) <= self._argument_count and _is_followed(tensor):
                with contextlib.suppress(Exception):
                    self._end(tensor.untyped_storage()._cdata, 1)

    def backward(self, nodes):
        """Records which nodes of a graph reduce gradients."""
        if not self._is_wanted or not self._storages:
            return
        self.poll()
        for node in nodes:
            sizes = _reduced_sizes(node)
            if sizes:
                self._reduced[node._sequence_nr()] = ",".join(map(str, sizes))

    def note_gradients(self, optimizer):
        """Lists the shapes of the gradients that an optimizer is about to use."""
        if not (self._is_wanted or self._wants_shapes):
            return
        positions = {}
        for gradient in (parameter.grad for group in optimizer.param_groups for parameter in group["params"]):
            if _is_followed(gradient):
                with contextlib.suppress(Exception):
                    device = gradient.device.index
                    if device not in positions:
                        positions[device] = _position(device)
                    self._note_shape(gradient, positions[device])

    def _note_shape(self, tensor, position):
        line = shape_line(tensor, position)
        if line is not None:
            self._shape_lines.append(line)

    def poll(self):
        """Records the storages to which only the graph still refers."""
        for key, storage in list(self._open.items()):
            storage.reads += 1
            if storage.reads <= MAX_READS:
                self._end(key)

    def _end(self, key, others=0):
        """Records the end of a storage if only the graph and `others` further references refer to it."""
        storage = self._open.get(key)
        if storage is None or _count(key) - self._own_count - others > storage.saved:
            return
        if self._open.pop(key, None) is not None:
            storage.watches.clear()
            self._add(["end", *storage.place, _position(storage.place[0])])

    def _add(self, line):
        if len(self._lines) >= MAX_LINES:
            self._is_wanted = False
            self._reasons["a step has too many"] = True
            self._lines.clear()
        if self._is_wanted:
            self._lines.append(line)

    def _decide(self, args, kwargs):
        """Decides at the first call of a step whether to follow the step, which is the case if its inputs have new
        shapes."""
        if not self._is_undecided or not torch.is_grad_enabled():
            return
        self._is_undecided = False
        shapes = _shapes((args, kwargs))
        if shapes not in self._shapes and len(self._shapes) < MAX_SHAPES:
            self._shapes.add(shapes)
            self._is_wanted = len(self._lines) < MAX_LINES // 2

    def _can_run(self):
        is_wanted = self._is_wanted or self._wants_shapes
        if not is_wanted or self._is_running or not torch.is_grad_enabled():
            return False
        reason = _why_not()
        if reason is not None and self._is_wanted:
            self._reasons[reason] = True
        return reason is None

    def _push(self):
        """Begins to save aliases, unless the program forbids hooks or has its own autograd function.

        Such a function finds its saved tensors, with their attributes, only without hooks.
        """
        apply = torch.autograd.Function.__dict__["apply"]
        disable, enable = _hooks._saved_tensors_hooks_disable, _hooks._saved_tensors_hooks_enable

        def run(function, *args, **kwargs):
            is_paused = self._pause()
            if is_paused and self._is_wanted and not function.__module__.startswith("torch."):
                self._reasons[f"the autograd function {function.__name__} keeps its own tensors"] = True
            try:
                return apply.__get__(None, function)(*args, **kwargs)
            finally:
                if is_paused:
                    self._resume()

        def disable_hooks(*args):
            if self._pause():
                self._paused_thread = threading.get_ident()
            return disable(*args)

        def enable_hooks():
            enable()
            if self._paused_thread == threading.get_ident():
                self._paused_thread = None
                self._resume()

        def undo():
            torch.autograd.Function.apply = apply
            _hooks._saved_tensors_hooks_disable, _hooks._saved_tensors_hooks_enable = disable, enable
            self._pause()
            self._is_running = False

        torch.autograd.Function.apply = classmethod(run)
        _hooks._saved_tensors_hooks_disable, _hooks._saved_tensors_hooks_enable = disable_hooks, enable_hooks
        self._resume()
        return undo

    def _pause(self):
        """Removes the hooks if they are the innermost of this thread. Returns whether they were."""
        hooks = _top_hooks(False)
        if hooks is None or hooks[0] != self._pack:
            return False
        _hooks._pop_saved_tensors_default_hooks()
        self._is_running = False
        return True

    def _resume(self):
        _hooks._push_saved_tensors_default_hooks(self._pack, self._unpack)
        self._is_running = True

    def _pack(self, tensor):
        # The data of a parameter may be exchanged until backward, as in sharding, so the graph needs the parameter.
        is_parameter = isinstance(tensor, torch.nn.Parameter) or (tensor.is_leaf and tensor.requires_grad)
        saved = _Saved(tensor if is_parameter else tensor.detach())
        if self._is_running and _is_followed(tensor):
            # Nothing that is unusual about a tensor may end the program.
            with contextlib.suppress(Exception):
                self._follow(tensor, saved, not is_parameter)
        return saved

    def _follow(self, tensor, saved, is_alias):
        self.poll()
        place = _place(tensor)
        if place[2] == 0:
            return
        position = _position(place[0])
        self._note_shape(tensor, position)
        if not self._is_wanted:
            return
        key = tensor.untyped_storage()._cdata
        storage = self._storages.get(key) or _Storage(place)
        line = ["saved", *storage.place, position, None, None, None, self._scope()]
        saved.begin(self, key, storage, line, is_alias)
        self._storages[key] = storage
        self._add(line)
        if is_alias:
            storage.watch(tensor, lambda reference: self._end(key, 1))
            if tensor._base is not None:
                storage.watch(tensor._base, lambda reference: self._end(key, 1))
            self._open[key] = storage

    def _unpack(self, saved):
        tensor = saved.tensor
        if saved.version is not None and tensor._version != saved.version:
            # As PyTorch does without hooks.
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"[{tensor.type()} {list(tensor.shape)}] is at version {tensor._version}; expected version "
                f"{saved.version} instead"
            )
        if saved.storage is not None:
            self._open.pop(saved.key, None)
            saved.line[5] = _position(saved.storage.place[0])
        return tensor

    def _release(self, saved):
        storage = saved.storage
        storage.saved -= saved.is_alias
        if storage.saved == 0:
            self._open.pop(saved.key, None)
            if self._storages.get(saved.key) is storage:
                del self._storages[saved.key]
        saved.line[6] = self._reduced.get(saved.node)
        saved.line[7] = _position(storage.place[0])


class _Storage:
    """A storage that the graph saves, currently by `saved` aliases."""

    __slots__ = ("place", "saved", "reads", "watches")

    def __init__(self, place):
        self.place = place
        self.saved = 0
        self.reads = 0
        # References that call back when one of its tensors ends, which then still refers to the storage.
        self.watches = []

    def watch(self, tensor, call):
        self.reads = 0
        self.watches.append(weakref.ref(tensor, call))


class _Saved:
    """A saved tensor as stored in the graph. `node` is the sequence number of the autograd node."""

    __slots__ = ("tensor", "version", "references", "key", "storage", "line", "node", "is_alias")

    def __init__(self, tensor):
        self.tensor = tensor
        try:
            self.version = tensor._version
        except Exception:  # noqa: BLE001
            # Of a tensor without versions, such as one made in inference mode.
            self.version = None
        self.storage = None

    def begin(self, references, key, storage, line, is_alias):
        self.references, self.key, self.storage, self.line = references, key, storage, line
        self.node, self.is_alias = _next_node() - 1, is_alias
        storage.saved += is_alias

    def __del__(self):
        # At the end of the program, modules may be gone.
        if self.storage is not None:
            with contextlib.suppress(Exception):
                self.references._release(self)


def _shapes(value, depth=0):
    """Returns the shapes and dtypes of the tensors in arguments."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype
    if isinstance(value, (list, tuple, dict)) and depth < 3:
        values = value.values() if isinstance(value, dict) else value
        return tuple(_shapes(one, depth + 1) for one in values)
    return type(value)


def _why_not():
    """Returns the reason that references in the program cannot be followed now; None if they can."""
    functorch = getattr(torch._C, "_functorch", None)
    if _is_compiled():
        return "torch.compile is in use"
    if _top_hooks(False) is not None:
        return "the program has its own hooks for saved tensors, such as those of checkpoint or save_on_cpu"
    if not _hooks._saved_tensors_hooks_is_enabled():
        return "the program does not allow hooks for saved tensors"
    if functorch is not None and functorch.peek_interpreter_stack() is not None:
        return "the program transforms functions with torch.func"
    return "a CUDA graph is captured" if torch.cuda.is_current_stream_capturing() else None


def _is_followed(value):
    try:
        is_plain = isinstance(value, torch.Tensor) and value.is_cuda and value.layout == torch.strided
        return is_plain and not value.is_inference()
    except Exception:  # noqa: BLE001
        # Of a kind of tensor that does not have these.
        return False


def _place(tensor):
    storage = tensor.untyped_storage()
    return tensor.device.index, storage.data_ptr(), storage.nbytes()


def _position(device):
    return torch._C._cuda_memoryStats(device)["allocation"]["all"]["allocated"]


def _own_count():
    """Returns the difference between a storage's reference count and the number of its tensors, for a storage with a
    Python object."""
    tensor = torch.empty(1, device="cpu")
    return _count(tensor.untyped_storage()._cdata) - 1


def _argument_count():
    """Returns the reference count of a call's argument to which only the call refers."""
    callee = _Callee()
    callee(torch.empty(1, device="cpu"))
    return callee.count


class _Callee:
    """A callable that reads the reference count of its argument, and is called in the same way as a module."""

    def __call__(self, /, *args, **kwargs):
        self._read(args)

    def _read(self, args):
        for tensor in args:
            self.count = sys.getrefcount(tensor)


def _reduced_sizes(node):
    """Returns the bytes of the gradients that a node reduces, in order."""
    name = type(node).__name__
    if name not in _BROADCASTING and name not in _ADDING:
        return []
    inputs = node.next_functions if name in _BROADCASTING else node.next_functions[:1]
    sizes = []
    with contextlib.suppress(Exception):
        shape = list(node._input_metadata[0].shape)
        for after, number in inputs:
            entry = after._input_metadata[number] if after is not None else None
            if entry is not None and list(entry.shape) != shape:
                sizes.append(math.prod(entry.shape) * entry.dtype.itemsize)
    return sizes


def _is_compiled():
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    # None is what disables the compiler.
    return any(backend is not None for backend in getattr(dynamo, "cached_backends", {}).values())
