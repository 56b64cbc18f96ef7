"""Steps, evaluation and the hints about steps, of loops as people write them."""

import warnings

import pytest
from tags import tagged_allocations

import highwater


@pytest.fixture
def net(torch):
    """A model, its optimizer, and calls of it whose batch size tells them apart: a call allocates 32 bytes a row."""

    class Net:
        model = torch.nn.Linear(8, 8).cuda()
        optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)

        def forward(self, rows):
            return self.model(torch.zeros(rows, 8, device="cuda"))

        def train(self, rows):
            self.model.train()
            self.forward(rows).sum().backward()

        def evaluate(self, rows, batches=2):
            self.model.eval()
            with torch.no_grad():
                for _ in range(batches):
                    self.forward(rows)

    return Net()


def stages(snapshot, rows):
    """The steps and phases of the allocations with the given number of rows of 32 bytes, in order."""
    found = [(tag["step"], tag["phase"]) for event, tag in tagged_allocations(snapshot) if event["size"] == 32 * rows]
    return list(dict.fromkeys(found))


def test_an_evaluation_is_a_phase_of_its_own_and_begins_no_step(torch, record, net):
    def loop(_):
        for _ in range(4):
            net.train(100)
            net.optimizer.step()
            net.optimizer.zero_grad()
            net.evaluate(200)
        net.evaluate(300)

    snapshot = record(loop)
    assert {step for step, phase in stages(snapshot, 100) if phase == "forward"} == {0, 1, 2, 3}
    assert [stage for stage in stages(snapshot, 200) if stage[1] != "other"] == [(step, "eval") for step in range(4)]
    assert (3, "eval") in stages(snapshot, 300)
    assert all(phase in ("eval", "other") for _, phase in stages(snapshot, 200))


@pytest.mark.parametrize("name", ["no_grad", "inference_mode"])
def test_evaluation_ends_where_gradients_are_enabled_again(torch, record, net, name):
    @getattr(torch, name)()
    def evaluate():
        kept = net.forward(200)
        torch.ones(8 * 300, device="cuda")
        return kept

    def loop(_):
        net.train(100)
        net.optimizer.step()
        net.model.eval()
        evaluate()
        torch.ones(8 * 400, device="cuda")

    snapshot = record(loop)
    assert (stages(snapshot, 300), stages(snapshot, 400)) == ([(0, "eval")], [(0, "other")])


def test_losses_and_transforms_of_an_evaluation_are_part_of_it_in_any_mode(torch, record, net):
    loss, transform = torch.nn.MSELoss().cuda(), torch.nn.Softmax(dim=0)

    def loop(_):
        for _ in range(3):
            net.train(100)
            net.optimizer.step()
            net.optimizer.zero_grad()
            net.model.eval()
            with torch.no_grad():
                for _ in range(2):
                    batch = transform(torch.zeros(200, 8, device="cuda"))
                    loss(net.model(batch), batch)

    snapshot = record(loop)
    assert {step for step, phase in stages(snapshot, 100) if phase == "forward"} == {0, 1, 2}
    assert {stage for stage in stages(snapshot, 200) if stage[1] != "other"} == {(step, "eval") for step in range(3)}


def test_one_zero_grad_for_training_and_validation_begins_steps_of_training_only(torch, record, net):
    def loop(_):
        for _ in range(3):
            for is_training in (True, False):
                net.model.train(is_training)
                net.optimizer.zero_grad()
                with torch.set_grad_enabled(is_training):
                    out = net.forward(100 if is_training else 200).sum()
                if is_training:
                    out.backward()
                    net.optimizer.step()
                else:
                    torch.zeros(300, 8, device="cuda")

    snapshot = record(loop)
    assert {step for step, phase in stages(snapshot, 100) if phase == "forward"} == {0, 1, 2}
    assert {stage for stage in stages(snapshot, 200) if stage[1] == "eval"} == {(step, "eval") for step in range(3)}
    # After `set_grad_enabled`, gradients are enabled again.
    assert {phase for _, phase in stages(snapshot, 300)} == {"other"}


def test_the_state_of_an_optimizer_that_runs_out_of_memory_in_its_first_step_has_names(torch, record, monkeypatch):
    model = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    zeros_like, made = torch.zeros_like, []

    def fail_at_third(*args, **kwargs):
        made.append(args)
        if len(made) > 2:
            raise torch.cuda.OutOfMemoryError("planted")
        return zeros_like(*args, **kwargs)

    def loop(_):
        model(torch.zeros(2, 64, device="cuda")).sum().backward()
        monkeypatch.setattr(torch, "zeros_like", fail_at_third)
        with pytest.raises(torch.cuda.OutOfMemoryError):
            optimizer.step()

    names = {row[3] for row in record(loop)["highwater_run"]["tensors"] if row[2] == "optimizer_state"}
    assert {"Linear.weight.exp_avg", "Linear.weight.exp_avg_sq"} <= names


