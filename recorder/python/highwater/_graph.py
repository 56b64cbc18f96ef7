"""Walks autograd graphs, and stores the thread that created a node."""

import torch

_Leaf = torch._C._functions.AccumulateGrad
# Operators whose output may be on another device than their input.
_COPIES = ("ToCopyBackward0", "CopyBackwards")
# The key of a node's metadata under which the thread that made it is.
_OWNER = "highwater_thread"


def node_of(output):
    """Returns the autograd node that produced a tensor, or the node of a gradient edge; None if there is none."""
    return output.grad_fn if isinstance(output, torch.Tensor) else getattr(output, "node", None)


def graph(outputs, known=()):
    """Returns the nodes of the graph that computed `outputs`, without leaves and `known` nodes."""
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
    """Returns the nodes that accumulate the gradients of leaves among `outputs`."""
    tensors = (output for output in outputs if isinstance(output, torch.Tensor))
    alone = (tensor for tensor in tensors if tensor.grad_fn is None and tensor.requires_grad)
    return [torch.autograd.graph.get_gradient_edge(tensor).node for tensor in alone]


def copies_to_cpu(nodes):
    """Returns whether one of `nodes` copied a tensor to the CPU. Its backward then runs on a different thread than that
    of the others."""
    kinds = {kind for kind in set(map(type, nodes)) if kind.__name__ in _COPIES}
    copies = [node for node in nodes if type(node) in kinds] if kinds else []
    inputs = (entry for node in copies for entry in getattr(node, "_input_metadata", None) or ())
    return any(getattr(entry, "device", None) == torch.device("cpu") for entry in inputs)


def set_owner(nodes, thread):
    """Stores that `thread` created `nodes`."""
    for node in nodes:
        node.metadata.setdefault(_OWNER, thread)


def owner(node):
    """Returns the thread stored by `set_owner`, or None."""
    return node.metadata.get(_OWNER)
