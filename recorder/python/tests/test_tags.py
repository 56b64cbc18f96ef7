"""Every allocation has the module, the phase and the step that independent stacks say."""

import collections

import pytest
from tags import tagged_allocations, true_module


def judge(snapshot):
    """Checks each tag against the stacks; returns the number of allocations that were checked, by phase."""
    checked = collections.Counter()
    for event, tag in tagged_allocations(snapshot):
        in_module = any(frame["name"].startswith("MODULE|") for frame in event["frames"])
        assert not in_module or tag["phase"] in ("forward", "recompute"), (tag, event["frames"][:4])
        truth = true_module(event, tag["phase"])
        if truth is not None:
            assert tag["scope"] == truth, (tag, event["frames"][:4])
            checked[tag["phase"]] += 1
    return checked


def train(model, steps=2):
    import torch
    from models import name_code

    name_code(model)
    optimizer = torch.optim.AdamW(model.parameters())
    torch.autograd.set_detect_anomaly(True, check_nan=False)

    def run(_):
        for _ in range(steps):
            model.loss().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    return run


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_a_transformer_with_and_without_checkpoints(torch, record, reentrant):
    from models import Gpt

    checked = judge(record(train(Gpt(reentrant=reentrant).cuda())))
    assert checked["forward"] > 100
    assert (checked["recompute"] > 100) == (reentrant is not None)
    # Forward stacks of nodes are recorded from PyTorch 2.7 on.
    assert checked["backward"] > 100 or torch.__version__ < "2.7"


def test_modules_that_are_shared_and_nested(torch, record):
    from models import Shared

    assert judge(record(train(Shared().cuda())))["forward"] > 20


def test_the_model_itself_is_called_by_its_class_also_within_a_wrapper(torch, record):
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(8, 8)

        def forward(self, x):
            return self.fc(x) * 2

    model = torch.compile(Scaled().cuda(), backend="eager")
    x = torch.zeros(4, 8, device="cuda")
    snapshot = record(lambda run: (Scaled().cuda()(x).sum(), model(x).sum()))
    assert {tag["scope"] for _, tag in tagged_allocations(snapshot)} - {"", "fc"} == {"Scaled"}


def test_models_of_one_class_have_distinct_names(torch, record):
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(8, 8)

        def forward(self, x):
            return self.fc(x) * 2

    models = [Scaled().cuda() for _ in range(3)]
    x = torch.zeros(4, 8, device="cuda")
    snapshot = record(lambda run: [model(x).sum() for model in models])
    scopes = {tag["scope"] for _, tag in tagged_allocations(snapshot)} - {""}
    assert scopes == {"Scaled", "fc", "Scaled_2", "Scaled_2.fc", "Scaled_3", "Scaled_3.fc"}


def test_gradients_are_allocated_by_the_module_of_their_parameter(torch, record):
    from models import Gpt

    model = Gpt().cuda()
    snapshot = record(lambda run: model.loss().backward())
    owners = {
        address: name.rpartition(".")[0]
        for address, _, category, name in snapshot["highwater_run"]["tensors"]
        if category == "gradient"
    }
    last = {event["addr"]: tag["scope"] for event, tag in tagged_allocations(snapshot)}
    assert len(owners) == len(list(model.parameters()))
    assert {address: last[address] for address in owners} == owners


def test_an_optimizer_within_backward_keeps_the_module(torch, record):
    from models import Gpt

    model = Gpt().cuda()
    optimizers = {parameter: torch.optim.Adam([parameter]) for parameter in model.parameters()}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)

    def steps(_):
        for _ in range(2):
            model.loss().backward()

    tags = [tag for _, tag in tagged_allocations(record(steps))]
    assert {tag["step"] for tag in tags} == {0, 1}
    updated = {tag["scope"] for tag in tags if tag["phase"] == "optimizer"}
    assert "blocks.1.attention.qkv" in updated and "head" in updated


