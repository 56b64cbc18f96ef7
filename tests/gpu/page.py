"""The page of a run on a GPU, made of its results: tables in Markdown.

    python page.py RESULTS.json     prints the page of results that are there, of several runs perhaps
"""

import json
import sys

MIB = 1 << 20

# What stands beside PyTorch, in the order of the tables.
SCENARIOS = ["vit-l-16", "gpt2", "tiny-nerf", "fcn"]

# Of tests that failed and were not run again, so many are named.
MAX_NAMES = 20
# More failures of a part than that, all for one reason, are a line.
MAX_ALIKE = 3


def table(head, rows):
    if not rows:
        return []
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows] + [""]


def mib(count):
    return "–" if count is None else f"{count / MIB:,.1f}"


def milliseconds(times):
    return None if times is None else times["median_us"] / 1000


def spread(times):
    if times is None:
        return "–"
    return f"{milliseconds(times):,.2f} ({times['least_us'] / 1000:,.2f} to {times['tenth_above_us'] / 1000:,.2f})"


def number(value, digits=2):
    return "–" if value is None else f"{value:,.{digits}f}"


def ratio(ours, theirs):
    return "–" if not ours or not theirs else f"{ours / theirs:.3f}"


def slower(way, off):
    return "–" if not way or not off else f"{(way / off - 1) * 100:+.2f} %"


def told(what, figures):
    """A row for a figure of each scenario, if there is one of any."""
    known = [f"{name} {figure}" for name, figure in zip(SCENARIOS, figures, strict=True) if figure != "–"]
    return [[what, ", ".join(known)]] if known else []


def fails(result):
    return isinstance(result, dict) and "failed" in result


def failures(result, path=()):
    """What failed in a result and why, with where it is."""
    if fails(result):
        return [(" ".join(path), result["failed"])]
    inner = result.items() if isinstance(result, dict) else []
    return [failure for name, part in inner for failure in failures(part, (*path, name))]


