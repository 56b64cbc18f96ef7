"""Stacks with the frames of C++ between Python's, and the same recording as C++ pickles it (protocol 2)."""

import torch

from saved import cpp_pickled, save, write

torch.cuda.memory._record_memory_history(stacks="all")
model = torch.nn.Linear(300, 700).cuda()
model(torch.ones(40, 300, device="cuda")).sum().backward()
save("cpp_stacks", counted_since="start", packed=True)
write("cpp_pickler_stacks", cpp_pickled(), counted_since="start", packed=True)
