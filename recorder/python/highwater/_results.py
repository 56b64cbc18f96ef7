"""The types of answers: the objects that the commands print with `--json`. They may have more keys."""

from __future__ import annotations

from typing import Any, TypedDict


class Group(TypedDict):
    """Blocks with the same values of the keys."""

    key: str
    keys: dict[str, str]
    bytes: int
    blocks: int


class Peak(TypedDict):
    """What uses the memory at a moment. `groups` and `rest_bytes` sum to `bytes`."""

    device: int
    metric: str
    bytes: int
    event: int | None
    time_us: int | None
    step: int | None
    phase: str
    groups: list[Group]
    rest_bytes: int
    trust: dict[str, Any]
    problems: list[str]


class Info(TypedDict):
    """A summary, with the peaks of all totals for each device."""

    format: str
    recorder: str
    program: str
    facts: dict[str, str]
    events: int
    devices: list[dict[str, Any]]
    notes: list[str]
    problems: list[str]


class PhaseRow(TypedDict):
    """One phase of one step."""

    step: int | None
    phase: str
    first_event: int
    last_event: int
    start_bytes: int
    peak_bytes: int
    peak_event: int | None
    end_bytes: int
    at_peak: dict[str, int]


class Phases(TypedDict):
    """The memory of each step and phase."""

    device: int
    metric: str
    rows: list[PhaseRow]
    trust: dict[str, Any]
    problems: list[str]


class Explanation(TypedDict):
    """The composition of the peak, the peak without each group, and advice."""

    device: int
    metric: str
    peak: dict[str, Any]
    groups: list[dict[str, Any]]
    removals: list[dict[str, Any]]
    advice: list[str]
    trust: dict[str, Any]
    problems: list[str]


class Difference(TypedDict):
    """What makes the difference between two recordings. The deltas of groups and rest sum to `delta_bytes`."""

    a: dict[str, Any]
    b: dict[str, Any]
    delta_bytes: int
    groups: list[dict[str, Any]]


class WhatIf(TypedDict):
    """The peaks of a replay with something changed."""

    measured: dict[str, Any]
    replayed: dict[str, Any]
    changed: dict[str, Any] | None
    fits: bool | None
    oom: dict[str, Any] | None
    assumptions: list[str]


class Plan(TypedDict):
    """The cheapest changes with which a step fits."""

    budget_bytes: int
    fits: bool
    plan: list[dict[str, Any]]
    lines: list[str]
    warnings: list[str]
    assumptions: list[str]


class Check(TypedDict):
    """Whether a recording keeps to its budgets; `broken` names what does not."""

    passed: bool
    broken: list[dict[str, Any]]
    rules: list[dict[str, Any]]
    trust: dict[str, Any]
    problems: list[str]


class Event(TypedDict):
    """One event. What does not apply to its kind is None."""

    index: int
    kind: str
    time_us: int
    device: int
    block: int | None
    address: int | None
    size: int | None
    stream: int | None
    category: str | None
    op: str | None
    phase: str | None
    step: int | None
    scope: str | None
    stack: list[str]


class Events(TypedDict):
    """A list of events."""

    events: list[Event]
    problems: list[str]
