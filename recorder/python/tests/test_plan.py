"""The lines of a plan run as they are, and the changed program has the predicted memory."""

import gc

import highwater


def record(torch, path, change=lambda model: None):
    """Records steps of a small transformer, whose modules `change` may wrap first."""
    from models import Gpt

    # The model of a recording before may still be there.
    gc.collect()
    torch.cuda.empty_cache()
    model = Gpt(blocks=4).cuda()
    change(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    with highwater.record_memory_history(path, model=model):
        for _ in range(3):
            tokens = torch.zeros(16, 128, dtype=torch.long, device="cuda")
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
    after = record(torch, tmp_path / "after.snap", lambda model: exec(lines, {"model": model}))
    changed = before.whatif(checkpoint=plan["plan"][0]["scopes"])["changed"]
    assert changed["requested"]["bytes"] == plan["after"]["requested_bytes"]
    assert plan["plan"][-1]["peak_at"]["phase"] == "backward"
    assert peak(after, "backward") == plan["after"]["requested_bytes"] < peak(before, "backward")
    assert peak(after, "forward") <= plan["after"]["requested_bytes"]
