"""What programs mark: record_function, the profiler's steps, the optimizer's own; and the forward stack of a backward."""

import torch
from torch.autograd.profiler import record_function

from net import small_net
from saved import save

torch.cuda.memory._record_memory_history(stacks="python")
torch.autograd.set_detect_anomaly(True, check_nan=False)
model = small_net(64, 256).cuda()
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for step in range(2):
    with record_function(f"ProfilerStep#{step}"):
        with record_function("## forward ##"):
            loss = model(torch.ones(16, 64, device="cuda")).square().mean()
        with record_function("## backward ##"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss
torch.autograd.profiler.record_function("begun and never ended").__enter__()
save("annotations", counted_since="start", packed=True)