def test_two_models_with_an_optimizer_each_end_their_steps_where_the_program_says(torch, record):
    from models import name_code

    nn, F = torch.nn, torch.nn.functional
    generator = nn.Sequential(
        nn.Linear(16, 64), nn.ReLU(inplace=True), nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64))
    )
    critic = nn.Sequential(nn.Linear(64, 32), nn.LeakyReLU(), nn.Linear(32, 1))
    name_code(generator.cuda(), "generator")
    name_code(critic.cuda(), "critic")
    optimizers = [torch.optim.Adam(model.parameters()) for model in (critic, generator)]
    torch.autograd.set_detect_anomaly(True, check_nan=False)

    def train(run):
        for _ in range(3):
            one = torch.ones(8, 1, device="cuda")
            fake = generator(torch.zeros(8, 16, device="cuda"))
            real = torch.zeros(8, 64, device="cuda")
            losses = F.mse_loss(critic(real), one) + F.mse_loss(critic(fake.detach()), one)
            for optimizer, loss in zip(optimizers, (lambda: losses, lambda: F.mse_loss(critic(fake), one))):
                optimizer.zero_grad()
                loss().backward()
                optimizer.step()
            run.step()

    snapshot = record(train, model={"generator": generator, "critic": critic})
    assert judge(snapshot)["forward"] > 30
    # The first step was taken for two until the program ended it.
    assert snapshot["highwater_run"]["extra_steps"] == 1
    tags = [tag for _, tag in tagged_allocations(snapshot)]
    steps = [max(0, tag["step"] - 1) for tag in tags]
    assert steps == sorted(steps) and set(steps) == {0, 1, 2}
    phases = collections.Counter((step, tag["phase"]) for step, tag in zip(steps, tags))
    assert phases[1, "backward"] == phases[2, "backward"] > 0


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpointed_function_does_outside_of_modules_is_recomputed_by_its_module(torch, record, reentrant):
    from torch.utils.checkpoint import checkpoint

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(64, 64)

        def inner(self, x):
            return self.linear(x.sin()).cos()

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=reentrant)

    model = torch.nn.Sequential(Net()).cuda()
    x = torch.zeros(8, 64, device="cuda", requires_grad=True)
    snapshot = record(lambda run: model(x).sum().backward())
    recomputed = {tag["scope"] for _, tag in tagged_allocations(snapshot) if tag["phase"] == "recompute"}
    assert recomputed == {"0", "0.linear"}


def test_modules_in_a_compiled_model_are_one_scope_and_the_recording_says_so(torch, record):
    from models import Gpt

    model = Gpt(blocks=1).cuda()
    compiled = torch.compile(model, backend="aot_eager")
    tokens = torch.zeros(2, 32, dtype=torch.long, device="cuda")
    snapshot = record(lambda run: compiled(tokens).sum().backward(), model=model)
    assert {tag["scope"] for _, tag in tagged_allocations(snapshot)} == {"", "Gpt"}
    notes = snapshot["highwater_run"]["notes"].splitlines()
    assert notes[0].endswith("not distinguished: Gpt") and notes[1].endswith("torch.compile is in use")


def test_depth_limits_the_modules_that_are_distinguished(torch, record):
    from models import Gpt

    model = Gpt().cuda()
    snapshot = record(lambda run: model.loss().backward(), depth=1)
    assert {tag["scope"] for _, tag in tagged_allocations(snapshot)} == {"", "embedding", "blocks", "head"}


