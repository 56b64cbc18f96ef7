"""Tests of the callbacks for Lightning and transformers, with fake frameworks and a fake recording."""

import atexit
import sys
from types import ModuleType, SimpleNamespace

import pytest

import highwater


class FakeRecording:
    def __init__(self, path, **options):
        self.calls, self.asked_path, self.options, self.path = [], path, options, None

    def __enter__(self):
        self.calls.append("enter")
        return self

    def step(self):
        self.calls.append("step")

    def __exit__(self, *error):
        self.calls.append(error)
        self.path = self.asked_path + ".written"


@pytest.fixture
def recordings(monkeypatch):
    """The recordings made; the frameworks are not imported yet."""
    made = []

    def record(path, **options):
        made.append(FakeRecording(path, **options))
        return made[-1]

    monkeypatch.setitem(vars(highwater), "record_memory_history", record)
    for name in [*sys.modules]:
        if name.split(".")[0] in ("lightning", "pytorch_lightning", "transformers") or name in (
            "highwater.lightning",
            "highwater.transformers",
        ):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NoFramework(), *sys.meta_path])
    yield made
    for name in ("highwater.lightning", "highwater.transformers"):
        sys.modules.pop(name, None)


class NoFramework:
    """Hides installed frameworks."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("lightning", "pytorch_lightning", "transformers"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def install(monkeypatch, package):
    """Puts a fake Lightning into `sys.modules`; returns its class of callbacks."""
    callback = type("Callback", (), {})
    parts = package.split(".")
    for end in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(".".join(parts[:end])))
    callbacks = ModuleType(package + ".callbacks")
    callbacks.Callback = callback
    monkeypatch.setitem(sys.modules, package + ".callbacks", callbacks)
    return callback


@pytest.fixture
def lightning(recordings, monkeypatch):
    install(monkeypatch, "lightning.pytorch")
    from highwater.lightning import MemoryHistory

    return MemoryHistory


@pytest.fixture
def transformers(recordings, monkeypatch):
    module = ModuleType("transformers")
    module.TrainerCallback = type("TrainerCallback", (), {})
    monkeypatch.setitem(sys.modules, "transformers", module)
    from highwater.transformers import MemoryHistory

    return MemoryHistory


def test_lightning_records_a_fit_with_its_model_and_batches(lightning, recordings):
    callback = lightning("fit.snap", depth=2)
    assert recordings == []
    callback.on_fit_start("trainer", "model")
    for batch in range(3):
        callback.on_train_batch_start("trainer", "model", None, batch)
    callback.on_fit_end("trainer", "model")
    (recording,) = recordings
    assert recording.asked_path == "fit.snap" and recording.options == {"model": "model", "depth": 2}
    assert recording.calls == ["enter", "step", "step", (None, None, None)]
    assert callback.path == "fit.snap.written"


def test_lightning_passes_an_exception_on_and_ends_once(lightning, recordings):
    callback = lightning()
    callback.on_fit_start("trainer", "model")
    error = KeyError("lost")
    callback.on_exception("trainer", "model", error)
    callback.on_fit_end("trainer", "model")
    assert recordings[0].calls == ["enter", (KeyError, error, None)]


def test_a_second_fit_records_to_the_same_path(lightning, recordings):
    callback = lightning("fit.snap")
    for _ in range(2):
        callback.on_fit_start("trainer", "model")
        callback.on_fit_end("trainer", "model")
    assert [recording.asked_path for recording in recordings] == ["fit.snap", "fit.snap"]


def test_lightning_events_outside_of_a_fit_do_nothing(lightning, recordings):
    callback = lightning()
    callback.on_train_batch_start("trainer", "model", None, 0)
    callback.on_exception("trainer", "model", ValueError())
    callback.on_fit_end("trainer", "model")
    assert recordings == []


def test_the_model_can_be_given(lightning, recordings):
    callback = lightning(model={"gen": "g"})
    callback.on_fit_start("trainer", "model")
    assert recordings[0].options == {"model": {"gen": "g"}}


def test_the_callback_is_of_the_lightning_package_in_use(recordings, monkeypatch):
    older = install(monkeypatch, "pytorch_lightning")
    from highwater.lightning import MemoryHistory

    assert issubclass(MemoryHistory, older)


def test_without_lightning_the_error_says_what_to_install(recordings):
    with pytest.raises(ImportError, match="Lightning is not installed; run `pip install lightning`"):
        import highwater.lightning  # noqa: F401


def test_transformers_records_a_training_with_its_model_and_steps(transformers, recordings):
    callback = transformers("train.snap", stacks="all")
    nothing = SimpleNamespace()
    callback.on_train_begin(nothing, nothing, nothing, model="model", optimizer="optimizer")
    for _ in range(2):
        callback.on_step_begin(nothing, nothing, nothing, model="model")
    callback.on_train_end(nothing, nothing, nothing)
    callback.on_step_begin(nothing, nothing, nothing, model="model")
    (recording,) = recordings
    assert recording.asked_path == "train.snap" and recording.options == {"model": "model", "stacks": "all"}
    assert recording.calls == ["enter", "step", (None, None, None)]
    assert callback.path == "train.snap.written"


def test_a_training_that_failed_ends_when_the_next_begins(transformers, recordings):
    callback = transformers()
    callback.on_train_begin(None, None, None, model="model")
    callback.on_train_begin(None, None, None, model="model")
    assert [recording.calls for recording in recordings] == [["enter", (None, None, None)], ["enter"]]
    callback.on_train_end(None, None, None)
    assert recordings[1].calls == ["enter", (None, None, None)]


def test_a_training_that_failed_ends_with_the_program(transformers, recordings, monkeypatch):
    registered = []
    monkeypatch.setattr(atexit, "register", registered.append)
    callback = transformers()
    callback.on_train_begin(None, None, None, model="model")
    (end,) = registered
    end()
    callback.on_train_end(None, None, None)
    assert recordings[0].calls == ["enter", (None, None, None)]
