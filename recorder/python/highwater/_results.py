"""Types of the results: the objects that the commands print with `--json`. They may have further keys."""

from __future__ import annotations

from typing import Any, TypedDict


class _Answer(TypedDict, total=False):
    """The fields that most results have."""

    schema_version: int


class Member(TypedDict):
    """One of several identical modules."""

    key: str
    keys: dict[str, str]
    bytes: int
    blocks: int
    leaked_bytes: int


class Group(Member, total=False):
    """Blocks with the same values of the keys. `members` are identical modules that were combined."""

    members: list[Member]


class Peak(_Answer):
    """The memory in use at a moment. `groups` and `rest_bytes` sum to `bytes`."""

    device: int
    metric: str
    bytes: int
    event: int | None
    time_us: int | None
    step: int | None
    phase: str
    reached_elsewhere: list[dict[str, Any]]
    leaked_bytes: int
    groups: list[Group]
    rest_bytes: int
    rest_groups: int
    trust: dict[str, Any]
    problems: list[str]


class Info(_Answer):
    """A summary, with the peaks of all totals for each device."""

    format: str
    recorder: str
    program: str
    host: str
    pid: int
    rank: int | None
    world_size: int | None
    started_us: int
    clock: str
    level: str
    ring_capacity: int | None
    facts: dict[str, str]
    events: int
    annotations: int
    devices: list[dict[str, Any]]
    notes: list[str]
    problems: list[str]


class PhaseRow(TypedDict):
    """A phase of a step."""

    step: int | None
    phase: str
    first_event: int
    last_event: int
    start_bytes: int
    peak_bytes: int
    peak_event: int | None
    end_bytes: int
    at_peak: dict[str, int]


class Phases(_Answer):
    """The memory of each step and phase."""

    device: int
    metric: str
    rows: list[PhaseRow]
    trust: dict[str, Any]
    problems: list[str]


class Explanation(_Answer):
    """The composition of the peak, the peak without each group, and advice to lower it."""

    device: int
    metric: str
    peak: dict[str, Any]
    layers: dict[str, int | None]
    free_in_segments: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    rest_bytes: int
    rest_groups: int
    removals: list[dict[str, Any]]
    idle: dict[str, Any] | None
    advice: list[str]
    trust: dict[str, Any]
    problems: list[str]


class Difference(_Answer):
    """The differences between two recordings. The deltas of groups and rest sum to `delta_bytes`."""

    a: dict[str, Any]
    b: dict[str, Any]
    delta_bytes: int
    groups: list[dict[str, Any]]
    rest_a_bytes: int
    rest_b_bytes: int
    rest_delta_bytes: int
    rest_groups: int
    settings: list[dict[str, Any]]
    peaks: dict[str, dict[str, Any]]
    phases: list[dict[str, Any]]


class WhatIf(_Answer):
    """The peaks of a replay with some changes."""

    device: int
    recorded_alloc_conf: str
    measured: dict[str, Any]
    replayed: dict[str, Any]
    divergence: dict[str, Any] | None
    takes_lowest_address: bool
    causes: list[Any]
    changed: dict[str, Any] | None
    alloc_conf: str | None
    capacity_bytes: int | None
    fits: bool | None
    unconfirmed_because: str | None
    lower_bound_bytes: int | None
    devices: list[dict[str, Any]]
    oom: dict[str, Any] | None
    rescued_events: list[int]
    removed: dict[str, int]
    shortened: dict[str, int]
    scaled: dict[str, int]
    recomputed: dict[str, Any] | None
    fragmentation: dict[str, Any]
    tried: list[dict[str, Any]]
    assumptions: list[str]
    file: str | None
    problems: list[str]


class PlanPeaks(TypedDict):
    """Peaks, and the number of times that the allocator released its cache for a request."""

    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    retries: int


class Plan(_Answer):
    """The cheapest changes with which a step fits the budget."""

    budget_bytes: int
    reserve_bytes: int
    fits: bool | None
    unconfirmed_because: str | None
    fits_as_is: bool
    reach: str
    gets_past_failure: bool | None
    proof: str
    proven: dict[str, Any] | None
    command: str | None
    lines: list[str]
    environment: dict[str, str]
    gpu: str | None
    estimated_step_us: int | None
    work_share: float | None
    before: PlanPeaks
    after: PlanPeaks | None
    plan: list[dict[str, Any]]
    alternatives: list[dict[str, Any]]
    minimum: dict[str, Any]
    maximized: int | None
    spare_bytes: int | None
    searched: dict[str, Any]
    assumptions: list[str]
    warnings: list[str]


class Check(_Answer):
    """The result of a check against budgets. `broken` lists exceeded budgets, and `undecided` unconfirmed ones."""

    passed: bool
    broken: list[dict[str, Any]]
    undecided: list[dict[str, Any]]
    rules: list[dict[str, Any]]
    file: str
    baseline: str | None
    baseline_caveat: str | None
    device: int
    devices: list[int]
    unmeasured: list[dict[str, Any]]
    metric: str
    differences: list[dict[str, Any]] | None
    differences_by_device: list[dict[str, Any]]
    oom: str | None
    trust: dict[str, Any]
    problems: list[str]


class Event(TypedDict):
    """One event. Fields that do not apply to its kind are None."""

    index: int
    kind: str
    time_us: int
    device: int
    block: int | None
    address: int | None
    size: int | None
    allocated: int | None
    stream: int | None
    pool: str | None
    category: str | None
    op: str | None
    op_id: int | None
    scope: str | None
    phase: str | None
    step: int | None
    text: str | None
    attributes: dict[str, str]
    stack: list[str]


class Events(_Answer):
    """A list of events."""

    events: list[Event]
    problems: list[str]
