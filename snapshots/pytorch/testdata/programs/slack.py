"""Large blocks are not split when no more than 1 MiB would remain: the program holds more than it asked for."""

import torch

from saved import save

MIB = 1 << 20


def empty(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


torch.cuda.memory._record_memory_history(stacks="python")
whole = empty(11 * MIB + 5)  # a segment of 12 MiB, all of it handed out
del whole
exact = empty(11 * MIB)  # its remainder of 1 MiB is not split off
parts = [empty(n) for n in (7 * MIB, 6 * MIB, 6 * MIB + 4096)]  # the last keeps what is left of 20 MiB
del parts[1]
parts.append(empty(5 * MIB + 1))  # in the hole of 6 MiB: keeps the remainder
parts.append(empty(4 * MIB))
del parts[0], exact
parts.append(empty(5 * MIB))  # splits: 2 MiB remain
del parts[1], parts[0]
parts.append(empty(10 * MIB - 1))
save("slack", counted_since="start")
