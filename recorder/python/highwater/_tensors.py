"""Lists live tensors with their categories and names."""

import torch
from torch.nn.parameter import is_lazy

from . import _device


def parameter_names(trees):
    """Returns the full name of each parameter, by `id`: the name of its module and its own name."""
    named = {}
    for tree in trees:
        for module, name in tree:
            for own, parameter in module._parameters.items():
                named.setdefault(id(parameter), f"{name}.{own}".lstrip("."))
    return named


def live_tensors(trees, optimizers, named):
    """Returns `[address, bytes, category, name]` of parameters, gradients, buffers and optimizer state.

    `trees` are the modules of each model with their names; `named` contains the names of parameters. A storage is listed
    once, under the first of its names.
    """
    rows, seen = [], set()
    for tensor, category, name in model_tensors(trees, optimizers, named):
        for storage in storages(tensor):
            address = storage.data_ptr()
            if address and address not in seen:
                seen.add(address)
                rows.append([address, storage.nbytes(), category, name])
    return rows


def storages(tensor):
    """Returns the storages of a tensor on a GPU. A sparse tensor has several; a tensor without memory, such as the
    compiler's, has none."""
    if not isinstance(tensor, torch.Tensor) or not _device.has(tensor) or is_lazy(tensor):
        return []
    # A DTensor has no storage of its own.
    tensor = getattr(tensor, "_local_tensor", tensor)
    if tensor.layout == torch.sparse_coo:
        return [part.untyped_storage() for part in (tensor._indices(), tensor._values())]
    storage = tensor.untyped_storage() if tensor.layout == torch.strided else None
    # The compiler's fake tensors are on a GPU, their storages are not; to ask for their addresses warns the program.
    return [storage] if storage is not None and storage.device.type != "meta" else []


def model_tensors(trees, optimizers, named):
    """Yields parameters, gradients, buffers and optimizer state with category and name. Yields None for those that do
    not exist."""
    for tree in trees:
        for module, owner in tree:
            for parameter in module._parameters.values():
                if parameter is not None:
                    yield parameter, "parameter", named[id(parameter)]
                    yield parameter.grad, "gradient", named[id(parameter)]
            for own, buffer in module._buffers.items():
                yield buffer, "buffer", f"{owner}.{own}".lstrip(".")
    for optimizer in optimizers:
        # Also those of parameters that are in no model.
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = named.get(id(parameter), "")
                yield parameter, "parameter", name
                yield parameter.grad, "gradient", name
        for parameter, state in optimizer.state.items():
            for key, tensor in state.items() if isinstance(state, dict) else ():
                # The last dot separates the two.
                own = str(key).replace(".", "_")
                yield tensor, "optimizer_state", f"{named.get(id(parameter), '')}.{own}"
