"""`highwater simulate`: the stock PyTorch on the simulated GPU, started by the binary as users do it."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

TRAINING = """
import sys, torch
model = torch.nn.Sequential(torch.nn.Linear(1000, 1000), torch.nn.ReLU(), torch.nn.Linear(1000, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(int(sys.argv[1])):
    loss = model(torch.randn(64, 1000, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
"""


def test_a_program_runs_unchanged_for_three_steps_and_its_peaks_are_pytorchs_own(simulate, tmp_path):
    done = simulate(TRAINING, "--gpu", "4090", arguments=["10"])
    assert done.returncode == 0, done.stderr
    answer = done.answer
    steps = [line.split() for line in done.stderr.splitlines() if line.startswith("step ")]
    assert [step[1] for step in steps] == ["0", "1", "2"], "the program is ended after three steps"
    allocated, reserved = map(int, steps[-1][2:])
    assert (answer["peaks"]["allocated"], answer["peaks"]["reserved"]) == (allocated, reserved)
    assert (answer["fits"], answer["gpu"]) == (True, "NVIDIA GeForce RTX 4090")
    assert (answer["steps"], answer["stopped"]) == (3, True)
    # What may depend on values is named by its line.
    assert (answer["accuracy"], answer["same_with_ones"]) == ("exact", None)
    assert answer["depends_on_values"] == [] and not answer["requested_is_lower_bound"]
    assert answer["file"] == str(tmp_path / "train.snap") and (tmp_path / "train.snap").is_file()
    # cuBLAS has its workspace for a compute capability of 8.9.
    assert answer["peaks"]["requested"] > 8_519_680
    again = simulate(TRAINING, "--gpu", "4090", arguments=["10"]).answer
    assert again["peaks"] == answer["peaks"], "a second run is equal"


def test_the_recording_has_modules_and_says_that_it_was_simulated(simulate, tmp_path):
    import highwater

    simulate(TRAINING, "--gpu", "h100", arguments=["3"])
    snapshot = highwater.Snapshot(tmp_path / "train.snap")
    scopes = {group["key"] for group in snapshot.peak(by="scope")["groups"]}
    assert {"0", "2"} <= scopes
    assert any(note.startswith("simulated: ") and "H100" in note for note in snapshot.info()["notes"])


def test_a_program_that_does_not_fit_ends_as_on_a_gpu_and_the_failed_request_is_named(simulate):
    done = simulate(TRAINING, "--memory", "30MiB", arguments=["3"])
    assert (done.returncode, done.answer["fits"], done.answer["exit_status"]) == (1, False, 1)
    assert "torch.OutOfMemoryError: CUDA out of memory" in done.stderr
    assert done.answer["oom"]["requested_bytes"] > 0
    assert done.answer["accuracy"] == "unknown", "the peak may lie after the end"


def test_of_several_requests_that_failed_the_one_that_ended_the_program_is_named(simulate):
    source = """
import torch
for gib in (1000, 2000, 3000):
    try:
        torch.empty(gib << 30, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        if gib == 3000:
            raise
"""
    done = simulate(source, "--gpu", "a100")
    assert (done.returncode, done.answer["fits"]) == (1, False)
    assert done.answer["oom"]["requested_bytes"] == 3000 << 30


def test_a_program_that_handles_a_failed_request_and_ends_with_an_error_may_fit(simulate):
    source = """
import sys, torch
try:
    torch.empty(1000 << 30, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
sys.exit(3)
"""
    done = simulate(source, "--gpu", "a100")
    assert (done.returncode, done.answer["fits"], done.answer["exit_status"]) == (2, None, 3)


# Two networks, each with an optimizer, of which the second makes no step before the fifth.
TWO_OPTIMIZERS = """
import sys, threading, torch
models = [torch.nn.Linear(64, 64).cuda() for _ in range(2)]
optimizers = [torch.optim.AdamW(model.parameters()) for model in models]
def train():
    for step in range(10):
        for model, optimizer in zip(models, optimizers if step % 5 == 4 else optimizers[:1]):
            model(torch.ones(8, 64, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
"""


def test_an_optimizer_that_has_not_made_a_step_leaves_open_whether_the_program_fits(simulate):
    done = simulate(TWO_OPTIMIZERS + "train()", "--gpu", "a100")
    assert (done.returncode, done.answer["fits"], done.answer["stopped"]) == (2, None, True)
    done = simulate(TWO_OPTIMIZERS + "train()", "--gpu", "a100", "--steps", "0")
    assert (done.returncode, done.answer["fits"]) == (0, True)


def test_a_program_that_trains_in_another_thread_or_leaves_at_once_has_a_recording(simulate):
    threads = """
del optimizers[1]
threading.Thread(target=train, daemon=True).start()
threading.Event().wait()
"""
    done = simulate(TWO_OPTIMIZERS.replace("optimizers if step % 5 == 4 else ", "") + threads, "--gpu", "a100")
    assert (done.returncode, done.answer["fits"], done.answer["stopped"]) == (0, True, True), done.stderr
    assert "Traceback" not in done.stderr
    done = simulate("import os, torch\ntorch.ones(8, device='cuda')\nos._exit(0)", "--gpu", "a100")
    assert (done.returncode, done.answer["fits"]) == (0, True), done.stderr
    done = simulate("import os, torch\ntorch.ones(8, device='cuda')\nos.kill(os.getpid(), 9)", "--gpu", "a100")
    assert done.returncode == 2 and "its recording is lost" in done.stderr


def test_the_text_says_which_part_of_the_program_was_counted_and_what_it_has_handled(simulate):
    done = simulate(TRAINING, "--gpu", "a100", arguments=["10"], is_json=False)
    assert "Ended after 3 steps (--steps 0 runs to the end): later steps are not counted." in done.stdout
    handled = """
try:
    torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    pass
"""
    done = simulate(TRAINING + handled, "--gpu", "a100", "--steps", "0", arguments=["1"], is_json=False)
    assert done.returncode == 0 and "Ended after" not in done.stdout
    assert "The program handled 1 request that failed; the last: " in done.stdout, done.stdout


def test_all_steps_run_if_asked_for_and_the_programs_own_error_is_no_verdict(simulate):
    done = simulate(TRAINING + "raise ValueError('its own')\n", "--gpu", "t4", "--steps", "0", arguments=["5"])
    assert (done.returncode, done.answer["fits"], done.answer["exit_status"]) == (2, None, 1)
    assert "ValueError: its own" in done.stderr and "step 4" in done.stderr
    assert done.answer["unknown"] == "the program ended with status 1"
    assert (done.answer["accuracy"], done.answer["stopped"]) == ("unknown", False)


def test_lines_that_read_values_and_functions_with_unknown_workspaces_are_named(simulate):
    source = """
import torch
x = torch.randn(64, 64, device="cuda")
torch.linalg.qr(x)
if x.sum() > 0:
    torch.empty(1 << 20, device="cuda")
"""
    answer = simulate(source, "--gpu", "a100").answer
    assert answer["requested_is_lower_bound"]
    assert {row["line"] for row in answer["unknown_workspaces"]} == {4}
    assert [(row["line"], row["text"]) for row in answer["depends_on_values"]] == [(5, "if x.sum() > 0:")]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("torch.sparse.mm(sparse, sparse)", "cusparseSpGEMM"),
        # Imported by the library for linear algebra alone, which PyTorch loads when it is needed.
        ("ctypes.CDLL(None).cublasSrotg_v2()", "cublasSrotg_v2"),
    ],
)
def test_a_function_that_is_not_simulated_ends_the_program_by_name_and_never_reaches_the_library(simulate, call, name):
    source = f"""
import ctypes, torch
sparse = torch.eye(64).to_sparse_csr().cuda()
{call}
print("reached")
"""
    done = simulate(source, "--gpu", "a100")
    assert (done.returncode, done.answer["fits"]) == (2, None)
    assert done.answer["missing"][0]["name"].startswith(name) and done.answer["missing"][0]["line"] == 4
    assert "is not simulated (called at " in done.stderr and "reached" not in done.stderr


def test_a_line_that_waits_for_a_value_for_ever_is_named(simulate):
    source = """
import torch
done = torch.zeros(1, device="cuda")
while True:
    done.add_(1)
    if done.item() > 5:
        break
"""
    done = simulate(source, "--gpu", "a100")
    assert (done.returncode, done.answer["fits"]) == (2, None)
    assert "train.py:6" in done.answer["unknown"]


def test_values_of_small_tensors_steer_the_program_as_on_a_gpu_if_they_are_asked_for(simulate):
    source = """
import torch
table = torch.tensor([[1, 2], [0, 3]], device="cuda")
print("found", tuple(table.nonzero().shape), table[table > 1].tolist(), torch.isin(table, table[1]).any().item())
left = torch.ones(4, device="cuda")
while left.max() > 0:
    left = left - 0.25
    print("left", left.tolist()[0])
logits = torch.randn(1000, 1000, device="cuda").sum(0)
print("unknown", logits.argmax().item())
"""
    done = simulate(source, "--gpu", "a100", "--values")
    assert done.returncode == 0, done.stderr
    assert "found (3, 2) [2, 3] True" in done.stderr
    assert done.stderr.count("left ") == 4 and "unknown 0" in done.stderr
    assert [row["line"] for row in done.answer["depends_on_values"]] == [10], "only what depends on large tensors"


def test_a_program_without_cuda_says_what_to_do(simulate):
    done = simulate("import torch\ntorch.zeros(1)\n", "--gpu", "a100")
    assert done.returncode == 2 and "nothing was simulated: the program has not used CUDA" in done.stderr


def test_one_process_runs_as_one_rank_of_several(simulate):
    source = """
import os, torch, torch.distributed as distributed
from torch.distributed.fsdp import fully_shard
distributed.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]).cuda()
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    model(torch.randn(8, 512, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("state", sum(state["exp_avg"].to_local().nbytes for state in optimizer.state.values()), distributed.get_rank())
"""
    done = simulate(source, "--gpu", "h100", "--ranks", "64", "--rank", "3", "--steps", "0")
    assert done.returncode == 0, done.stderr
    # A 64th of each matrix and bias.
    assert f"state {4 * (512 * 512 + 512) * 4 // 64} 3" in done.stderr
    assert done.answer["ranks"][0]["rank"] == 3


def test_large_tensors_of_the_host_are_not_initialized_unless_asked_for(simulate):
    source = "import torch\nlayer = torch.nn.Linear(2000, 2000).cuda()\n"
    assert simulate(source, "--gpu", "a100").answer["uninitialized_host_bytes"] == 16_000_000
    assert simulate(source, "--gpu", "a100", "--keep-init").answer["uninitialized_host_bytes"] == 0


def test_bounds_distinguish_lines_that_decide_about_memory_from_those_that_do_not(simulate):
    source = """
import torch
x = torch.randn(1000, 1000, device="cuda")
print("logged", x.sum().item())
{}
"""
    harmless = simulate(source.format(""), "--gpu", "a100", "--bounds").answer
    assert (harmless["accuracy"], harmless["same_with_ones"]) == ("exact", True)
    answer = simulate(source.format("kept = x[x > 0]"), "--gpu", "a100", "--bounds").answer
    assert (answer["accuracy"], answer["same_with_ones"], answer["first_to_decide"]["line"]) == ("bounded", False, 5)
    bounds = answer["bounds"]["requested"]
    # With every element, a copy of the tensor and its indices are made.
    assert bounds["low"] < 8_000_000 < bounds["high"]


def test_the_order_of_addresses_gives_an_interval_where_it_decides(simulate):
    # Two free blocks of a size, in segments of which one is larger: the lower one is taken.
    source = """
import torch
MIB = 1 << 20
def take(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")
sizes = [22, 24, 12, 30, 18, 26, 14, 20, 28, 16]
for _ in range(6):
    blocks = [take(size) for size in sizes]
    del blocks[::2]
    more = [take(11) for _ in range(5)]
    del blocks, more
"""
    answers = {order: simulate(source, "--gpu", "a100", "--addresses", order).answer for order in ("linux", "windows")}
    bounds = [answer["bounds"] for answer in answers.values()]
    assert bounds[0]["reserved"] == bounds[1]["reserved"] and bounds[0]["allocated"] == bounds[1]["allocated"]
    for answer in answers.values():
        for total in ("allocated", "reserved"):
            assert answer["bounds"][total]["low"] <= answer["peaks"][total] <= answer["bounds"][total]["high"]


# Six blocks that a plan recomputes.
BLOCKS = """
import torch
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)
    def forward(self, x):
        return x + self.outer(torch.nn.functional.gelu(self.inner(x)))
model = torch.nn.Sequential(*[Block() for _ in range(6)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
"""


def test_a_plan_for_a_program_is_proven_by_simulating_it_again_without_an_edit(simulate, tmp_path):
    source = (
        BLOCKS
        + """
while True:
    model(torch.randn(16384, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    )
    planned = simulate(source, "--budget", "600MiB", command="plan").answer
    assert planned["fits"] and planned["proof"] == "simulated" and not planned["fits_as_is"]
    proven = planned["proven"]
    assert proven["as_predicted"] and proven["reserved_bytes"] == planned["after"]["reserved_bytes"]
    assert (tmp_path / "train.snap").is_file() and proven["file"] == str(tmp_path / "train.planned.snap")
    # The program does not fit as it is, and fits with the plan.
    assert planned["before"]["requested_bytes"] > 600 << 20 > proven["requested_bytes"]


def test_a_plan_after_which_a_value_decides_about_memory_is_proven_with_that_value(simulate):
    # A device of the budget, so that the plan applies, makes the program ask whether its positions are in order.
    source = (
        BLOCKS
        + """
is_limited = torch.cuda.get_device_properties(0).total_memory < 1 << 39
for _ in range(3):
    positions = torch.arange(12_000, device="cuda") if is_limited else None
    if is_limited and not bool((positions.diff() == 1).all()):
        mask = torch.empty(200 << 20, dtype=torch.uint8, device="cuda")
    model(torch.randn(16384, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    )
    planned = simulate(source, "--budget", "600MiB", command="plan").answer
    assert planned["fits"] and planned["proven"]["fits"] and planned["proven"]["depends_on_values"] == []


def test_a_plan_disables_the_cache_that_a_second_forward_would_fill_twice(simulate, tmp_path):
    package = tmp_path / "transformers"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "cache_utils.py").write_text("""
import torch
class Cache(list):
    def update(self, x):
        self.append(torch.cat([x, x.new_empty(0, x.shape[1])]))
        return torch.cat(list(self))
""")
    source = """
import sys, types
sys.path.insert(0, "FOLDER")
import torch
from transformers.cache_utils import Cache
class Block(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.inner, self.outer = torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)
    def forward(self, x, caches):
        if self.config.use_cache:
            x = caches.setdefault(self, Cache()).update(x)
        return x + self.outer(torch.nn.functional.gelu(self.inner(x)))
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.config = types.SimpleNamespace(use_cache=True)
        self.layers = torch.nn.ModuleList([Block(self.config) for _ in range(6)])
    def forward(self, x):
        caches = {}
        for layer in self.layers:
            x = layer(x, caches)
        return x
model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters())
while True:
    model(torch.randn(16384, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""".replace("FOLDER", str(tmp_path))
    planned = simulate(source, "--budget", "800MiB", command="plan").answer
    assert any("use_cache = False" in line for line in planned["lines"]), planned["lines"]
    assert planned["proven"]["fits"] is True, planned["proven"]


@pytest.mark.skipif("sm_70" in torch._C._cuda_getArchFlags(), reason="this PyTorch has kernels for a V100")
def test_a_gpu_that_pytorch_has_no_kernels_for_is_refused_by_name(simulate):
    done = simulate("import torch\ntorch.zeros(1, device='cuda')\nprint('reached')\n", "--gpu", "v100")
    assert done.returncode == 2 and "reached" not in done.stderr
    assert "has no kernels for Tesla V100" in done.stderr and "compute capability 7.0" in done.stderr
