"""Writes what PyTorch's caching allocator does with random requests, as text that our allocator is tested against.

    python make_fixtures.py            one line a case: its name, its settings, and the device memory that it wants
    python make_fixtures.py CASE       writes CASE.txt beside this script

Needs PyTorch with a CUDA device, and nothing else. The files beside this script were made with PyTorch 2.15.0 over a
CUDA runtime that counts memory without having any, so that cases can choose the size of the device; on another device
sizes and addresses of the same kind come out, but not the same files. One process serves one case, since PyTorch reads
its settings once.

A file is a header (`config`, `capacity`, `outside`), then requests, each with what it caused on the indented lines
below it, then the final segments and statistics. Segments and reservations are numbered in the order in which they were
obtained; `block 3 512` is the block's place: 512 bytes into number 3. Streams are named by their handle.
"""

import os
import random
import sys

KIB, MIB = 1 << 10, 1 << 20

# name: (settings, device GiB, requests, streams, sizes, live MiB around which the program keeps)
CASES = {
    "default": ("", 200, 400, 1, "mixed", 300),
    "streams": ("", 200, 320, 3, "mixed", 300),
    "expandable": ("expandable_segments:True", 16, 360, 2, "mixed", 300),
    "roundup": ("roundup_power2_divisions:[2:4,64:2,128:8,>:1]", 200, 300, 1, "wide", 1500),
    "max_split": ("max_split_size_mb:48,max_non_split_rounding_mb:24", 200, 320, 1, "wide", 1500),
    "large_segment": ("large_segment_size_mb:64,max_split_size_mb:100", 200, 260, 2, "wide", 1500),
    "garbage": ("garbage_collection_threshold:0.5,per_process_memory_fraction:0.4", 4, 420, 2, "wide", 900),
    "fraction": ("per_process_memory_fraction:0.25", 4, 320, 2, "wide", 900),
    "oom": ("", 1, 400, 2, "wide", 900),
    "oom_expandable": ("expandable_segments:True", 1, 400, 2, "wide", 950),
    "oom_max_split": ("max_split_size_mb:32", 1, 400, 2, "wide", 900),
}


def size(rng, sizes):
    """A random request in bytes, with the edges of the allocator's rules more frequent than chance would have them."""
    kind = rng.random()
    if kind < 0.12:
        edges = [1, 511, 512, 513, 1 * MIB, 1 * MIB + 1, 10 * MIB - 512, 10 * MIB - 1, 10 * MIB, 20 * MIB, 32 * MIB, 48 * MIB]
        return rng.choice(edges)
    if sizes == "mixed":
        bounds = [(1, 4 * KIB)] * 4 + [(4 * KIB, MIB)] * 4 + [(MIB, 10 * MIB)] * 3 + [(10 * MIB, 90 * MIB)]
    else:
        bounds = [(1, 64 * KIB), (64 * KIB, MIB)] + [(MIB, 10 * MIB)] * 3 + [(10 * MIB, 64 * MIB)] * 3 + [(64 * MIB, 260 * MIB)]
    return rng.randint(*rng.choice(bounds))


class Places:
    """Numbers segments and reservations, and says where in them an address lies."""

    def __init__(self, reservation_bytes):
        self.reservation_bytes = reservation_bytes
        self.count = 0
        self.ranges = {}  # first address: [number, bytes, mapped bytes]

    def find(self, address):
        for first, entry in self.ranges.items():
            if first <= address < first + entry[1]:
                return first, entry
        return None, None

    def enter(self, address, size):
        self.ranges[address] = [self.count, size, 0]
        self.count += 1

    def text(self, address):
        first, entry = self.find(address)
        return f"{entry[0]} {address - first}"

    def event(self, event):
        """Takes note of a segment event and gives its line."""
        action, address, size = event["action"], event["addr"], event["size"]
        if action == "segment_alloc":
            self.enter(address, size)
        elif action == "segment_map" and self.find(address)[0] is None:
            self.enter(address, self.reservation_bytes[event["size"] % (20 * MIB) != 0])
        line = f"  {action} {self.text(address)} {size}"
        first, entry = self.find(address)
        if action == "segment_map":
            entry[2] += size
        elif action == "segment_unmap":
            entry[2] -= size
        if action == "segment_free" or (action == "segment_unmap" and entry[2] == 0):
            del self.ranges[first]
        return line


