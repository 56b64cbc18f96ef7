"""Kinds of programs on the simulated GPU, each as users write it: none crashes, or fails where a GPU would not."""

import os
import time

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def test_operators_of_linear_algebra_and_fft_run_and_their_workspaces_are_named(simulate):
    source = """
import torch
L = torch.linalg
matrix = torch.randn(128, 128, device="cuda", requires_grad=True)
batch = torch.randn(4, 32, 32, device="cuda")
for function in (
    lambda: L.solve(matrix, matrix).sum().backward(), lambda: L.inv(batch), lambda: L.qr(batch), lambda: L.svd(matrix),
    lambda: L.eigh(batch), lambda: L.eigvals(batch), lambda: L.eig(matrix), lambda: L.cholesky(batch),
    lambda: L.det(batch), lambda: L.lstsq(matrix, matrix), lambda: L.pinv(matrix), lambda: L.matrix_exp(matrix),
    lambda: L.lu_factor(batch),
    lambda: torch.fft.irfft2(torch.fft.rfft2(batch)), lambda: torch.stft(batch.flatten(), 256, return_complex=True),
):
    function()
try:
    L.matrix_exp(batch)
except NotImplementedError as error:
    print("refused:", error)
"""
    done = simulate(source, "--gpu", "a100")
    assert done.returncode == 0, done.stderr
    names = {row["name"] for row in done.answer["unknown_workspaces"]}
    # PyTorch 2.6 calls MAGMA for general eigenvalues.
    assert {"cusolverDnSgetrf", "cufftXtExec"} <= names, names
    assert done.answer["requested_is_lower_bound"] and "refused: matrix_exp of a batch is not simulated" in done.stderr


def test_semi_structured_sparsity_has_compressed_weights(simulate):
    source = """
import torch
from torch.sparse import SparseSemiStructuredTensor, to_sparse_semi_structured
SparseSemiStructuredTensor._FORCE_CUTLASS = False
dense = torch.tensor([0, 0, 1, 1], dtype=torch.half).tile((128, 64)).cuda()
before = torch.cuda.memory_allocated()
sparse = to_sparse_semi_structured(dense)
print("compressed", torch.cuda.memory_allocated() - before, (sparse @ torch.ones(256, 128, device="cuda").half()).shape)
"""
    done = simulate(source, "--gpu", "a100")
    assert done.returncode == 0, done.stderr
    assert f"compressed {128 * 256 * 2 * 9 // 16} torch.Size([128, 128])" in done.stderr
    unknown = {row["name"] for row in done.answer["unknown_workspaces"]}
    assert unknown == {"cusparseLtSpMMACompress2", "cusparseLtMatmul"}


def test_functions_with_unknown_workspaces_in_backward_are_noted(simulate):
    source = """
import torch
torch.fft.rfft(torch.randn(64, 64, device="cuda", requires_grad=True)).abs().sum().backward()
"""
    rows = simulate(source, "--gpu", "a100").answer["unknown_workspaces"]
    assert any(row["file"] is None for row in rows), rows


OBJECTS = """
import os, torch, torch.distributed as distributed
distributed.init_process_group("nccl")
rank, ranks = distributed.get_rank(), distributed.get_world_size()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
gathered = [None] * ranks
distributed.all_gather_object(gathered, {"rank": rank})
sent = [f"from {rank}", rank]
distributed.broadcast_object_list(sent, src=0)
out = [None]
distributed.scatter_object_list(out, [f"for {number}" for number in range(ranks)] if rank == 0 else None, src=0)
targets = [None] * ranks if rank == 0 else None
distributed.gather_object(rank, targets, dst=0)
if rank == 0:
    distributed.send_object_list(["sent"], dst=1)
    received = [None]
else:
    received = [None]
    distributed.recv_object_list(received, src=0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
for step in range(3):
    model(torch.randn(8, 64, device="cuda")).sum().backward()
# One write, which the other rank's warnings cannot divide.
print(f"| {rank} {gathered} {sent} {out} {targets} {received}\\n", end="", flush=True)
distributed.barrier()
distributed.destroy_process_group()
"""


@pytest.mark.parametrize("options", [["--ranks", "2"], []])
def test_objects_go_from_rank_to_rank_between_processes(simulate, tmp_path, options):
    (tmp_path / "ranks.py").write_text(OBJECTS)
    source = "import sys; from torch.distributed.run import main; main(sys.argv[1:])"
    arguments = ["--standalone", "--nproc-per-node", "2", "ranks.py"]
    done = simulate(source, "--gpu", "h100", *options, "--steps", "0", arguments=arguments)
    assert done.returncode == 0, done.stderr
    lines = sorted(line.partition("| ")[2] for line in done.stderr.splitlines() if line.startswith("| "))
    assert lines == [
        "0 [{'rank': 0}, {'rank': 1}] ['from 0', 0] ['for 0'] [0, 1] [None]",
        "1 [{'rank': 0}, {'rank': 1}] ['from 0', 0] ['for 1'] None ['sent']",
    ]
    assert [rank["rank"] for rank in done.answer["ranks"]] == [0, 1]


def test_a_rank_alone_takes_the_others_to_have_its_objects(simulate):
    done = simulate(OBJECTS, "--gpu", "h100", "--ranks", "4", "--rank", "0", "--steps", "0")
    assert done.returncode == 0, done.stderr
    gathered = "[{'rank': 0}, {'rank': 0}, {'rank': 0}, {'rank': 0}]"
    assert f"| 0 {gathered} ['from 0', 0] ['for 0'] [0, 0, 0, 0] [None]" in done.stderr


