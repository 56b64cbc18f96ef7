"""The rank of this process, and the number of ranks."""

import os
import sys

# In which launchers pass both: torchrun, Open MPI, MPICH and Intel MPI, MVAPICH, Slurm.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
# Those of the process group, which the program may have ended since; a process that was forked off has none.
_of_group = None
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: globals().update(_of_group=None))


def rank_and_size():
    """Returns the rank and the number of ranks, from the process group or the launcher; (0, 1) without either."""
    global _of_group
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        _of_group = distributed.get_rank(), distributed.get_world_size()
    if _of_group is not None:
        return _of_group
    for names in _LAUNCHERS:
        numbers = [os.environ.get(name, "") for name in names]
        if all(number.isdecimal() for number in numbers):
            return tuple(map(int, numbers))
    return 0, 1
