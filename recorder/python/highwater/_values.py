"""Computes small tensors of the simulated GPU on the host, so that a program's loops and branches run as on a GPU.

The dispatch mode changes PyTorch's allocations. It is therefore active only in a first run, which writes the values
that the program reads from the device to a file. The recorded run gets these values from the file.

Each small tensor has a shadow copy on the host; large tensors have none. Values that depend on large tensors are
assumed to be zero, or one for `highwater simulate --bounds`. Computations use these values, but mark them as unknown.
"""

import contextlib
import ctypes
import os

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

# Whether unknown values are assumed to be one.
_ASSUMES_ONES = "HIGHWATER_SIMULATE_ASSUMES_ONES"
# Larger storages have no shadow. Branches depend on masks, positions and sizes rather than on numbers with a fraction.
_MAX_BYTES = 1 << 16
_MAX_BYTES_OF_INTEGERS = 1 << 20
# Operators that give the host a value of the device: as many bytes as the tensor has.
_READS = {"aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::_to_copy", "aten::copy_"}
# Operators that give the host a size, which depends on values.
_SIZES = {"aten::nonzero", "aten::masked_select", "aten::index", "aten::_unique2", "aten::repeat_interleave"}
# Operators that overwrite a tensor, whatever it was.
_OVERWRITES = {"aten::copy_", "aten::fill_", "aten::zero_"}
# Operators whose results have no values.
_EMPTY = {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided"}


class Values(TorchDispatchMode):
    """A dispatch mode that computes small tensors on the host. `library` is the simulated GPU, which returns the values
    to the program."""

    def __init__(self, library):
        super().__init__()
        self._answer = library.highwater_simulate_answer
        self._answer.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
        self._contents = library.highwater_simulate_contents
        self._contents.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        # By address of the storage: its size, its shadow, and whether that is known.
        self._shadows = {}
        self._assumes_ones = bool(os.environ.get(_ASSUMES_ONES))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
        inputs = [tensor for tensor in tensors if tensor.is_cuda]
        target = kwargs.get("device")
        if not inputs and (target is None or torch.device(target).type != "cuda"):
            return func(*args, **kwargs)
        name = func._schema.name
        if name == "aten::lift_fresh":
            # Made outside of this mode, where another tensor may have been.
            self._shadows.pop(inputs[0].untyped_storage().data_ptr(), None)
        is_plain = all(type(tensor) in (torch.Tensor, torch.nn.Parameter) for tensor in inputs)
        result, is_known = None, False
        if is_plain and name not in _EMPTY:
            is_small = all(_is_small(tensor) for tensor in inputs)
            sources = inputs[1:] if name in _OVERWRITES else inputs
            is_known = is_small and all(self._is_known(tensor) for tensor in sources)
            if is_small:
                result = self._compute(func, args, kwargs)
            self._answer_read(name, args, kwargs, inputs, result, is_known)
        out = func(*args, **kwargs)
        outputs = [value for value in tree_flatten(out)[0] if isinstance(value, torch.Tensor) and value.is_cuda]
        if func._schema.is_mutable:
            self._note_changed(func, args, kwargs, result is not None, is_known)
        else:
            self._note_made(inputs, outputs, result, is_known)
        return out

    def _compute(self, func, args, kwargs):
        """Returns the result on the host; None if it cannot be computed there. An in-place operator changes the
        shadows."""

        def on_host(value):
            if isinstance(value, torch.Tensor) and value.is_cuda:
                return self._shadow(value)
            if isinstance(value, torch.device) and value.type == "cuda":
                return torch.device("cpu")
            return value

        state = torch.get_rng_state() if torch.Tag.nondeterministic_seeded in func.tags else None
        try:
            generator = {"generator": None} if kwargs.get("generator") is not None else {}
            result = func(*tree_map(on_host, args), **{**tree_map(on_host, kwargs), **generator})
            return () if result is None else result
        except Exception:  # noqa: BLE001
            # Of an operator that the host lacks.
            return None
        finally:
            if state is not None:
                torch.set_rng_state(state)

    def _answer_read(self, name, args, kwargs, inputs, result, is_known):
        value = None
        if name in _SIZES:
            first = tree_flatten(result)[0] if result is not None else []
            if first and isinstance(first[0], torch.Tensor):
                value = int(first[0].shape[0]).to_bytes(8, "little")
            elif self._assumes_ones and name != "aten::repeat_interleave":
                # All elements of the mask, or of the tensor that it is asked of.
                masks = [tensor for tensor in inputs if tensor.dtype in (torch.bool, torch.uint8)]
                value = (masks or inputs)[0].numel().to_bytes(8, "little")
        elif name in _READS and inputs and not _is_on_device(args, kwargs, name):
            with contextlib.suppress(Exception):
                source = inputs[-1]
                value = bytes(self._shadow(source).contiguous().flatten().view(torch.uint8).tolist())
        # Also without a value, so that no later read gets one of this operator, which may not read at all.
        value = value or b""
        self._answer(value, len(value), int(is_known))

    def _note_changed(self, func, args, kwargs, is_computed, is_known):
        for argument, value in zip(func._schema.arguments, args):
            if argument.is_write:
                for tensor in tree_flatten(value)[0]:
                    if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
                        self._note(tensor, is_computed and is_known)
        out = kwargs.get("out")
        if isinstance(out, torch.Tensor) and out.is_cuda:
            self._note(out, is_computed and is_known)

    def _note_made(self, inputs, outputs, result, is_known):
        sources = {tensor.untyped_storage().data_ptr() for tensor in inputs}
        values = [] if result is None else tree_flatten(result)[0]
        values = [value for value in values if isinstance(value, torch.Tensor)]
        for row, output in enumerate(outputs):
            if output.untyped_storage().data_ptr() in sources or not _is_small(output):
                # A view has the shadow of the viewed tensor.
                continue
            storage = output.untyped_storage()
            size = storage.nbytes()
            self._shadows[storage.data_ptr()] = size, torch.zeros(size, dtype=torch.uint8), False
            shadow = self._shadow(output)
            has_value = len(values) == len(outputs) and values[row].shape == output.shape
            with contextlib.suppress(Exception):
                if has_value:
                    shadow.copy_(values[row])
                elif self._assumes_ones:
                    shadow.fill_(1)
            self._note(output, has_value and is_known)

    def _shadow(self, tensor):
        """Returns the shadow of a tensor, as a view of the shadow of its storage."""
        storage = tensor.untyped_storage()
        size, flat, _ = self._shadows.get(storage.data_ptr(), (None, None, False))
        if size != storage.nbytes():
            # Values copied there from the host are known; others are assumed to be zero.
            buffer = ctypes.create_string_buffer(max(storage.nbytes(), 1))
            is_known = self._contents(storage.data_ptr(), buffer, storage.nbytes()) == 1
            flat = torch.frombuffer(bytearray(buffer.raw), dtype=torch.uint8)[: storage.nbytes()]
            self._shadows[storage.data_ptr()] = storage.nbytes(), flat, is_known
            if self._assumes_ones and not is_known:
                self._shadow(tensor).fill_(1)
        whole = flat[: flat.numel() // tensor.element_size() * tensor.element_size()].view(tensor.dtype)
        return whole.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    def _is_known(self, tensor):
        self._shadow(tensor)
        return self._shadows[tensor.untyped_storage().data_ptr()][2] or tensor.untyped_storage().nbytes() == 0

    def _note(self, tensor, is_known):
        storage = tensor.untyped_storage()
        if storage.data_ptr() in self._shadows:
            size, flat, _ = self._shadows[storage.data_ptr()]
            self._shadows[storage.data_ptr()] = size, flat, is_known


def _is_small(tensor):
    most = _MAX_BYTES if tensor.is_floating_point() or tensor.is_complex() else _MAX_BYTES_OF_INTEGERS
    return tensor.layout == torch.strided and tensor.untyped_storage().nbytes() <= most


def _is_on_device(args, kwargs, name):
    """Returns whether the copied value stays on the device."""
    if name == "aten::_to_copy":
        target = kwargs.get("device")
        return target is None or torch.device(target).type == "cuda"
    return name == "aten::copy_" and args[0].is_cuda
