"""Shapes and dtypes of tensors: those that are live at the end, saved ones, and those that torch-snapkit writes."""

import collections
import json
import pickle
import subprocess

import pytest

import highwater


@pytest.fixture
def train(torch):
    """Trains a small model for some steps: `train(run)`."""

    def train(_, steps=4):
        layers = torch.nn.Linear(32, 48), torch.nn.GELU(), torch.nn.Linear(48, 16, bias=False)
        model = torch.nn.Sequential(*layers).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        inputs = torch.zeros(2, 8, 32, device="cuda")
        for _ in range(steps):
            loss = model(inputs).pow(2).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        half = torch.zeros(3, 5, device="cuda", dtype=torch.bfloat16)
        train.kept = [half, inputs[0].t(), model, optimizer]

    return train


def blocks(path, *words):
    """Returns the shapes of the largest blocks of a moment with their categories and bytes."""
    command = ["highwater", "peak", path, "--blocks", "1000", "--json", *words]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return [(one["shape"], one["category"], one["bytes"]) for one in answer["blocks"] if one["category"]]


def recorded(train, path, **options):
    with highwater.record_memory_history(path, **options) as run:
        train(run)
    return run.path


def last_event(path):
    events = json.loads(subprocess.run(["highwater", "events", path, "--json"], check=True, capture_output=True).stdout)
    return events["events"][-1]["index"]


def test_live_tensors_have_their_shapes(train, tmp_path):
    path = recorded(train, tmp_path / "step.snap")
    at_end = collections.Counter(blocks(path, "--at", str(last_event(path))))
    for shape, count in (("[48, 32] float32", 1), ("[48] float32", 1), ("[16, 48] float32", 1)):
        of_shape = {category: count for (known, category, _), count in at_end.items() if known == shape}
        assert of_shape == {"parameter": count, "optimizer_state": 2 * count}, at_end
    assert at_end["[3, 5] bfloat16", "unknown", 30] == 1
    # Only a view of it is left, whose base has the shape.
    assert ("[2, 8, 32] float32", 2048) in {(shape, size) for shape, _, size in at_end}


def test_saved_tensors_and_gradients_have_shapes_in_followed_steps_or_in_all(train, tmp_path):
    counts = {}
    settings = {"none": {"references": False}, "two": {}, "all": {"references": False, "shapes": True}}
    for name, options in settings.items():
        path = recorded(train, tmp_path / f"{name}.snap", **options)
        done = subprocess.run(["highwater", "events", path, "--json"], check=True, capture_output=True)
        events = [one for one in json.loads(done.stdout)["events"] if one["kind"] == "alloc"]
        shapes = collections.Counter((one["category"], one.get("attributes", {}).get("shape")) for one in events)
        # What the first layer and GELU make, which are saved, and the gradient of a weight.
        counts[name] = shapes["activation", "[2, 8, 48] float32"], shapes["gradient", "[16, 48] float32"]
    assert counts == {"none": (0, 0), "two": (4, 2), "all": (8, 4)}


def test_listing_shapes_changes_no_allocation(torch, record, train):
    def events(**options):
        # What PyTorch has cached is the same before each.
        torch.cuda.empty_cache()
        trace = record(train, references=False, **options)["device_traces"][0]
        return [(event["action"], event["size"]) for event in trace]

    events()
    assert events(shapes=True) == events()


def test_events_and_blocks_print_shapes(train, tmp_path):
    path = recorded(train, tmp_path / "step.snap")
    printed = {}
    for words in (["peak", path, "--blocks", "9"], ["events", path, "--kind", "alloc"]):
        done = subprocess.run(["highwater", *words], check=True, capture_output=True, text=True)
        printed[words[0]] = done.stdout
    assert "[48, 32] float32" in printed["peak"] and "[48, 32] float32" in printed["events"], printed


def test_shapes_and_sources_of_torch_snapkit_are_read(torch, tmp_path):
    from torch.utils._python_dispatch import TorchDispatchMode

    logs = collections.defaultdict(list)

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            result = operator(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.is_cuda:
                logs[hex(result.data_ptr())].append([str(operator), tuple(result.shape), str(result.dtype)])
            return result

    with Log():
        torch.cuda.memory._record_memory_history()
        matrix = torch.ones(100, 200, device="cuda")
        product = matrix @ matrix.t()
        vector = product.sum(0).bfloat16()
        torch.zeros(2, 3, 4, device="cuda")
        data = torch.cuda.memory._snapshot()
        torch.cuda.memory._record_memory_history(enabled=None)
    with open(__file__) as file:
        text = file.read()
    data["shape_data"], data["source_code"] = [dict(logs)], {__file__: text}
    (tmp_path / "step.pickle").write_bytes(pickle.dumps(data))
    assert vector.shape == (100,)
    expected = {("[100, 200] float32", 80000), ("[100, 100] float32", 40000), ("[100] bfloat16", 200)}
    subprocess.run(["highwater", "convert", "step.pickle", "step.snap"], cwd=tmp_path, check=True)
    for name in ("step.pickle", "step.snap"):
        path = tmp_path / name
        found = {(shape, size) for shape, _, size in blocks(path, "--at", str(last_event(path)))}
        assert expected <= found, found
    # The text is compressed, but there.
    without = {name: value for name, value in data.items() if name != "source_code"}
    (tmp_path / "without.pickle").write_bytes(pickle.dumps(without))
    subprocess.run(["highwater", "convert", "without.pickle", "without.snap"], cwd=tmp_path, check=True)
    assert (tmp_path / "step.snap").stat().st_size > (tmp_path / "without.snap").stat().st_size + 1000


def test_the_option_is_checked():
    with pytest.raises(ValueError, match="shapes='yes': expected True or False"):
        highwater.record_memory_history(shapes="yes")
