"""Walks graphs of autograd, and knows which thread made a node."""

import torch

_Leaf = torch._C._functions.AccumulateGrad
# Operators whose output may be on another device than their input.
_COPIES = ("ToCopyBackward0", "CopyBackwards")
# The key of a node's metadata under which the thread that made it is.
_OWNER = "highwater_thread"


def node_of(output):
    """Returns the node that made a tensor or is a gradient edge's; None if there is none."""
    return output.grad_fn if isinstance(output, torch.Tensor) else getattr(output, "node", None)


def graph(outputs, known=()):
    """Returns the nodes of the graph that made `outputs`, without leaves and `known` nodes."""
    seen = set(known)
    rows = []
    for output in outputs:
        node = node_of(output)
        if node is not None and type(node) is not _Leaf and node not in seen:
            seen.add(node)
            rows.append(node)
    for node in rows:
        for after, _ in node.next_functions:
            if after is not None and after not in seen and type(after) is not _Leaf:
                seen.add(after)
                rows.append(after)
    return rows


def leaves(outputs):
    """Returns the nodes that accumulate the gradients of those `outputs` that are leaves."""
    tensors = (output for output in outputs if isinstance(output, torch.Tensor))
    alone = (tensor for tensor in tensors if tensor.grad_fn is None and tensor.requires_grad)
    return [torch.autograd.graph.get_gradient_edge(tensor).node for tensor in alone]


def copies_to_cpu(nodes):
    """Whether one of `nodes` copied a tensor to the CPU: its backward runs on another thread than the others'."""
    kinds = {kind for kind in set(map(type, nodes)) if kind.__name__ in _COPIES}
    copies = [node for node in nodes if type(node) in kinds] if kinds else []
    inputs = (entry for node in copies for entry in getattr(node, "_input_metadata", None) or ())
    return any(getattr(entry, "device", None) == torch.device("cpu") for entry in inputs)


def set_owner(nodes, thread):
    """Notes that `thread` made `nodes`."""
    for node in nodes:
        node.metadata.setdefault(_OWNER, thread)


def owner(node):
    """Returns the thread that `set_owner` noted, or None."""
    return node.metadata.get(_OWNER)
