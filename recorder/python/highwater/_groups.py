"""Passes the ranks of process groups to the simulated NCCL. The real NCCL queries the other ranks."""

import functools
import sys

# Of `ncclCommSplit`: no color.
_NEXT = -1


def replace_function(original, replacement):
    """Replaces a function of `torch.distributed`, including in modules that have imported it by name."""
    for name, module in list(sys.modules.items()):
        attributes = getattr(module, "__dict__", {}) if name.startswith("torch.distributed") else {}
        if attributes.get(original.__name__) is original:
            setattr(module, original.__name__, replacement)


def note_groups(torch, library):
    """Makes PyTorch report each group to the simulated NCCL before it splits a communicator for the group."""
    distributed = torch.distributed
    c10d = distributed.distributed_c10d
    note = library.highwater_simulate_split

    def before(name, function):
        original = getattr(c10d, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def noting(*args, **kwargs):
            function(*args, **kwargs)
            result = original(*args, **kwargs)
            if name == "_process_group_color":
                note_color(result, *args)
            return result

        replace_function(original, noting)

    def note_color(color, ranks):
        rank = distributed.get_rank()
        note(color, len(ranks), list(ranks).index(rank) if rank in ranks else 0)

    def note_split(parent=None, split_ranks=None, *_, parent_pg=None, **__):
        # Ranks are those of the parent.
        rank = distributed.get_rank(parent or parent_pg)
        for ranks in split_ranks or ():
            if rank in ranks:
                note(_NEXT, len(ranks), list(ranks).index(rank))

    def noting_split(split):
        @functools.wraps(split)
        def noting(group, store, ranks, *args):
            if group.rank() in ranks:
                note(_NEXT, len(ranks), list(ranks).index(group.rank()))
            return split(group, store, ranks, *args)

        return noting

    before("split_group", note_split)
    before("_process_group_color", lambda *_: None)
    for name in ("ProcessGroupNCCL2", "ProcessGroupNCCLLazy"):
        kind = getattr(c10d, name, None)
        if hasattr(kind, "split"):
            kind.split = noting_split(kind.split)
