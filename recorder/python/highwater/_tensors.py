"""Lists live tensors with their categories and names."""

import torch
from torch.nn.parameter import is_lazy


def parameter_names(roots):
    """Returns the name of each parameter by its `id`. `roots` are pairs of name and module."""
    names = {}
    for prefix, root in roots:
        for name, parameter in root.named_parameters(prefix=prefix):
            names.setdefault(id(parameter), name)
    return names


def live_tensors(roots, optimizers, names):
    """Returns `[address, bytes, category, name]` of parameters, gradients, buffers and optimizer state.

    `names` are those of parameters. A storage is listed once, under the name that comes first.
    """
    rows, seen = [], set()
    for tensor, category, name in _tensors(roots, optimizers, names):
        for storage in _storages(tensor):
            address = storage.data_ptr()
            if address and address not in seen:
                seen.add(address)
                rows.append([address, storage.nbytes(), category, name])
    return rows


def _storages(tensor):
    """The storages of a tensor on a GPU; a sparse tensor has several, one that is not initialized has none."""
    if not isinstance(tensor, torch.Tensor) or not tensor.is_cuda or is_lazy(tensor):
        return []
    # A DTensor has no storage of its own.
    tensor = getattr(tensor, "_local_tensor", tensor)
    if tensor.layout == torch.sparse_coo:
        return [part.untyped_storage() for part in (tensor._indices(), tensor._values())]
    return [tensor.untyped_storage()] if tensor.layout == torch.strided else []


def _tensors(roots, optimizers, names):
    for prefix, root in roots:
        for name, parameter in root.named_parameters(prefix=prefix):
            yield parameter, "parameter", name
            yield parameter.grad, "gradient", name
        for name, buffer in root.named_buffers(prefix=prefix):
            yield buffer, "buffer", name
    for optimizer in optimizers:
        # Also those of parameters that are in no model.
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = names.get(id(parameter), "")
                yield parameter, "parameter", name
                yield parameter.grad, "gradient", name
        for parameter, state in optimizer.state.items():
            for key, tensor in state.items() if isinstance(state, dict) else ():
                yield tensor, "optimizer_state", f"{names.get(id(parameter), '')}.{key}"
