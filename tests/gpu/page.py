"""The page of a run on a GPU, made of its results: tables in Markdown."""

MIB = 1 << 20


def table(head, rows):
    if not rows:
        return []
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows] + [""]


def mib(count):
    return "–" if count is None else f"{count / MIB:,.1f}"


def milliseconds(part):
    return None if part is None else part["median_us"] / 1000


def number(value, digits=2):
    return "–" if value is None else f"{value:,.{digits}f}"


def ratio(ours, theirs):
    return "–" if not ours or not theirs else f"{ours / theirs:.2f}"


def slower(way, off):
    return "–" if not way or not off else f"{(way / off - 1) * 100:+.1f} %"


def fails(result):
    return isinstance(result, dict) and "failed" in result


class Page:
    def __init__(self, results):
        self.results = results
        self.failures = []

    def part(self, *path):
        """A result by its path; nothing if it is not there or failed, which is told at the end."""
        found = self.results
        for key in path:
            if not isinstance(found, dict):
                return None
            if fails(found):
                return self.failed(path, found)
            found = found.get(key)
        return self.failed(path, found) if fails(found) else found

    def failed(self, path, found):
        failure = (" ".join(path), found["failed"])
        if failure not in self.failures:
            self.failures.append(failure)
        return None

    def about(self):
        about = self.part("about") or {}
        said = [self.part("about", what, "text") for what in ("gpu", "pytorch")]
        lines = [f"- {name}: {text or 'unknown'}" for name, text in zip(["GPU, driver, memory", "PyTorch, its CUDA"], said)]
        lines += [f"- date: {about.get('date', 'unknown')}", f"- commit: {about.get('commit', 'unknown')}"]
        kernels = self.part("kernels", "text")
        lines += [f"- kernels compiled: {kernels}"] if kernels else []
        if about.get("tiny"):
            lines.append("- **tiny models**: this run shows that the parts work; its times mean nothing")
        return ["## Where", "", *lines, ""]

    def steps(self):
        memory, times, recorder = [], [], []
        for name in self.beside():
            ours, theirs = self.part(name, "ours"), self.part(name, "pytorch")
            step = {
                (who, way): milliseconds((side or {}).get("step", {}).get(way))
                for who, side in [("ours", ours), ("theirs", theirs)]
                for way in ["off", "events", "stacks"]
            }
            exact = milliseconds((theirs or {}).get("step_without_tf32"))
            mine, other = step["ours", "off"], step["theirs", "off"]
            times.append([name, number(mine), number(other), ratio(mine, other), number(exact)])
            pairs = [((ours or {}).get(f"max_{of}_bytes"), (theirs or {}).get(f"max_{of}_bytes")) for of in ["allocated", "reserved"]]
            memory.append([name, *(cell for mine, other in pairs for cell in (mib(mine), mib(other), ratio(mine, other)))])
            cells = [slower(step[who, way], step[who, "off"]) for who in ["ours", "theirs"] for way in ["events", "stacks"]]
            recorder.append([name, (ours or {}).get("events_a_step", "–"), *cells])
        if not times:
            return []
        lines = ["## A training step, beside PyTorch eager's on the same GPU", ""]
        lines += table(["ms", "ours", "PyTorch", "ours / PyTorch", "PyTorch without TF32 in convolutions"], times)
        head = ["MiB", "max allocated, ours", "PyTorch", "ratio", "max reserved, ours", "PyTorch", "ratio"]
        lines += table(head, memory)
        lines += ["How much slower a step is while it is recorded (PyTorch's stacks are Python's):", ""]
        head = ["", "events a step", "ours, events", "ours, with stacks", "PyTorch, events", "PyTorch, with stacks"]
        return lines + table(head, recorder)

    def beside(self):
        return [name for name, result in self.results.items() if isinstance(result, dict) and "ours" in result and "peaks" in result]

    def peaks(self):
        rows = []
        for name in self.beside():
            ours, theirs = (self.part(name, "peaks", who) for who in ["ours", "pytorch"])
            said = self.part(name, "snapshot", "max_allocated_bytes")
            if theirs:
                rows.append([name, "all", mib((ours or {}).get("bytes")), mib(theirs["bytes"]), mib(said)])
                keys = {**(ours or {}).get("groups", {}), **theirs["groups"]}
                for key in keys:
                    sides = [mib(side["groups"].get(key, 0)) if side else "–" for side in (ours, theirs)]
                    rows.append(["", key, *sides, ""])
        head = ["MiB at the peak of what is allocated", "category", "ours", "PyTorch's own snapshot, read by us", "max_memory_allocated"]
        return ["## The peak, ours beside PyTorch's recording of the same step", "", *table(head, rows)] if rows else []

    def allocator(self):
        ours = self.part("alloc", "ours")
        if not ours:
            return []
        theirs = (self.part("alloc", "pytorch") or {}) | (self.part("alloc", "pytorch_expandable") or {})
        calls = (self.part("alloc", "pytorch") or {}).get("two calls of nothing")
        counting, gpu = (ours.get(group, {}) for group in ["malloc and free", "malloc and free on a GPU"])
        rows = []
        for case in counting | gpu:
            other = theirs.get(case)
            own = other - calls if other and calls else None
            rows.append([case, number(counting.get(case), 0), number(gpu.get(case), 0), number(own, 0), number(other, 0)])
        head = ["ns a malloc and its free", "ours, accounting", "ours, on the GPU", "PyTorch", "PyTorch, called from Python"]
        note = f"PyTorch's is what two calls from Python take, less the {number(calls, 0)} ns of two calls that do nothing."
        return ["## The allocator", "", *table(head, rows), note, ""]

    def events(self):
        rows = []
        names = [(name, (name, "events")) for name in self.beside()]
        names += [(command, ("events", command)) for command in (self.part("events") or {}) if command != "part_seconds"]
        for name, path in names:
            found = self.part(*path)
            if found:
                first = found["first_difference"]
                told = "none" if first is None else f"after {first['after']}: {first['one']} / {first['other']}"
                rows.append([name, *found["events"], told])
        head = ["two steps", "events on the GPU", "events counted for it", "first difference"]
        return ["## Events on the GPU and on the accounting device", "", *table(head, rows)] if rows else []

    def driver(self):
        rows = []
        for name in self.beside():
            found = self.part(name, "ours", "driver")
            if found:
                keys = ["allocator_gave_back_bytes", "driver_got_back_bytes", "outside_the_allocator_bytes"]
                rows.append([name, *(f"{found[key]:,}" for key in keys)])
        head = ["bytes", "given back by the allocator", "free again, as the driver says", "in use outside of the allocator"]
        return ["## The allocator's figures and the driver's", "", *table(head, rows)] if rows else []

    def unchanged(self):
        rows = []
        for name in self.part("unchanged") or {}:
            found = self.part("unchanged", name) if name != "part_seconds" else None
            if found:
                rows.append([name, found["calls"], mib(found["held"]), mib(found["reserved"])])
        head = ["`highwater run`", "calls recorded", "most held of the driver, MiB", "most reserved, as its own allocator says, MiB"]
        return ["## Programs that never heard of Highwater", "", *table(head, rows)] if rows else []

    def losses(self):
        rows = []
        for command in self.part("losses") or {}:
            found = self.part("losses", command) if command != "part_seconds" else None
            if found:
                rows.append([command, len(found["cpu"]), f"{found['largest_relative_difference']:.1e}"])
        head = ["scenario", "steps", "largest relative difference"]
        return ["## Losses on the GPU and on the processor", "", *table(head, rows)] if rows else []

    def tests(self):
        rows = []
        for name in self.part("tests") or {}:
            found = self.part("tests", name) if name != "part_seconds" else None
            if found:
                cells = [found[key] for key in ["passed", "failed", "skipped", "seconds"]]
                rows.append([name, *cells, " ".join(found["names"])])
        return ["## Tests", "", *table(["", "passed", "failed", "of these skipped", "s", "which failed"], rows)] if rows else []

    def text(self):
        parts = [self.about, self.steps, self.peaks, self.allocator, self.events, self.driver, self.unchanged, self.losses, self.tests]
        lines = [line for part in parts for line in part()]
        for name, result in self.results.items():
            if fails(result):
                self.failed((name,), result)
        if self.failures:
            lines += ["## What has no result", ""]
            lines += [f"- {name}: {why}" for name, why in self.failures] + [""]
        return "\n".join(lines)


def page(results):
    return Page(results).text()