def test_a_backward_over_gradients_has_the_modules_whose_backward_made_them(torch, record):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8)).cuda()
    optimizer = torch.optim.SGD(model.parameters())
    x = torch.zeros(4, 8, device="cuda", requires_grad=True)

    def penalty(_):
        for _ in range(2):
            (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            (gradient.pow(2).sum() + model(x).sum()).backward()
            optimizer.step()
            optimizer.zero_grad()

    snapshot = record(penalty, references=False)
    (note,) = snapshot["highwater_run"]["notes"].splitlines()
    assert note.endswith("references=False")
    scopes = [tag["scope"] for _, tag in tagged_allocations(snapshot) if tag["phase"] == "backward"]
    assert set(scopes) == {"", "0", "1", "2"}
    assert scopes[: len(scopes) // 2] == scopes[len(scopes) // 2 :], "the same in each step"


def test_backward_of_a_graph_that_another_thread_made_has_no_modules_and_the_recording_says_so(torch, record):
    import threading

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).cuda()
    x = torch.zeros(4, 8, device="cuda")

    def train(_):
        model(x).sum().backward()
        made = []
        thread = threading.Thread(target=lambda: made.append(model(x).sum()))
        thread.start()
        thread.join()
        model.zero_grad()
        made[0].backward()

    snapshot = record(train)
    assert "several threads" in snapshot["highwater_run"]["notes"]
    assert list(tagged_allocations(snapshot))[-1][1] == {"step": 0, "phase": "backward", "scope": ""}


def test_a_failed_optimizer_step_does_not_mark_what_follows(torch, record):
    class Fails(torch.optim.SGD):
        def step(self, closure=None):
            raise KeyError

    model = torch.nn.Linear(8, 8).cuda()
    optimizer = Fails(model.parameters())

    def train(_):
        for _ in range(2):
            model(torch.zeros(4, 8, device="cuda")).sum().backward()
            with pytest.raises(KeyError):
                optimizer.step()
            model.zero_grad()

    tags = [tag for _, tag in tagged_allocations(record(train))]
    assert [tag["phase"] for tag in tags].count("optimizer") == 1, "only the input after it, before forward"
    assert tags[-1]["phase"] == "backward"


def test_an_optimizer_within_another_and_a_closure_belong_to_the_outer_one(torch, record):
    class Outer(torch.optim.Optimizer):
        def __init__(self, inner):
            super().__init__(inner.param_groups, {})
            self.inner = inner

        def step(self, closure=None):
            torch.ones(1000, device="cuda")
            closure()
            self.inner.step()
            torch.ones(3000, device="cuda")

    model = torch.nn.Linear(8, 8).cuda()
    optimizer = Outer(torch.optim.SGD(model.parameters()))
    x = torch.zeros(4, 8, device="cuda")
    snapshot = record(lambda run: optimizer.step(lambda: model(x).sum().backward()))
    phases = {event["size"]: tag["phase"] for event, tag in tagged_allocations(snapshot)}
    assert (phases[4000], phases[12000]) == ("optimizer", "optimizer")
    assert {"forward", "backward"} <= set(phases.values())


def test_a_compiled_optimizer_ends_steps_and_the_recording_says_that_its_phase_is_not_known(torch, record):
    model = torch.nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    step = torch.compile(optimizer.step, backend="aot_eager")
    x = torch.zeros(4, 8, device="cuda")

    def train(_):
        for _ in range(3):
            model(x).sum().backward()
            step()
            optimizer.zero_grad()

    snapshot = record(train)
    assert {tag["step"] for _, tag in tagged_allocations(snapshot)} == {0, 1, 2}
    assert "optimizer is compiled" in snapshot["highwater_run"]["notes"]


def test_modules_that_are_made_anew_in_each_step_have_one_name(torch, record):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8)).cuda()
    x = torch.zeros(4, 8, device="cuda")

    def train(_):
        for _ in range(3):
            torch.nn.MSELoss()(model(x), x).backward()

    scopes = {tag["scope"] for _, tag in tagged_allocations(record(train))}
    assert scopes == {"", "0", "MSELoss"}


def test_a_module_that_is_put_around_another_later_renames_it(torch, record):
    class Adapter(torch.nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base, self.low = base, torch.nn.Linear(8, 8, bias=False)

        def forward(self, x):
            return self.base(x) + self.low(x)

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).cuda()
    x = torch.zeros(4, 8, device="cuda")

    def train(_):
        model(x)
        model[1] = Adapter(model[1]).cuda()
        model(x)

    tags = [tag["scope"] for _, tag in tagged_allocations(record(train))]
    assert set(tags) - {""} == {"0", "1", "1.base", "1.low"}


def test_a_part_that_is_called_before_its_model_gets_the_models_names(torch, record):
    model = torch.nn.ModuleDict({"encoder": torch.nn.Sequential(torch.nn.Linear(8, 8))}).cuda()
    whole = torch.nn.Sequential(model["encoder"], torch.nn.Linear(8, 8)).cuda()
    x = torch.zeros(4, 8, device="cuda")

    def train(_):
        model["encoder"](x)
        whole(x)

    scopes = [tag["scope"] for _, tag in tagged_allocations(record(train))]
    assert scopes[0] == "0" and {"0.0", "1"} <= set(scopes[1:])