def main(case):
    settings, gib, requests, stream_count, sizes, live_mib = CASES[case]
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = settings
    import torch

    free, total = torch.cuda.mem_get_info()
    if total != gib << 30:
        print(f"note: this device has {total} bytes; {case} is meant for {gib} GiB", file=sys.stderr)
    # Address ranges lie far apart; a length that is right to within a page suffices to tell them.
    places = Places([total + total // 8] * 2)
    rng = random.Random(case)
    streams = [torch.cuda.default_stream()] + [torch.cuda.Stream() for _ in range(stream_count - 1)]
    torch.cuda.memory._record_memory_history("all", context=None)
    lines = [f"# PyTorch {torch.__version__}", f"config {settings}", f"capacity {total}", f"outside {total - free}"]
    live, next_key, seen = {}, 0, 0

    def caused():
        nonlocal seen
        trace = [event for event in torch.cuda.memory._snapshot()["device_traces"][0] if event["action"] != "snapshot"]
        new, seen = trace[seen:], len(trace)
        return new

    def segments_of(events):
        return [places.event(event) for event in events if event["action"].startswith("segment")]

    for _ in range(requests):
        draw = rng.random()
        crowded = sum(tensor.nbytes for tensor in live.values()) > live_mib * MIB
        if draw < 0.015:
            lines.append("empty_cache")
            torch.cuda.empty_cache()
            lines.extend(segments_of(caused()))
        elif draw < 0.05 and live and stream_count > 1:
            key, stream = rng.choice(sorted(live)), rng.choice(streams)
            live[key].record_stream(stream)
            lines.append(f"record_stream {key} {stream.cuda_stream}")
        elif draw < (0.75 if crowded else 0.35) and live:
            # A burst now and then, so that neighbours come free together.
            for _ in range(rng.choice([1, 1, 1, 1, 6])):
                if live:
                    key = rng.choice(sorted(live))
                    del live[key]
                    lines.append(f"free {key}")
            lines.extend(segments_of(caused()))
        else:
            key, bytes_, stream = next_key, size(rng, sizes), rng.choice(streams)
            next_key += 1
            lines.append(f"alloc {key} {bytes_} {stream.cuda_stream}")
            try:
                with torch.cuda.stream(stream):
                    live[key] = torch.empty(bytes_, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError:
                pass
            events = caused()
            lines.extend(segments_of(events))
            if key in live:
                lines.append(f"  block {places.text(live[key].data_ptr())}")
            else:
                lines.append("  out_of_memory")

    stats = torch.cuda.memory_stats()
    lines.append("end")
    # In the order of their numbers: the driver chooses addresses as it likes.
    segments = torch.cuda.memory._snapshot()["segments"]
    for segment in sorted(segments, key=lambda segment: [int(part) for part in places.text(segment["address"]).split()]):
        kind = "expandable" if segment["is_expandable"] else "fixed"
        where = places.text(segment["address"])
        lines.append(f"segment {where} {segment['total_size']} {segment['stream']} {segment['segment_type']} {kind}")
        for block in segment["blocks"]:
            requested = 0 if block["state"] == "inactive" else block["requested_size"]
            lines.append(f"  {block['state']} {block['size']} {requested}")
    ours = [name for name in stats if "private_pools" not in name and name != "num_oom_rejections"]
    lines.extend(f"stat {name} {stats[name]}" for name in ours)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{case}.txt"), "w") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        main(sys.argv[1])
    else:
        for name, (settings, gib, *_) in CASES.items():
            print(name, settings or "-", f"{gib} GiB")
