"""Lists shapes and dtypes of tensors that fill their storages.

A line has the device, the address and the bytes of a storage, and a tensor that fills it:

    0 140737488355328 131072 77 [32, 1024] float32

77 is the number of allocations on the device up to that time; `-` stands for the time of the snapshot.
"""

import contextlib
import gc
import itertools

import torch

from ._tensors import storages


def shape_text(tensor):
    """Returns shape and dtype as text, such as `[32, 1024] float32`."""
    return f"{list(tensor.shape)} {tensor.dtype}".replace("torch.", "", 1)


def shape_line(tensor, position):
    """Returns the line of a tensor; None if it does not fill its storage."""
    # A view has the memory of its base. Of a DTensor, this device has a part.
    tensor = getattr(tensor, "_local_tensor", tensor)
    tensor = tensor if tensor._base is None else tensor._base
    for storage in storages(tensor):
        address, size = storage.data_ptr(), storage.nbytes()
        if address and tensor.numel() * tensor.element_size() == size:
            return f"{tensor.device.index} {address} {size} {position} {shape_text(tensor)}"
    return None


def live_shapes(tensors):
    """Returns the lines of `tensors` and of all other tensors with a Python object, each once."""
    others = (one for one in gc.get_objects() if issubclass(type(one), torch.Tensor))
    lines = {}
    for tensor in itertools.chain(tensors, others):
        # A subclass may override what tells its memory.
        with contextlib.suppress(Exception):
            lines[shape_line(tensor, "-")] = None
    return [line for line in lines if line is not None]
