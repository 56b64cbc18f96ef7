"""Questions about a recording, answered by the `highwater` program."""

from __future__ import annotations

import base64
import html
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Union

from . import _binary, _files, _tables
from ._server import Server

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from . import _results

# One key, as `"scope,phase"`, or several.
Keys = Union[str, Iterable[str]]
PathLike = Union[str, "os.PathLike[str]"]
Metric = Literal["requested", "allocated", "active", "reserved", "device_used"]


def _keys(by: Keys | None) -> str | None:
    return by if by is None or isinstance(by, str) else ",".join(by)


def _patterns(patterns: Keys | None) -> list[str]:
    return [patterns] if isinstance(patterns, str) else list(patterns or ())


def _size(size: str | int | None) -> str | None:
    return f"{size}B" if isinstance(size, int) else size


def _sizes(limits: Mapping[str, str | int] | None) -> list[str]:
    return [f"{name}={_size(size)}" for name, size in (limits or {}).items()]


class _Page:
    """A page shown in a notebook."""

    def __init__(self, page: str, height: int) -> None:
        self._page, self._height = page, height

    def __repr__(self) -> str:
        return f"a page of {len(self._page)} bytes; a notebook shows it"

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {self._height}px; border: 0"
        return f'<iframe style="{style}" srcdoc="{html.escape(self._page)}"></iframe>'