def test_training_mode_without_gradients_and_evaluation_mode_with_them_are_forward(torch, record, net):
    def loop(_):
        with torch.no_grad():
            net.model.train()
            net.forward(200)
        net.model.eval()
        net.forward(300).sum().backward()

    snapshot = record(loop)
    assert (0, "forward") in stages(snapshot, 200) and (0, "forward") in stages(snapshot, 300)
    assert "eval" not in {tag["phase"] for _, tag in tagged_allocations(snapshot)}


def test_a_teacher_that_runs_first_in_each_step_belongs_to_the_step_that_begins(torch, record, net):
    teacher = torch.nn.Linear(8, 8).cuda().eval()

    def loop(_):
        for _ in range(3):
            with torch.no_grad():
                teacher(torch.zeros(200, 8, device="cuda"))
            net.train(100)
            net.optimizer.step()

    found = [stage for stage in stages(record(loop), 200) if stage[1] == "eval"]
    assert found == [(0, "eval"), (1, "eval"), (2, "eval")]


def test_an_evaluation_before_training_moves_no_later_one(torch, record, net):
    def loop(_):
        net.evaluate(200)
        for _ in range(3):
            net.train(100)
            net.optimizer.step()
            net.evaluate(200)

    found = [step for step, phase in stages(record(loop), 200) if phase == "eval"]
    assert found == [0, 1, 2]


def grad_frees(torch, net, snapshot):
    """The step in which each gradient of the weight is freed, by the tags of the events."""
    import json

    is_made, steps = {}, []
    tags = {id(event): tag for event, tag in tagged_allocations(snapshot)}
    for event in snapshot["device_traces"][0]:
        if event["action"] == "alloc":
            is_made[event["addr"]] = event["size"] == 8 * 8 * 4 and tags[id(event)]["phase"] == "backward"
        elif event["action"] == "free_requested" and is_made.get(event["addr"]):
            steps.append(json.loads(event["user_metadata"])["step"])
    return steps


@pytest.mark.parametrize("of_model", [False, True])
def test_gradients_that_are_dropped_at_the_start_of_the_loop_belong_to_the_step_that_begins(
    torch, record, net, of_model
):
    def loop(_):
        for _ in range(4):
            (net.model if of_model else net.optimizer).zero_grad()
            net.train(100)
            net.optimizer.step()

    if torch.__version__ >= "2.10":
        assert grad_frees(torch, net, record(loop)) == [1, 2, 3]


def clear_train_step(net):
    net.optimizer.zero_grad(); net.train(100); net.optimizer.step()  # noqa: E702


def two_epochs(net):
    def epoch():
        for _ in range(2):
            clear_train_step(net)

    epoch()
    net.evaluate(200)
    net.model.train()
    epoch()


def after_a_dry_forward(net):
    net.forward(300)
    for _ in range(4):
        net.optimizer.zero_grad()
        net.train(100)
        net.optimizer.step()


def in_cells(net):
    cell = "net.optimizer.zero_grad()\nnet.train(100)\nnet.optimizer.step()"
    for number in range(4):
        exec(compile(cell, f"<cell {number}>", "exec"), {"net": net})


@pytest.mark.parametrize("loop", [two_epochs, after_a_dry_forward, in_cells])
def test_gradients_that_are_dropped_before_forward_belong_to_its_step_however_the_loop_is_written(
    torch, record, net, loop
):
    snapshot = record(lambda _: loop(net))
    assert {step for step, phase in stages(snapshot, 100) if phase == "forward"} == {0, 1, 2, 3}
    if torch.__version__ >= "2.10":
        assert grad_frees(torch, net, snapshot) == [1, 2, 3]


def test_gradients_that_a_function_drops_at_the_end_of_the_loop_belong_to_the_step_that_ends(torch, record, net):
    def clear():
        net.optimizer.zero_grad()

    def loop(_):
        clear()
        for _ in range(4):
            net.train(100)
            net.optimizer.step()
            clear()

    if torch.__version__ >= "2.10":
        assert grad_frees(torch, net, record(loop)) == [0, 1, 2, 3]


def test_an_evaluation_that_stays_in_training_mode_begins_no_step(torch, record, net):
    def loop(_):
        for _ in range(3):
            net.train(100)
            net.optimizer.step()
            net.optimizer.zero_grad()
        with torch.no_grad():
            net.forward(200)

    snapshot = record(loop)
    assert {step for step, phase in stages(snapshot, 100) if phase == "forward"} == {0, 1, 2}
    assert (2, "forward") in stages(snapshot, 200)


