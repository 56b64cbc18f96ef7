"""Follows the references to tensors that autograd saves, in the first recorded steps.

A snapshot shows when a block is freed. With activation checkpointing, a module's tensors are freed as soon as the
program itself drops them, long before backward. To predict that, each tensor that the graph saves is replaced by an
alias of the same storage: the storage's reference count then tells when only the graph is left. Counts are read
whenever a tensor is saved and where modules begin and end. Neither values nor allocations change.

Positions are numbers of allocations on a device since the program began: they identify events of the snapshot.
"""

import contextlib
import math
import sys
import weakref

import torch

# Steps that are followed: the first may differ from all others.
MOST_STEPS = 2
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
_next_node = torch._C._autograd._get_sequence_nr


def is_available():
    """Whether this PyTorch has what is needed, such as a way to tell whether the program has hooks of its own."""
    return _count is not None and _top_hooks is not None


class References:
    """The references of one recording. `scope` returns the path of the current module."""

    def __init__(self, scope):
        self._scope = scope
        self._steps = 0
        self._is_wanted = False
        self._is_running = False
        self._open = {}
        self._storages = {}
        self._reduced = {}
        self._lines = []
        self._own_count = _own_count() if is_available() else 0
        self._argument_count = _argument_count()

    def begin_step(self, is_recorded):
        """Begins a step; the first recorded ones are followed."""
        self._is_wanted = is_recorded and self._steps < MOST_STEPS and is_available()
        self._steps += is_recorded

    def stop(self):
        """Follows nothing any more."""
        self._is_wanted = False

    def text(self):
        """Returns one line for each fact, or an empty text.

            saved DEVICE ADDRESS BYTES PACKED UNPACKED REDUCED RELEASED MODULE
            end DEVICE ADDRESS BYTES POSITION
            input DEVICE ADDRESS BYTES POSITION MODULE

        A node of the graph that MODULE made saves a tensor at PACKED, reads it at UNPACKED, and at RELEASED the graph's
        reference ends. The node needs it no more when it reduces gradients, which then have REDUCED bytes each. From
        `end` on, only the graph refers to a storage.
        """
        return "\n".join(" ".join("-" if part is None else str(part) for part in line) for line in self._lines)

    @contextlib.contextmanager
    def forward(self):
        """Follows what is saved within."""
        if not self._can_run():
            yield
            return
        _hooks._push_saved_tensors_default_hooks(self._pack, self._unpack)
        disable = torch.autograd.graph.disable_saved_tensors_hooks
        torch.autograd.graph.disable_saved_tensors_hooks = self._without_hooks(disable)
        self._is_running = True
        try:
            yield
        finally:
            self._is_running = False
            torch.autograd.graph.disable_saved_tensors_hooks = disable
            _hooks._pop_saved_tensors_default_hooks()
            self.poll()

    def enter(self, scope, args, kwargs):
        """Notes the tensors that a module is called with."""
        if not self._is_running:
            return
        self.poll()
        for value in (*args, *kwargs.values()):
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                if _is_followed(tensor) and tensor.numel() > 0:
                    with contextlib.suppress(Exception):
                        self._lines.append(("input", *_place(tensor), _position(tensor.device.index), scope))

    def leave(self, args):
        """Notes what ended in a module, and those of its arguments to which nothing but the call refers."""
        if not self._is_running:
            return
        self.poll()
        for tensor in args:
            if sys.getrefcount(tensor) <= self._argument_count and _is_followed(tensor):
                with contextlib.suppress(Exception):
                    self._end(tensor.untyped_storage()._cdata, 1)

    def backward(self, nodes):
        """Notes which nodes of a graph reduce gradients."""
        if not self._storages:
            return
        self.poll()
        for node in nodes:
            sizes = _reduced_sizes(node)
            if sizes:
                self._reduced[node._sequence_nr()] = ",".join(map(str, sizes))

    def poll(self):
        """Notes the storages to which only the graph refers by now."""
        for key in list(self._open):
            self._end(key)

    def _end(self, key, others=0):
        """Ends a storage if the graph and `others` alone refer to it."""
        storage = self._open.get(key)
        if storage is not None and _count(key) - self._own_count - others <= storage.saved:
            del self._open[key]
            storage.watches.clear()
            self._lines.append(("end", *storage.place, _position(storage.place[0])))

    def _can_run(self):
        if not self._is_wanted or self._is_running or _is_compiled() or torch.cuda.is_current_stream_capturing():
            return False
        if _top_hooks(False) is not None:
            # The program has hooks of its own, such as `save_on_cpu`.
            return False
        functorch = getattr(torch._C, "_functorch", None)
        return functorch is None or functorch.peek_interpreter_stack() is None

    def _without_hooks(self, disable):
        """Returns `disable`, for `torch.func` within the program, such that it does not find this recording's hooks."""

        @contextlib.contextmanager
        def run(message):
            hooks = _top_hooks(False)
            if hooks is None or hooks[0] != self._pack:
                # Another thread, or hooks of the program's own.
                with disable(message):
                    yield
                return
            _hooks._pop_saved_tensors_default_hooks()
            self._is_running = False
            try:
                with disable(message):
                    yield
            finally:
                self._is_running = True
                _hooks._push_saved_tensors_default_hooks(self._pack, self._unpack)

        return run

    def _pack(self, tensor):
        # What a parameter holds may be exchanged until backward, as sharding does: the graph needs the parameter itself.
        alias = tensor if tensor.is_leaf and tensor.requires_grad else tensor.detach()
        if self._is_running and _is_followed(tensor):
            # Nothing that is unusual about a tensor may end the program.
            with contextlib.suppress(Exception):
                return self._saved(tensor, alias)
        return alias

    def _saved(self, tensor, alias):
        self.poll()
        key = alias.untyped_storage()._cdata
        storage = self._storages.get(key)
        if storage is None:
            place = _place(alias)
            if place[2] == 0:
                return alias
            storage = self._storages[key] = _Storage(place)
        if alias is not tensor:
            storage.saved += 1
            self._open[key] = storage
            self._watch(tensor, key, storage)
            if tensor._base is not None:
                self._watch(tensor._base, key, storage)
        line = ["saved", *storage.place, _position(storage.place[0]), None, None, None, self._scope()]
        self._lines.append(line)
        return _Saved(alias, alias is not tensor, key, storage, line, _next_node() - 1, self)

    def _watch(self, tensor, key, storage):
        # When it is called, the tensor still refers to the storage.
        storage.watches.append(weakref.ref(tensor, lambda reference: self._end(key, 1)))

    def _unpack(self, saved):
        if not isinstance(saved, _Saved):
            return saved
        if saved.tensor._version != saved.version:
            # As PyTorch does without hooks.
            kind, shape = saved.tensor.type(), list(saved.tensor.shape)
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"[{kind} {shape}] is at version {saved.tensor._version}; expected version {saved.version} instead"
            )
        self._open.pop(saved.key, None)
        saved.line[5] = _position(saved.storage.place[0])
        return saved.tensor

    def _release(self, saved):
        storage = saved.storage
        storage.saved -= saved.is_alias
        saved.line[6] = self._reduced.get(saved.node)
        saved.line[7] = _position(storage.place[0])
        if storage.saved == 0:
            self._open.pop(saved.key, None)
            if self._storages.get(saved.key) is storage:
                del self._storages[saved.key]


