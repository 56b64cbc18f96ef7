"""The lines of a plan run as they are, and the changed program has the predicted memory."""

import gc

import pytest

import highwater


def adamw(torch, parameters, **options):
    return torch.optim.AdamW(parameters, fused=True, **options)


def record(torch, path, change=lambda model, optimizer: None, optimizer_of=adamw, shape=(16, 128), width=64):
    """Records steps of a small transformer, whose modules and optimizer `change` may change first."""
    from models import Gpt

    # The model of a recording before may still be there.
    gc.collect()
    torch.cuda.empty_cache()
    model = Gpt(blocks=4, width=width).cuda()
    optimizer = optimizer_of(torch, model.parameters())
    change(model, optimizer)
    with highwater.record_memory_history(path, model=model):
        for _ in range(3):
            tokens = torch.zeros(shape, dtype=torch.long, device="cuda")
            logits = model(tokens)
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
            del logits
            optimizer.step()
            optimizer.zero_grad()
    return highwater.Snapshot(path)


def peak(snapshot, phase):
    """The peak of all calls of one phase, in bytes."""
    return max(row["peak_bytes"] for row in snapshot.phases()["rows"] if row["phase"] == phase)


def test_the_lines_of_a_plan_run_and_give_the_predicted_peak(torch, tmp_path):
    before = record(torch, tmp_path / "before.snap")
    least = before.plan(2**20, forbid="fused,settings")
    assert not least["fits"]
    budget = before.info()["devices"][0]["peaks"]["reserved"]["bytes"] * 3 // 4
    plan = before.plan(budget, forbid="fused,settings")
    assert plan["fits"] and plan["plan"], plan
    lines = "\n".join(plan["lines"])
    after = record(torch, tmp_path / "after.snap", lambda model, _: exec(lines, {"model": model}))
    changed = before.whatif(checkpoint=plan["plan"][0]["scopes"])["changed"]
    assert changed["requested"]["bytes"] == plan["after"]["requested_bytes"]
    assert plan["plan"][-1]["peak_at"]["phase"] == "backward"
    assert peak(after, "backward") == plan["after"]["requested_bytes"] < peak(before, "backward")
    assert peak(after, "forward") <= plan["after"]["requested_bytes"]


def optimizer(name, **options):
    return lambda torch, parameters: getattr(torch.optim, name)(parameters, **options)


# So few tokens that the peak is in the optimizer step.
AT_OPTIMIZER = {"shape": (1, 16), "width": 256}


@pytest.mark.parametrize(
    "optimizer_of",
    [
        optimizer("AdamW", fused=False),
        optimizer("Adam", amsgrad=True),
        optimizer("Adagrad", foreach=True),
    ],
    ids=["AdamW", "amsgrad", "Adagrad"],
)
def test_a_fused_optimizer_has_the_predicted_peaks_with_its_counters_on_the_gpu(torch, tmp_path, optimizer_of):
    options = {"optimizer_of": optimizer_of, **AT_OPTIMIZER}
    before = record(torch, tmp_path / "before.snap", **options)
    budget = before.info()["devices"][0]["peaks"]["reserved"]["bytes"] - 2**21
    plan = before.plan(budget, forbid="recompute,settings")
    assert plan["fits"] and [line["change"] for line in plan["plan"]] == ["fused optimizer"], plan
    lines = "\n".join(plan["lines"])
    after = record(
        torch,
        tmp_path / "after.snap",
        lambda model, optimizer: exec(lines, {"model": model, "optimizer": optimizer}),
        **options,
    )
    peaks = after.info()["devices"][0]["peaks"]
    for total in ["requested", "allocated", "reserved"]:
        assert peaks[total]["bytes"] == plan["after"][f"{total}_bytes"], total


@pytest.mark.parametrize("name", ["Rprop", "ASGD", "Adadelta", "RAdam", "NAdam", "RMSprop", "Adamax"])
def test_optimizers_without_a_fused_form_are_not_planned_or_advised_to_be_fused(torch, tmp_path, name):
    before = record(torch, tmp_path / "before.snap", optimizer_of=optimizer(name), **AT_OPTIMIZER)
    budget = before.info()["devices"][0]["peaks"]["reserved"]["bytes"] - 2**21
    plan = before.plan(budget, forbid="recompute,settings")
    assert "fused optimizer" not in [line["change"] for line in plan["plan"]], plan
    advice = [text for text in before.explain()["advice"] if "temporaries of the optimizer" in text]
    assert not any("A fused optimizer" in text for text in advice), advice


def test_the_lines_that_recompute_batch_normalization_keep_its_running_statistics(torch, tmp_path):
    import copy

    def block():
        return torch.nn.Sequential(
            torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 1)
        )

    def step(model, images):
        model(images).square().mean().backward()

    plain = torch.nn.Sequential(*[block() for _ in range(4)])
    model = copy.deepcopy(plain).cuda()
    gc.collect()
    torch.cuda.empty_cache()
    with highwater.record_memory_history(tmp_path / "norm.snap", model=model):
        for _ in range(3):
            step(model, torch.zeros(8, 8, 64, 64, device="cuda"))
            model.zero_grad()
    snapshot = highwater.Snapshot(tmp_path / "norm.snap")
    plan = snapshot.plan(2**20, forbid="settings")
    budget = plan["minimum"]["device_bytes"]
    plan = snapshot.plan(budget, forbid="settings")
    assert plan["plan"] and any("batch normalization" in text for text in plan["assumptions"]), plan
    assert plan["environment"] == {}
    # Nothing is computed on the simulated GPU.
    recomputed = copy.deepcopy(plain)
    exec("\n".join(plan["lines"]), {"model": recomputed})
    images = torch.randn(8, 8, 16, 16)
    for net in [plain, recomputed]:
        step(net, images)
        step(net, images)
    for (name, expected), (_, found) in zip(plain.named_buffers(), recomputed.named_buffers()):
        assert torch.equal(expected, found), name
    for (name, expected), (_, found) in zip(plain.named_parameters(), recomputed.named_parameters()):
        assert torch.allclose(expected.grad, found.grad), name