def test_a_model_that_runs_in_a_reentrant_checkpoint_as_a_whole_has_its_steps(torch, record, net):
    from torch.utils.checkpoint import checkpoint

    def loop(_):
        for _ in range(3):
            batch = torch.zeros(100, 8, device="cuda", requires_grad=True)
            checkpoint(net.model, batch, use_reentrant=True).sum().backward()
            net.optimizer.step()

    assert {step for step, phase in stages(record(loop), 100) if phase == "forward"} == {0, 1, 2}


def test_gradients_that_are_dropped_at_the_end_of_the_loop_belong_to_the_step_that_ends(torch, record, net):
    def loop(_):
        net.optimizer.zero_grad()
        for _ in range(4):
            net.train(100)
            net.optimizer.step()
            net.optimizer.zero_grad()

    if torch.__version__ >= "2.10":
        assert grad_frees(torch, net, record(loop)) == [0, 1, 2, 3]


def hints_of(torch, tmp_path, loop):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with highwater.record_memory_history(tmp_path / "step.snap", convert=False) as run:
            loop(run)
    return [str(row.message) for row in caught if "run.step()" in str(row.message)]


@pytest.mark.parametrize("is_dropped_first", [False, True])
def test_programs_without_modules_have_steps_that_end_with_the_optimizers(torch, record, is_dropped_first):
    weight = torch.zeros(8, 8, device="cuda", requires_grad=True)
    optimizers = [torch.optim.Adam([weight]) for _ in range(2)]

    def loop(_):
        for step in range(3):
            if is_dropped_first:
                optimizers[0].zero_grad()
            for rows in (100, 200):
                (torch.zeros(rows + step, 8, device="cuda") @ weight).sum().backward()
            for optimizer in optimizers:
                optimizer.step()
            if not is_dropped_first:
                optimizers[0].zero_grad()

    snapshot = record(loop)
    for rows in (100, 200):
        for step in range(3):
            assert {number for number, _ in stages(snapshot, rows + step)} == {step}
    assert snapshot["highwater_run"]["last_step"] == 2


def test_optimizers_that_take_turns_give_a_hint_at_the_end_and_in_the_file(torch, tmp_path, record, net):
    other = torch.optim.SGD(net.model.parameters())

    def gan(run, step=lambda: None):
        for _ in range(4):
            for optimizer in (net.optimizer, other):
                optimizer.zero_grad()
                net.train(100)
                optimizer.step()
            step()

    (hint,) = hints_of(torch, tmp_path, gan)
    assert "several optimizers take turns" in hint and "8 in all" in hint
    assert "take turns" in record(gan)["highwater_run"]["notes"]
    assert hints_of(torch, tmp_path, lambda run: gan(run, run.step)) == []


def test_a_loop_without_an_optimizer_gives_a_hint(torch, tmp_path, net):
    def by_hand(run, step=lambda: None):
        for _ in range(4):
            net.train(100)
            with torch.no_grad():
                for parameter in net.model.parameters():
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None
            step()

    (hint,) = hints_of(torch, tmp_path, by_hand)
    assert "all 4 backward passes count as one step" in hint
    assert hints_of(torch, tmp_path, lambda run: by_hand(run, run.step)) == []


def test_usual_loops_give_no_hint(torch, tmp_path, net):
    other = torch.optim.Adam(net.model.parameters())

    def both(_):
        for _ in range(3):
            net.train(100)
            net.optimizer.step()
            other.step()

    def accumulated(_):
        for row in range(8):
            net.train(100)
            if row % 4 == 3:
                net.optimizer.step()
                net.optimizer.zero_grad()

    def compiled(_):
        step = torch.compile(net.optimizer.step, backend="aot_eager")
        for _ in range(3):
            net.train(100)
            step()

    for loop in (both, accumulated, compiled, lambda run: net.evaluate(100), lambda run: net.train(100)):
        assert hints_of(torch, tmp_path, loop) == []


def test_optimizers_of_a_model_on_the_host_count_only_where_they_train_what_is_on_the_device(torch, record, net):
    small = torch.nn.Linear(2, 2)
    on_host = torch.optim.SGD(small.parameters(), momentum=0.9)

    def train_small():
        small(torch.zeros(2, 2)).sum().backward()
        on_host.step()

    def beside(_):
        for _ in range(3):
            train_small()
        for _ in range(3):
            net.train(100)
            net.optimizer.step()
            for _ in range(2):
                train_small()

    found = stages(record(beside), 100)
    assert {step for step, phase in found if phase == "forward"} == {0, 1, 2}, found
    # As frameworks offload an optimizer: its parameters and gradients are copies.
    copies = [torch.nn.Parameter(parameter.detach().cpu()) for parameter in net.model.parameters()]
    offloaded = torch.optim.Adam(copies)

    def offload(_):
        for _ in range(3):
            net.train(100)
            for copy, parameter in zip(copies, net.model.parameters()):
                copy.grad = parameter.grad.cpu()
            offloaded.step()

    found = stages(record(offload), 100)
    assert {step for step, phase in found if phase == "forward"} == {0, 1, 2}, found