def scopes_by_category(snapshot):
    """The modules of the tensors that are live at the end, and those of allocations, by category or phase."""
    found = collections.defaultdict(set)
    for _, tag in tagged_allocations(snapshot):
        found[tag["phase"]].add(tag["scope"])
    for _, _, category, name, *_ in snapshot["highwater_run"]["tensors"]:
        module = name.rpartition(".")[0]
        found[category].add(module.rpartition(".")[0] if category == "optimizer_state" else module)
    return found


def test_depth_is_the_same_for_parameters_gradients_states_and_activations(torch, record):
    from models import Gpt

    model = Gpt().cuda()
    optimizer = torch.optim.Adam(model.parameters())

    def train(_):
        model.loss().backward()
        optimizer.step()

    found = scopes_by_category(record(train, depth=1))
    modules = {"embedding", "blocks", "head"}
    assert found["parameter"] == found["gradient"] == found["optimizer_state"] == modules
    assert found["forward"] - {""} == found["backward"] - {""} == modules


def test_without_depth_all_is_the_models(torch, record):
    from models import Gpt

    model = Gpt().cuda()
    found = scopes_by_category(record(lambda _: model.loss().backward(), depth=0))
    assert found["parameter"] == found["gradient"] == found["forward"] - {""} == found["backward"] - {""} == {"Gpt"}


def test_given_names_hold_where_a_parent_is_called(torch, record):
    class Gan(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.g = torch.nn.Sequential(torch.nn.Linear(8, 8))
            self.d = torch.nn.Sequential(torch.nn.Linear(8, 8))
            self.scale = torch.nn.Linear(8, 8)

        def forward(self, x):
            return self.scale(self.d(self.g(x)))

    gan = Gan().cuda()
    optimizer = torch.optim.Adam(gan.parameters())

    def train(_):
        gan(torch.zeros(4, 8, device="cuda")).sum().backward()
        optimizer.step()

    found = scopes_by_category(record(train, model={"generator": gan.g, "critic": gan.d}))
    modules = {"generator.0", "critic.0", "scale"}
    assert found["parameter"] == found["gradient"] == found["optimizer_state"] == modules
    assert found["forward"] - {""} == modules


def test_names_have_no_part_of_wrappers_such_as_compiled_modules(torch, record):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = torch.nn.ModuleList(
                torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 8)), backend="aot_eager") for _ in range(2)
            )

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return x

    model = Net().cuda()
    optimizer = torch.optim.Adam(model.parameters())

    def train(_):
        model(torch.zeros(4, 8, device="cuda")).sum().backward()
        optimizer.step()

    found = scopes_by_category(record(train))
    assert found["parameter"] == found["gradient"] == found["optimizer_state"] == {"blocks.0.0", "blocks.1.0"}
    assert not any("_orig_mod" in scope for scopes in found.values() for scope in scopes)


def test_evaluation_without_gradients_runs_in_compiled_modules_too(torch, record):
    model = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 8)).cuda(), backend="aot_eager")

    @torch.compile(backend="aot_eager")
    def evaluate(x):
        with torch.no_grad():
            return (x * 2).sum()

    def run(_):
        x = torch.zeros(4, 8, device="cuda")
        model.eval()
        with torch.no_grad():
            model(x)
        evaluate(x)

    assert "eval" in {tag["phase"] for _, tag in tagged_allocations(record(run))}


def test_a_model_on_the_host_leaves_the_names_without_a_prefix_to_one_on_the_device(torch, record):
    probed, other = (torch.nn.Sequential(torch.nn.Linear(8, 8)) for _ in range(2))
    model = torch.nn.Sequential(torch.nn.Linear(8, 8)).cuda()

    def scopes(first, second):
        def run(_):
            first(torch.zeros(4, 8))
            second.cuda()(torch.zeros(4, 8, device="cuda")).sum().backward()

        return {tag.get("scope") for _, tag in tagged_allocations(record(run))}

    # Of one class: the model's own name is that of the class too.
    assert "0" in scopes(other, model)
    assert "0" in scopes(probed, probed), "called on the host first, as to learn the size of its output"
