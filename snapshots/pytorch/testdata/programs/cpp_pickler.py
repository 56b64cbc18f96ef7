"""The snapshot as C++ pickles it for on-demand tools: protocol 2, one batch of any length, texts shared by value."""

import torch
from torch.autograd.profiler import record_function

from net import small_net, training_step
from saved import cpp_pickled, save, write

torch.cuda.memory._record_memory_history(stacks="python")
model = small_net(20, 50).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with record_function("steps"):
    for _ in range(60):
        training_step(model, optimizer, torch.ones(8, 20, device="cuda"))
write("cpp_pickler", cpp_pickled(), counted_since="start", packed=True)
save("cpp_pickler_twin", counted_since="start", packed=True)