def test_a_rank_alone_has_the_process_group_that_a_device_mesh_begins(simulate):
    source = """
import os, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.fsdp import fully_shard
mesh = init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]) // 2, 2), mesh_dim_names=("data", "tensor"))
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).cuda()
parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
fully_shard(model, mesh=mesh["data"])
model(torch.randn(8, 64, device="cuda")).sum().backward()
print("rank", torch.distributed.get_rank(), "of", torch.distributed.get_world_size())
"""
    done = simulate(source, "--gpu", "h100", "--ranks", "8", "--rank", "3")
    assert done.returncode == 0, done.stderr
    assert "rank 3 of 8" in done.stderr


def test_both_runs_of_a_program_without_a_seed_draw_the_same_random_numbers(simulate):
    source = """
import random, torch
values = torch.tensor([float(random.random() > 0.5 or torch.rand(()) > 0.5) for _ in range(64)], device="cuda")
for value in values:
    if value > 0:
        value.exp().item()
    print("value", value.log().item())
"""
    done = simulate(source, "--gpu", "a100", "--values")
    assert done.returncode == 0, done.stderr
    assert done.answer["depends_on_values"] == [], "what the first run has read is what the second reads"
    assert {line for line in done.stderr.splitlines() if line.startswith("value ")} == {"value 0.0", "value -inf"}


def test_processes_that_a_program_starts_have_ranks_of_their_own(simulate):
    source = """
import torch, torch.distributed as distributed, torch.multiprocessing
def work(rank, ranks):
    distributed.init_process_group("nccl", "tcp://127.0.0.1:29511", rank=rank, world_size=ranks)
    torch.cuda.set_device(rank)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda(), device_ids=[rank])
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    print("rank", distributed.get_rank(), flush=True)
if __name__ == "__main__":
    torch.multiprocessing.spawn(work, (2,), 2)
"""
    done = simulate(source, "--gpu", "h100", "--ranks", "2")
    assert done.returncode == 0, done.stderr
    assert [rank["rank"] for rank in done.answer["ranks"]] == [0, 1]


def test_a_device_that_does_not_exist_is_named(simulate):
    source = """
import torch, torch.multiprocessing
def work(rank):
    torch.zeros(1, device=torch.device("cuda", rank))
if __name__ == "__main__":
    torch.multiprocessing.spawn(work, (), 2)
"""
    done = simulate(source, "--gpu", "h100")
    assert (done.returncode, done.answer["fits"], done.answer["accuracy"]) == (2, None, "unknown")
    assert done.answer["unknown"].startswith("the program used device 1, which does not exist (--ranks ")
    assert simulate(source, "--gpu", "h100", "--ranks", "2").answer["fits"]


def test_a_process_that_allocates_nothing_is_no_rank(simulate, tmp_path):
    source = """
import subprocess, sys, torch
torch.zeros(1, device="cuda")
child = "import torch; torch.cuda.init(); torch.cuda.get_device_properties(0)"
subprocess.run([sys.executable, "-c", child], check=True)
"""
    answer = simulate(source, "--gpu", "h100").answer
    assert len(answer["ranks"]) == 1 and answer["file"] == str(tmp_path / "train.snap")


def test_a_program_that_first_asks_whether_pytorch_is_installed_and_records_itself_is_simulated(simulate, tmp_path):
    source = """
import importlib.util
assert importlib.util.find_spec("torch") is not None
import highwater, torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters())
with highwater.record_memory_history("mine.snap", model=model) as run:
    while True:
        model(torch.zeros(8, 64, device="cuda")).sum().backward()
        optimizer.step()
"""
    done = simulate(source, "--gpu", "h100", "--steps", "2")
    assert (done.returncode, done.answer["fits"]) == (0, True), done.stderr
    # What the program records itself ends with the wanted steps too.
    assert (tmp_path / "mine.snap").is_file() and (tmp_path / "train.snap").is_file()


def test_times_that_a_program_logs_are_not_taken_for_autotuning_and_those_of_cudnn_are(simulate):
    source = """
import torch
torch.backends.cudnn.benchmark = {}
layer = torch.nn.Conv2d(16, 16, 3).cuda()
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
start.record()
layer(torch.randn(8, 16, 32, 32, device="cuda"))
end.record()
print("took", start.elapsed_time(end))
"""
    # Before 9.8, cuDNN does not say what it needs on a GPU that is not there.
    is_silent = torch.backends.cudnn.version() < 90800
    answer = simulate(source.format(False), "--gpu", "h100").answer
    assert (answer["accuracy"], answer["autotuned"]) == ("lower_bound" if is_silent else "exact", [])
    answer = simulate(source.format(True), "--gpu", "h100").answer
    assert answer["accuracy"] == ("lower_bound" if is_silent else "conditional")
    assert is_silent or {row["line"] for row in answer["autotuned"]} == {7}


def test_nothing_goes_on_when_the_command_is_killed(simulate, tmp_path):
    process = tmp_path / "process"
    source = f"""
import os, time, torch
torch.zeros(1, device="cuda")
open({str(process)!r} + ".new", "w").write(str(os.getpid()))
os.rename({str(process)!r} + ".new", {str(process)!r})
time.sleep(120)
"""
    with simulate.started(source, "--gpu", "a100") as command:
        _wait_for(process.exists)
        command.kill()
    _wait_for(lambda: not os.path.exists(f"/proc/{process.read_text()}"))


def _wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.05)