class Page:
    def __init__(self, results):
        self.results = results

    def part(self, *path):
        """A result by its path; nothing if it is not there or failed, which is told at the end."""
        found = self.results
        for key in path:
            if not isinstance(found, dict) or fails(found):
                return None
            found = found.get(key)
        return None if fails(found) else found

    def named(self, part):
        """The results of a part by their names, those that there are."""
        found = self.part(part) or {}
        return {name: result for name, result in found.items() if isinstance(result, dict) and not fails(result)}

    def about(self):
        about = self.part("about") or {}
        said = [self.part("about", what, "text") for what in ("gpu", "pytorch")]
        lines = [f"- {name}: {text or 'unknown'}" for name, text in zip(["GPU, driver, memory", "PyTorch, its CUDA"], said)]
        lines += [f"- date: {about.get('date', 'unknown')}", f"- commit: {about.get('commit', 'unknown')}"]
        kernels = self.part("kernels", "text")
        lines += [f"- kernels: {kernels}"] if kernels else []
        if about.get("tiny"):
            lines.append("- **tiny models**: this run shows that the parts work; its times mean nothing")
        return ["## Where", "", *lines, ""]

    def times(self, name, who, way="off"):
        return (self.part(name, who, "step") or {}).get(way)

    def short(self):
        """What the tables below come to."""
        rows = []
        events = self.named("events")
        same = [found for found in events.values() if found["first_difference"] is None]
        if events:
            tried = len(events) + len(failures(self.part("events")))
            rows.append(["commands with the same events on the GPU as counted", f"{len(same)} of {tried}"])
        for of in ["allocated", "reserved"]:
            ratios = [self.ratio_of(name, lambda side, of=of: side.get(f"max_{of}_bytes")) for name in SCENARIOS]
            rows += told(f"most {of}, ours / PyTorch's", ratios)
        rows += told("step, ours / PyTorch's", [self.ratio_of(name, lambda side: milliseconds(side["step"]["off"])) for name in SCENARIOS])
        cost = [slower(*(milliseconds(self.times(name, "ours", way)) for way in ["stacks", "off"])) for name in SCENARIOS]
        rows += told("step while events and stacks are recorded", cost)
        tests = self.named("tests").values()
        if tests:
            failing = sum(len(found["failing"]) for found in tests)
            rows.append(["tests", f"{sum(found['passed'] for found in tests)} passed, {failing} failed"])
        checked = self.named("sanitizer").values()
        if checked:
            rows.append(["errors found by compute-sanitizer", sum(found["errors"] for found in checked)])
        return ["## In short", "", *table(["", "found"], rows)] if rows else []

    def ratio_of(self, name, figure):
        sides = [self.part(name, who) for who in ["ours", "pytorch"]]
        return ratio(*(figure(side) if side else None for side in sides))

    def steps(self):
        memory, times, recorder = [], [], []
        for name in SCENARIOS:
            ours, theirs = (self.part(name, who) or {} for who in ["ours", "pytorch"])
            if not ours and not theirs:
                continue
            mine, other = (milliseconds(self.times(name, who)) for who in ["ours", "pytorch"])
            exact = milliseconds(theirs.get("step_without_tf32"))
            times.append([name, *(spread(self.times(name, who)) for who in ["ours", "pytorch"]), ratio(mine, other), number(exact)])
            pairs = [(ours.get(f"max_{of}_bytes"), theirs.get(f"max_{of}_bytes")) for of in ["allocated", "reserved"]]
            memory.append([name, *(cell for mine, other in pairs for cell in (mib(mine), mib(other), ratio(mine, other)))])
            ways = [(who, way) for who in ["ours", "pytorch"] for way in ["events", "stacks"]]
            cells = [slower(*(milliseconds(self.times(name, who, of)) for of in [way, "off"])) for who, way in ways]
            recorder.append([name, ours.get("events_a_step", "–"), *cells])
        if not times:
            return []
        lines = ["## A training step, beside PyTorch eager's on the same GPU", ""]
        lines += ["The median of its times, and in brackets the least and what a tenth of them are above:", ""]
        lines += table(["ms", "ours", "PyTorch", "ours / PyTorch", "PyTorch without TF32 in convolutions"], times)
        head = ["MiB", "max allocated, ours", "PyTorch", "ratio", "max reserved, ours", "PyTorch", "ratio"]
        lines += table(head, memory)
        lines += ["How much slower a step is while it is recorded (PyTorch's stacks are Python's):", ""]
        head = ["", "events a step", "ours, events", "ours, with stacks", "PyTorch, events", "PyTorch, with stacks"]
        return lines + table(head, recorder)

    def peaks(self):
        rows = []
        for name in self.named("peaks"):
            ours, theirs = (self.part("peaks", name, who) for who in ["ours", "pytorch"])
            said = self.part("peaks", name, "snapshot", "max_allocated_bytes")
            sides = [side for side in (ours, theirs) if side]
            if sides:
                rows.append([name, "all", *(mib(side and side["bytes"]) for side in (ours, theirs)), mib(said)])
            for key in dict.fromkeys(key for side in sides for key in side["groups"]):
                rows.append(["", key, *(mib(side and side["groups"].get(key, 0)) for side in (ours, theirs)), ""])
        head = ["MiB at the peak of what is allocated", "category", "ours", "PyTorch's own snapshot, read by us", "max_memory_allocated"]
        return ["## The peak, ours beside PyTorch's recording of the same step", "", *table(head, rows)] if rows else []

    def allocator(self):
        ours, theirs = self.part("alloc", "ours") or {}, self.part("alloc", "pytorch") or {}
        calls = theirs.get("two calls of nothing")
        theirs = theirs | (self.part("alloc", "pytorch_expandable") or {})
        counting, gpu = (ours.get(group, {}) for group in ["malloc and free", "malloc and free on a GPU"])
        rows = []
        for case in dict.fromkeys([*counting, *gpu]):
            other = theirs.get(case)
            own = other - calls if other and calls else None
            rows.append([case, number(counting.get(case), 0), number(gpu.get(case), 0), number(own, 0), number(other, 0)])
        head = ["ns a malloc and its free", "ours, accounting", "ours, on the GPU", "PyTorch", "PyTorch, called from Python"]
        note = f"PyTorch's is what two calls from Python take, less the {number(calls, 0)} ns of two calls that do nothing."
        return ["## The allocator", "", *table(head, rows), *([note, ""] if calls else [])] if rows else []

    def events(self):
        rows = []
        for command, found in self.named("events").items():
            first = found["first_difference"]
            where = "none" if first is None else f"after {first['after']}: {first['one']} / {first['other']}"
            rows.append([command, *found["events"], where])
        head = ["two steps", "events on the GPU", "events counted for it", "first difference"]
        return ["## Events on the GPU and on the accounting device", "", *table(head, rows)] if rows else []

    def driver(self):
        keys = ["allocator_gave_back_bytes", "driver_got_back_bytes", "outside_the_allocator_bytes"]
        found = {name: self.part(name, "ours", "driver") for name in SCENARIOS}
        rows = [[name, *(f"{told[key]:,}" for key in keys)] for name, told in found.items() if told]
        head = ["bytes", "given back by the allocator", "free again, as the driver says", "in use outside of the allocator"]
        return ["## The allocator's figures and the driver's", "", *table(head, rows)] if rows else []

    def unchanged(self):
        found = self.named("unchanged").items()
        rows = [[name, told["calls"], mib(told["held"]), mib(told["reserved"])] for name, told in found]
        head = ["`highwater run`", "calls recorded", "most held of the driver, MiB", "most reserved, as its own allocator says, MiB"]
        return ["## Programs that never heard of Highwater", "", *table(head, rows)] if rows else []

    def losses(self):
        found = self.named("losses").items()
        rows = [[name, len(told["cpu"]), f"{told['largest_relative_difference']:.1e}"] for name, told in found]
        head = ["scenario", "steps", "largest relative difference"]
        return ["## Losses on the GPU and on the processor", "", *table(head, rows)] if rows else []

    def tests(self):
        rows, why = [], []
        for name, found in self.named("tests").items():
            rows.append([name, found["passed"], len(found["failing"]), found["skipped"], found["seconds"], "; ".join(found["why"])])
            known = [f"- {test}: {reason}" for test, reason in found["failing"].items() if reason]
            rest = [test for test, reason in found["failing"].items() if not reason]
            why += known + ([f"- and {len(rest)} more of {name}: {', '.join(rest[:MAX_NAMES])}"] if rest else [])
        why = ["What failed, each alone with launches that wait:", "", *why, ""] if why else []
        head = ["", "passed", "failed", "of these skipped", "s", "which ended before their time"]
        return ["## Tests", "", *table(head, rows), *why] if rows else []

    def sanitizer(self):
        rows = []
        for name, found in self.named("sanitizer").items():
            passed, all_tests = found["tests"]
            reached = f"{passed} of {all_tests}" + ("" if found["finished"] else ", then stopped")
            rows.append([name, reached, found["errors"], found["seconds"], "; ".join(found["first"])])
        head = ["tool and tests", "tests passed", "errors", "s", "the first of them"]
        return ["## What compute-sanitizer finds", "", *table(head, rows)] if rows else []

    def missing(self):
        lines = []
        for part, result in self.results.items():
            found = failures(result, (part,))
            whys = {why for _, why in found}
            if len(found) > MAX_ALIKE and len(whys) == 1:
                lines.append(f"- {part}, {len(found)} of its results: {whys.pop()}")
            else:
                lines += [f"- {name}: {why}" for name, why in found]
        return ["## What has no result", "", *lines, ""] if lines else []

    def seconds(self):
        found = [(name, result.get("part_seconds")) for name, result in self.results.items() if isinstance(result, dict)]
        told = ", ".join(f"{name} {seconds:.0f}" for name, seconds in found if seconds is not None)
        return [f"Seconds taken: {told}.", ""] if told else []

    def text(self):
        parts = [self.about, self.short, self.steps, self.peaks, self.allocator, self.events, self.driver, self.unchanged]
        parts += [self.losses, self.tests, self.sanitizer, self.missing, self.seconds]
        return "\n".join(line for part in parts for line in part())


def page(results):
    return Page(results).text()


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        print(page(json.load(file)))
