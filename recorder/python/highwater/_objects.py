"""Collectives of Python objects between ranks on simulated GPUs.

PyTorch sends the bytes of objects through device memory, which has no contents here. The functions below send them
through the store of the process group instead, and allocate on the device what PyTorch allocates for them. A rank that
runs without the other ranks assumes that they have the same objects.
"""

import collections
import functools
import pickle

from ._groups import replace_function


class Objects:
    """Replaces functions of `torch.distributed`. `is_alone` is whether the other ranks are not running as processes."""

    def __init__(self, torch, is_alone):
        self._torch, self._c10d, self._is_alone = torch, torch.distributed.distributed_c10d, is_alone
        # How many times each kind of exchange was made, by its key: all ranks count alike.
        self._exchanges = collections.Counter()

    def replace(self):
        """Replaces PyTorch's functions by those of this class."""
        names = ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list")
        for name in (*names, "send_object_list", "recv_object_list"):
            original = getattr(self._c10d, name)
            replace_function(original, self._replaced(original, getattr(self, name)))

    def _replaced(self, original, function):
        @functools.wraps(original)
        def collective(objects, *args, group=None, device=None, **options):
            # Between processes of the host, PyTorch's own function works.
            on = device or self._c10d._get_object_coll_device(group)
            if self._torch.device(on).type != "cuda" or self._c10d._rank_not_in_group(group):
                given = {} if device is None else {"device": device}
                return original(objects, *args, group=group, **given, **options)
            return function(objects, *args, group=group, device=on, **options)

        return collective

    # The functions, with PyTorch's parameters. Options such as `weights_only` change nothing that is allocated.

    def all_gather_object(self, objects, obj, group, device, **_):
        parts = self._exchange(group, pickle.dumps(obj))
        self._allocate(device, max(map(len, parts)), len(parts))
        objects[:] = map(pickle.loads, parts)

    def gather_object(self, obj, objects=None, dst=None, group=None, device=None, group_dst=None, **options):
        objects = options.get("object_gather_list", objects)
        is_target = self._is_mine(group, dst, group_dst)
        parts = self._exchange(group, pickle.dumps(obj))
        self._allocate(device, max(map(len, parts)), len(parts) if is_target else 0)
        if is_target:
            objects[:] = map(pickle.loads, parts)

    def broadcast_object_list(self, objects, src=None, group=None, device=None, group_src=None, **_):
        parts = self._exchange(group, pickle.dumps(objects))
        if not self._is_mine(group, src, group_src):
            objects[:] = pickle.loads(parts[self._number(group, src, group_src)])
        self._allocate(device, sum(len(pickle.dumps(obj)) for obj in objects), 0)

    def scatter_object_list(self, output, objects=None, src=None, group=None, device=None, group_src=None, **options):
        objects = options.get("scatter_object_input_list", objects)
        parts = self._exchange(group, pickle.dumps(objects))
        scattered = pickle.loads(parts[self._number(group, src, group_src)]) or [None] * len(parts)
        largest = max(len(pickle.dumps(obj)) for obj in scattered)
        self._allocate(device, largest, len(parts) if self._is_mine(group, src, group_src) else 0)
        output[0] = scattered[self._torch.distributed.get_rank(group)]

    def send_object_list(self, objects, dst=None, group=None, device=None, group_dst=None, **_):
        target = self._number(group, dst, group_dst)
        part = pickle.dumps(objects)
        if not self._is_alone:
            mine = self._torch.distributed.get_rank(group)
            self._store().set(self._key(group, f"from {mine} to {target}"), part)
        self._allocate(device, len(part), 0)

    def recv_object_list(self, objects, src=None, group=None, device=None, group_src=None, **_):
        source = self._number(group, src, group_src)
        if not self._is_alone:
            mine = self._torch.distributed.get_rank(group)
            objects[:] = pickle.loads(self._store().get(self._key(group, f"from {source} to {mine}")))
        self._allocate(device, len(pickle.dumps(objects)), 0)
        return self._torch.distributed.get_process_group_ranks(group or self._c10d._get_default_group())[source]

    # Their common properties.

    def _exchange(self, group, part):
        """Returns the bytes of each rank in the group."""
        ranks = self._torch.distributed.get_world_size(group)
        if self._is_alone:
            return [part] * ranks
        key = self._key(group, "all")
        self._store().set(f"{key}/{self._torch.distributed.get_rank(group)}", part)
        return [self._store().get(f"{key}/{rank}") for rank in range(ranks)]

    def _key(self, group, what):
        ranks = self._torch.distributed.get_process_group_ranks(group or self._c10d._get_default_group())
        # Groups of the same ranks may have other objects, in the same order on each rank.
        key = f"highwater/objects/{'-'.join(map(str, ranks))}/{what}"
        self._exchanges[key] += 1
        return f"{key}/{self._exchanges[key]}"

    def _store(self):
        return self._c10d._get_default_store()

    def _number(self, group, of_all, of_group):
        """Returns the number of a rank within its group, given the global rank or the group rank; 0 if both are
        None."""
        if of_group is not None:
            return of_group
        return self._torch.distributed.get_group_rank(group or self._c10d._get_default_group(), of_all or 0)

    def _is_mine(self, group, of_all, of_group):
        return self._torch.distributed.get_rank(group) == self._number(group, of_all, of_group)

    def _allocate(self, device, largest, gathered):
        """Allocates the tensors that PyTorch needs at the same time: an object, the sizes, and the gathered objects."""
        torch = self._torch
        sizes = ((largest, torch.uint8), (max(gathered, 1), torch.long), (largest * gathered, torch.uint8))
        tensors = [torch.empty(size, dtype=dtype, device=device) for size, dtype in sizes]
        del tensors