class Snapshot:
    """A recording: a `.snap` file, or a memory snapshot written by PyTorch.

    Every method runs the `highwater` program. Methods that answer a question return its `--json` object. Sizes are
    integers in bytes.

    >>> snapshot = Snapshot("step.snap")
    >>> snapshot.peak(by="scope,phase")["groups"][0]["bytes"]
    5368709120

    Raises (each method):
        HighwaterError: the program is not installed, or cannot read the file.
    """

    def __init__(self, path: PathLike) -> None:
        self.path: str = os.path.expanduser(os.fspath(path))

    def __repr__(self) -> str:
        return f"Snapshot({self.path!r})"

    def _ask(self, command: str, *files: str, **options: Any) -> Any:
        arguments = [command, self.path, *files, "--json"]
        for name, value in options.items():
            if value is not None:
                for one in value if isinstance(value, list) else [value]:
                    arguments += ["--" + name.replace("_", "-"), str(one)]
        return json.loads(_binary.run(arguments))

    def info(self) -> _results.Info:
        """Returns the peaks of all totals, by device, and the limits of their accuracy.

        >>> snapshot.info()["devices"][0]["peaks"]["allocated"]["bytes"]
        5368709120
        """
        return self._ask("info")

    def peak(
        self,
        by: Keys = "category",
        *,
        top: int | None = None,
        where: str | None = None,
        device: int | None = None,
        metric: Metric | None = None,
        at: int | str | None = None,
    ) -> _results.Peak:
        """Returns the memory in use at the peak, or after the event `at`, grouped by the keys `by`.

        The bytes of `groups` and `rest_bytes` sum to `bytes`.

        >>> snapshot.peak(by=["scope", "phase"], where="category=activation", top=3)["groups"]
        [{'key': 'blocks.0.mlp, forward', 'bytes': 268435456, ...}, ...]
        """
        return self._ask("peak", by=_keys(by), top=top, where=where, device=device, metric=metric, at=at)

    def phases(
        self,
        *,
        steps: int | Iterable[int] | None = None,
        where: str | None = None,
        device: int | None = None,
        metric: Metric | None = None,
    ) -> _results.Phases:
        """Returns the memory of each step and phase. `steps` limits this to a step such as 3, or a range such as
        `range(2, 5)`.

        >>> max(row["peak_bytes"] for row in snapshot.phases()["rows"])
        5368709120
        """
        answer = self._ask("phases", where=where, device=device, metric=metric)
        if steps is not None:
            wanted = {steps} if isinstance(steps, int) else set(steps)
            answer["rows"] = [row for row in answer["rows"] if row["step"] in wanted]
        return answer

    def explain(
        self, by: Keys | None = None, *, top: int | None = None, where: str | None = None, device: int | None = None
    ) -> _results.Explanation:
        """Returns the composition of the peak, the peak without each group, and advice to lower it.

        >>> snapshot.explain(by="scope:2")["advice"]
        ['Checkpoint blocks.*: ...']
        """
        return self._ask("explain", by=_keys(by), top=top, where=where, device=device)

    def growth(self, by: Keys | None = None, *, where: str | None = None, device: int | None = None) -> dict[str, Any]:
        """Returns the memory that stays live from step to step, and the lines of code that leak."""
        return self._ask("growth", by=_keys(by), where=where, device=device)

    def oom(self) -> dict[str, Any]:
        """Returns the causes of failed requests, and changes that would have prevented them."""
        return self._ask("oom")

    def diff(
        self,
        other: Snapshot | PathLike,
        by: Keys = "category",
        *,
        top: int | None = None,
        where: str | None = None,
        at: str | None = None,
    ) -> _results.Difference:
        """Returns the differences from `other`. `a_bytes` are the bytes of this recording, and `b_bytes` those of
        `other`.

        >>> Snapshot("main.snap").diff("branch.snap", by="scope")["delta_bytes"]
        2147483648
        """
        path = other.path if isinstance(other, Snapshot) else os.fspath(other)
        return self._ask("diff", path, by=_keys(by), top=top, where=where, at=at)

    def whatif(
        self,
        *,
        alloc_conf: str | None = None,
        capacity: str | int | None = None,
        without: str | None = None,
        scale: str | None = None,
        checkpoint: Keys | None = None,
        device: int | None = None,
        out: PathLike | None = None,
    ) -> _results.WhatIf:
        """Returns the peaks of a replay with some changes. `checkpoint` contains patterns of modules to recompute.

        `out` is a file to which the changed recording is written.

        >>> snapshot.whatif(alloc_conf="expandable_segments:True")["changed"]["reserved"]["bytes"]
        5637144576
        """
        options = {"alloc_conf": alloc_conf, "capacity": _size(capacity), "without": without, "scale": scale}
        return self._ask("whatif", **options, checkpoint=_patterns(checkpoint), device=device, out=out)

    def plan(
        self,
        budget: str | int,
        *,
        reserve: str | int | None = None,
        forbid: str | None = None,
        modules: Keys | None = None,
    ) -> _results.Plan:
        """Returns the cheapest changes with which a step fits the device memory `budget`, and the lines to apply them.

        `modules` contains patterns of the modules that may be recomputed.

        >>> print("\\n".join(snapshot.plan("24GiB")["lines"]))
        import functools
        ...
        """
        options = {"reserve": _size(reserve), "forbid": forbid, "modules": _patterns(modules)}
        return self._ask("plan", budget=_size(budget), **options)

    def check(
        self,
        *,
        max_peak: str | int | None = None,
        max_reserved: str | int | None = None,
        max: Mapping[str, str | int] | None = None,
        max_phase: Mapping[str, str | int] | None = None,
        max_step_growth: str | int | None = None,
        baseline: Snapshot | PathLike | None = None,
        max_growth: str | int | None = None,
        budgets: PathLike | None = None,
        metric: Metric | None = None,
        device: int | None = None,
    ) -> _results.Check:
        """Checks the recording against budgets. `max` and `max_phase` have a budget for each category and phase.

        >>> snapshot.check(max_peak="5GiB", max={"activation": "2GiB"})["passed"]
        True
        """
        limits: dict[str, Any] = {"max_peak": _size(max_peak), "max_reserved": _size(max_reserved)}
        limits |= {"max": _sizes(max), "max_phase": _sizes(max_phase), "max_step_growth": _size(max_step_growth)}
        path = baseline.path if isinstance(baseline, Snapshot) else baseline
        compared = {"baseline": path, "max_growth": _size(max_growth), "budgets": budgets}
        return self._ask("check", **limits, **compared, metric=metric, device=device)

    def events(
        self,
        first: int = 0,
        last: int | None = None,
        *,
        kind: Keys | None = None,
        where: str | None = None,
        device: int | None = None,
    ) -> _results.Events:
        """Returns the events from number `first` to number `last`. `kind` limits them to some kinds.

        >>> snapshot.events(kind="alloc", where="size>=1GiB")["events"][0]["stack"][0]
        'train.py:12 step'
        """
        options = {"from": first, "to": last, "kind": _keys(kind)}
        return self._ask("events", **options, where=where, device=device)

    def to_arrow(self, table: _tables.Table = "blocks", *, columns: Sequence[str] | None = None) -> pyarrow.Table:
        """Returns a table with a row for each block or event of the recording, or of all recordings in a folder of
        ranks.

        Sizes are in bytes, times in nanoseconds since 1970. Numbers are int64 and texts are dictionary-encoded; missing
        values are null. Events are numbered from 0, as in other results; -1 (null in results) is the state before the
        first event, for which each device has a row. A block is live at event `e` if `alloc_event <= e`, and
        `free_event` is null or greater than `e`; the live blocks of a device sum to its totals after that event.
        Metadata of the schema describes the recording.

        Both tables have `rank`, `recording` (the file's name), `device`, `stream`, `block` (its number), `address`,
        `category`, `op_id` and `op` (the forward operation), `scope` (the module), `shape` (with the dtype), `pool`,
        `step`, `phase`, `frame` (the program's innermost line) and `stack` (outermost first).

        `blocks` also has `requested_bytes`, `allocated_bytes` (after rounding), `alloc_event`, `free_event`,
        `free_completed_event` (from which on it is not active), `last_use_event`, `alloc_time_ns`, `free_time_ns`,
        `lifetime_ns` and `lifetime` (`phase`, `step`, `steps`, `kept`, `before` or `always`).

        `events` also has `event` (its number), `time_ns`, `kind`, `mark`, `size_bytes` and `rounded_bytes` of the
        block, and the device's totals after the event: `requested_bytes`, `allocated_bytes`, `active_bytes`,
        `reserved_bytes` and `device_used_bytes`.

        Args:
            table: `"blocks"` or `"events"`.
            columns: The names of the columns to read, in this order; by default all.

        Raises:
            ImportError: pyarrow is not installed.

        >>> snapshot.to_arrow(columns=["category", "requested_bytes"]).num_rows
        297
        """
        return _tables.to_arrow(self.path, table, columns)

    def to_pandas(self, table: _tables.Table = "blocks", *, columns: Sequence[str] | None = None) -> pandas.DataFrame:
        """Returns the table of `to_arrow` for pandas. Numbers are `Int64` with nulls; texts are categories.

        Raises:
            ImportError: pandas or pyarrow is not installed.

        >>> snapshot.to_pandas("events", columns=["event", "allocated_bytes"]).plot("event")
        """
        return _tables.to_pandas(self.path, table, columns)

    def to_polars(self, table: _tables.Table = "blocks", *, columns: Sequence[str] | None = None) -> polars.DataFrame:
        """Returns the table of `to_arrow` for Polars. Numbers are `Int64`; texts are `Categorical`.

        Raises:
            ImportError: Polars is not installed.

        >>> snapshot.to_polars().group_by("category").agg(polars.col("requested_bytes").max())
        """
        return _tables.to_polars(self.path, table, columns)

    def serve(self, *, port: int | None = None, host: str | None = None) -> Server:
        """Serves the app with the recording to browsers, until `stop()` is called or the program ends.

        >>> snapshot.serve().url
        'http://127.0.0.1:41799/...'
        """
        return Server(self.path, port=port, host=host)

    def render(self, out: PathLike, *, view: str | None = None, size: str | None = None) -> str:
        """Draws a view to the PNG or SVG file `out`. Returns the path of the file.

        >>> snapshot.render("step.png", view="timeline", size="1600x900")
        'step.png'
        """
        options = [part for name, value in (("view", view), ("size", size)) if value for part in (f"--{name}", value)]
        _binary.run(["render", self.path, "--out", os.fspath(out), *options])
        return os.fspath(out)

    def to_html(
        self,
        out: PathLike | None = None,
        *,
        events: tuple[int, int] | None = None,
        no_stacks: bool = False,
    ) -> str:
        """Writes a page that contains the app and the recording, and opens in a browser without a server or network.

        Args:
            out: The file to write. By default, it is in the folder of the recording, with the extension `.html`.
            events: The range of events to include: the first, and one past the last.
            no_stacks: Leave out stacks, the program's arguments and the host name, so that no source paths and lines
                remain.

        Returns:
            The path of the page.

        >>> Snapshot("step.snap").to_html()
        'step.html'
        """
        page = _files.derived(_files.split(self.path)[0] + ".html") if out is None else os.fspath(out)
        options = ["--events", f"{events[0]}..{events[1]}"] if events else []
        _binary.run(["convert", self.path, page, *options, *(["--no-stacks"] if no_stacks else [])])
        return page

    def show(self, height: int = 720) -> _Page:
        """Shows the app with the recording in a notebook, `height` pixels high.

        The page is stored in the notebook, which grows by about 5 MB.
        """
        with tempfile.TemporaryDirectory() as folder:
            with open(self.to_html(os.path.join(folder, "page.html")), encoding="utf-8") as file:
                return _Page(file.read(), height)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Shows the timeline and the peak in a notebook."""
        text = _binary.run(["peak", self.path])
        try:
            with tempfile.TemporaryDirectory() as folder:
                with open(self.render(os.path.join(folder, "timeline.png")), "rb") as file:
                    picture = base64.b64encode(file.read()).decode()
                    return {"image/png": picture, "text/plain": text}
        except _binary.HighwaterError:
            # A program that was built without the app draws nothing.
            return {"text/plain": text}