class _Storage:
    """A storage that the graph saves: `saved` times now."""

    __slots__ = ("place", "saved", "watches")

    def __init__(self, place):
        self.place = place
        self.saved = 0
        # References that call back when one of its tensors ends.
        self.watches = []


class _Saved:
    """A saved tensor, as the graph holds it. `node` is the number of the node."""

    __slots__ = ("tensor", "is_alias", "version", "key", "storage", "line", "node", "references")

    def __init__(self, tensor, is_alias, key, storage, line, node, references):
        self.tensor, self.is_alias = tensor, is_alias
        self.key, self.storage, self.line = key, storage, line
        self.version, self.node, self.references = tensor._version, node, references

    def __del__(self):
        # At the end of the program, modules may be gone.
        with contextlib.suppress(Exception):
            self.references._release(self)


def _is_followed(tensor):
    is_plain = isinstance(tensor, torch.Tensor) and tensor.is_cuda and tensor.layout == torch.strided
    return is_plain and not tensor.is_inference()


def _place(tensor):
    storage = tensor.untyped_storage()
    return tensor.device.index, storage.data_ptr(), storage.nbytes()


def _position(device):
    return torch._C._cuda_memoryStats(device)["allocation"]["all"]["allocated"]


def _own_count():
    """Returns what a storage's count is beyond the number of its tensors, once Python has seen the storage."""
    tensor = torch.empty(1)
    return _count(tensor.untyped_storage()._cdata) - 1


def _argument_count():
    """Returns the reference count of an argument of a call that nobody but the call refers to."""
    callee = _Callee()
    callee(torch.empty(1))
    return callee.count


class _Callee:
    """Called as a module is."""

    def __call__(self, /, *args, **kwargs):
        self._read(args)

    def _read(self, args):
        for tensor in args:
            self.count = sys.getrefcount(tensor)


def _reduced_sizes(node):
    """The bytes of the gradients that a node reduces, in their order."""
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
