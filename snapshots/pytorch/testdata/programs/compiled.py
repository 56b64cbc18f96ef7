"""A compiled model: frames in code that torch.fx generated, with the model's own lines beside them; compiled regions."""

import torch
import torch.fx.experimental._config

from net import small_net
from saved import save

torch.fx.experimental._config.enrich_profiler_metadata = True
torch.cuda.memory._record_memory_history(stacks="python", compile_context=True)
model = torch.compile(small_net(40, 80).cuda(), backend="aot_eager")
for _ in range(2):
    model(torch.ones(16, 40, device="cuda")).sum().backward()
snapshot = torch.cuda.memory._snapshot(augment_with_fx_traces=True)
save("compiled", counted_since="start", snapshot=snapshot, packed=True)
