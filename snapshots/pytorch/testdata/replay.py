#!/usr/bin/env python3
"""Replay: the totals of a PyTorch memory snapshot after each of its events, worked out a second time.

Written from the format's and the caching allocator's rules alone, to test Highwater's importer against; simple rather
than fast. Standard library only. It unpickles what it is given: use it on recordings that you trust.

    replay.py FILE…            prints the figures of each file as JSON
    replay.py --check FILE…    holds the figures against PyTorch's own counters (expected.json beside), against what the
                               snapshot states for its segments, and against itself with the first events cut off

Totals, in bytes, after each event of a device:

    requested   what was asked for by blocks from alloc to free_requested
    allocated   the same blocks after rounding
    active      rounded size of blocks from alloc to free_completed
    reserved    segments, or mapped pages
    unfinished  what was asked for by blocks from alloc to free_completed; PyTorch calls this one requested_bytes

Blocks and segments that exist before the first event count from the start. How large a block is after rounding is in the
file only for those alive at the end; for the others it follows from how the allocator carves its segments:

    - a request is rounded up (`rounded`);
    - in a small or an expandable segment, a block is exactly that large;
    - in a large segment, what would remain of the free block that it is put in is split off if it is more than 1 MiB,
      unless the request reaches max_split_size; else the block keeps it.

So the free blocks are kept by address, as the events carve and merge them. For blocks older than the recording the same
follows backwards: no block of a large segment is 1 MiB or smaller, so a gap of up to 1 MiB behind a block belongs to it.
"""

import argparse
import base64
import gzip
import json
import pathlib
import pickle
import re
import sys
from bisect import bisect_right, insort

MIB = 1 << 20
SMALLEST = 512
SMALL_REQUEST = MIB
TOTALS = ("requested", "allocated", "active", "reserved", "unfinished")
OBTAINED, GIVEN_BACK = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")


# ---- reading


def load(path):
    data = pathlib.Path(path).read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    page = re.search(rb'"base64": "([^"]+)"', data[:4_000]) or re.search(rb'"([A-Za-z0-9+/=]{64,})"', data)
    if data.lstrip()[:1] == b"<" and page:
        data = base64.b64decode(page.group(1))
    snapshot = json.loads(data) if data.lstrip()[:1] in (b"{", b"[") else pickle.loads(data)
    if isinstance(snapshot, list):
        snapshot = {"segments": snapshot, "device_traces": []}
    return snapshot


def blocks_of(segment):
    """(address, rounded size, requested size, state) of each block; old files lack addresses and requested sizes."""
    address = segment["address"]
    for block in segment["blocks"]:
        address = block.get("address", address)
        history = block.get("history") or [{}]
        requested = block.get("requested_size", history[0].get("real_size", block["size"]))
        yield address, block["size"], requested, block["state"]
        address += block["size"]


# ---- rounding


class Rules:
    """The allocator's settings, as far as they decide sizes."""

    def __init__(self, settings):
        limit = settings.get("max_split_size", -1)
        self.max_split = limit if limit > 0 else 1 << 63
        self.expandable = bool(settings.get("expandable_segments", False))
        divisions = settings.get("roundup_power2_divisions") or {}
        self.divisions = [divisions.get(str(1 << power), 0) for power in range(16)]

    def rounded(self, size):
        if size < SMALLEST:
            return SMALLEST
        parts = self.divisions[min(max(size.bit_length() - 1 - 20, 0), 15)]
        if parts <= 1 or size <= SMALLEST * parts:
            return -(-size // SMALLEST) * SMALLEST
        below = 1 << (size.bit_length() - 1)
        if size == below:
            return size
        part = below // parts
        return -(-size // part) * part if part else 2 * below


# ---- what was there before the first event


class Space:
    """The free and used ranges of a device by address: starts of blocks, and the ranges obtained from the driver."""

    def __init__(self, rules):
        self.rules = rules
        self.ranges = {}  # start -> [end, is_small, is_expandable, (stream, pool)]
        self.starts = []  # of the ranges, sorted
        self.free = {}  # start -> end
        self.free_ends = {}  # end -> start
        self.used = {}  # start -> end

    def obtain(self, start, size, is_small, is_expandable, owner):
        self.ranges[start] = [start + size, is_small, is_expandable, owner]
        insort(self.starts, start)
        self.add_free(start, start + size)

    def add_free(self, start, end):
        """Adds a free range, joined with free neighbours in the same range of the driver's."""
        around = self.range_at(start)
        before = self.free_ends.get(start)
        if before is not None and self.joins(self.range_at(before), around):
            del self.free[before], self.free_ends[start]
            start = before
        after = self.free.get(end)
        if after is not None and self.joins(around, self.range_at(end)):
            del self.free[end], self.free_ends[after]
            end = after
        self.free[start], self.free_ends[end] = end, start

    def joins(self, one, other):
        """Ranges of one expandable reservation are one; segments never are."""
        if one is None or other is None:
            return False
        return one is other or (one[2] and other[2] and one[1] == other[1] and one[3] == other[3])

    def range_at(self, address):
        start = self.floor(address)
        return None if start is None else self.ranges[start]

    def floor(self, address):
        position = bisect_right(self.starts, address) - 1
        if position < 0 or self.ranges[self.starts[position]][0] <= address:
            return None
        return self.starts[position]

    def give_back(self, start, size):
        """A segment, or pages in the middle of a free range."""
        end = start + size
        for low, high in list(self.free.items()):
            if low < end and start < high:
                del self.free[low], self.free_ends[high]
                for piece in ((low, min(high, start)), (max(low, end), high)):
                    if piece[0] < piece[1]:
                        self.free[piece[0]], self.free_ends[piece[1]] = piece[1], piece[0]
        for low, row in list(self.ranges.items()):
            if low < end and start < row[0]:
                del self.ranges[low]
                if low < start:
                    self.ranges[low] = [start, *row[1:]]
                if end < row[0]:
                    self.ranges[end] = row
        self.starts = sorted(self.ranges)

    def place(self, address, size):
        """Takes a block for a request of `size` at `address`; its rounded size, None where the space is not known."""
        want = self.rules.rounded(size)
        end = self.free.get(address)
        if end is None or end - address < want:
            return None
        _, is_small, is_expandable, _ = self.range_at(address)
        left = end - address - want
        if is_small or is_expandable:
            is_split = left >= SMALLEST
        else:
            is_split = want < self.rules.max_split and left > SMALL_REQUEST
        got = want if is_split else end - address
        self.take(address, got)
        return got

    def take(self, address, size):
        end = self.free.pop(address)
        del self.free_ends[end]
        if address + size < end:
            self.free[address + size], self.free_ends[end] = end, address + size
        self.used[address] = address + size

    def give(self, address):
        end = self.used.pop(address)
        self.add_free(address, end)


class Block:
    def __init__(self, address, requested, size=None, is_waiting=False):
        self.address, self.requested, self.size, self.is_waiting = address, requested, size, is_waiting


def owner_of(row, key):
    return row.get("stream", 0), tuple(row.get(key, (0, 0)))


def range_of(event):
    """(start, size, is_small, is_expandable, owner) of an event about a range. Segments of small blocks have 2 MiB,
    others 10 MiB or more; in expandable ones every block is exact, so that it does not matter."""
    is_expandable = event["action"] in ("segment_map", "segment_unmap")
    return event["addr"], event["size"], event["size"] == 2 * MIB, is_expandable, owner_of(event, "pool_id")


def minus(ranges, start, size):
    """The ranges without start..start+size."""
    out = []
    for low, length, *facts in ranges:
        for piece in ((low, min(low + length, start)), (max(low, start + size), low + length)):
            if piece[0] < piece[1]:
                out.append((piece[0], piece[1] - piece[0], *facts))
    return out


def ranges_at_start(segments, trace):
    """Undoes what the events did to the ranges that are there at the end, last event first."""
    ranges = []
    for segment in segments:
        is_small, is_expandable = segment.get("segment_type") == "small", segment.get("is_expandable", False)
        owner = owner_of(segment, "segment_pool_id")
        ranges.append((segment["address"], segment["total_size"], is_small, is_expandable, owner))
    for event in reversed(trace):
        if event["action"] in OBTAINED:
            ranges = minus(ranges, event["addr"], event["size"])
        elif event["action"] in GIVEN_BACK:
            ranges.append(range_of(event))
    return ranges


BLOCK_ACTIONS = ("alloc", "free_requested", "free_completed", "free")


def blocks_at_start(segments, trace):
    """The blocks older than the trace, by address: those freed before any alloc of their address, those alive at the
    end whose alloc is not in the trace."""
    older, seen = {}, {}
    for event in trace:
        action = event["action"]
        if action not in BLOCK_ACTIONS:
            continue
        address = event["addr"]
        if address not in seen and action != "alloc":
            older[address] = Block(address, event["size"], is_waiting=action == "free_completed")
        seen[address] = action
    for segment in segments:
        for address, size, requested, state in blocks_of(segment):
            if state == "inactive":
                continue
            if address not in seen:
                older[address] = Block(address, requested, size, is_waiting=state != "active_allocated")
            elif address in older and all(e["action"] != "alloc" for e in trace if e.get("addr") == address):
                older[address].size = size  # still waiting at the end
    return older


def borders_behind(older, trace):
    """Where something was put close behind a block older than the trace while that was alive: there the block ends, even
    if the space behind it was free when the trace began."""
    alive, borders = sorted(older), {}
    for event in trace:
        if event["action"] in ("free_completed", "free"):
            position = bisect_right(alive, event["addr"]) - 1
            if position >= 0 and alive[position] == event["addr"]:
                del alive[position]
        elif event["action"] == "alloc":
            position = bisect_right(alive, event["addr"]) - 1
            if position >= 0:
                before = alive[position]
                borders[before] = min(borders.get(before, event["addr"]), event["addr"])
    return borders


def carve(space, older, trace):
    """Puts the blocks older than the trace into the space and gives each its rounded size."""
    starts = sorted(older)
    borders = borders_behind(older, trace)
    for position, start in enumerate(starts):
        block = older[start]
        low = space.floor(start)
        if low is None:
            block.size = block.size or space.rules.rounded(block.requested)
            continue
        end, is_small, is_expandable, owner = space.ranges[low]
        want = space.rules.rounded(block.requested)
        while is_expandable and end in space.ranges and space.ranges[end][2] and space.ranges[end][3] == owner:
            end = space.ranges[end][0]
        border = min([end, *starts[position + 1 : position + 2], borders.get(start, end)])
        if block.size is None:
            is_exact = is_small or is_expandable
            keeps = border - start - want <= SMALL_REQUEST or want >= space.rules.max_split
            block.size = want if is_exact or not keeps else border - start
        # Cuts the free range at the block's start, then takes it.
        holder = max(s for s in space.free if s <= start)
        stop = space.free.pop(holder)
        del space.free_ends[stop]
        if holder < start:
            space.free[holder], space.free_ends[start] = start, holder
        space.free[start], space.free_ends[stop] = stop, start
        space.take(start, block.size)


# ---- the replay


def completed_requests(trace, ends):
    """The free_requested events that stand for the completion too, as no other event tells of it: another block is put
    there, or the block is not waiting at the end."""
    out, waiting = set(), {}
    for index, event in enumerate(trace):
        if event["action"] == "free_requested":
            waiting[event["addr"]] = index
        elif event["action"] == "free_completed":
            waiting.pop(event["addr"], None)
        elif event["action"] == "alloc" and event["addr"] in waiting:
            out.add(waiting.pop(event["addr"]))
    is_waiting = {address for address, (_, state) in ends.items() if state != "active_allocated"}
    return out | {index for address, index in waiting.items() if address not in is_waiting}


def replay(segments, trace, settings):
    """The totals before the first event, then after each."""
    rules = Rules(settings)
    space = Space(rules)
    for row in ranges_at_start(segments, trace):
        space.obtain(*row)
    older = blocks_at_start(segments, trace)
    carve(space, older, trace)
    ends = {a: (size, state) for segment in segments for a, size, _, state in blocks_of(segment) if state != "inactive"}
    last_alloc = {event["addr"]: index for index, event in enumerate(trace) if event["action"] == "alloc"}
    completed = completed_requests(trace, ends)

    live = dict(older)
    now = dict.fromkeys(TOTALS, 0)
    for block in older.values():
        now["active"] += block.size
        now["unfinished"] += block.requested
        if not block.is_waiting:
            now["requested"] += block.requested
            now["allocated"] += block.size
    now["reserved"] = sum(row[1] for row in ranges_at_start(segments, trace))
    after = [dict(now)]
    told, unknown, differing = 0, 0, 0

    def request(block):
        if not block.is_waiting:
            now["requested"] -= block.requested
            now["allocated"] -= block.size
            block.is_waiting = True

    def complete(block):
        request(block)
        now["active"] -= block.size
        now["unfinished"] -= block.requested
        del live[block.address]
        if block.address in space.used:
            space.give(block.address)

    for index, event in enumerate(trace):
        action, address, size = event["action"], event.get("addr", 0), event["size"]
        if action in OBTAINED:
            space.obtain(*range_of(event))
            now["reserved"] += size
        elif action in GIVEN_BACK:
            space.give_back(address, size)
            now["reserved"] -= size
        elif action == "alloc":
            if address in live:  # its completion is not in the recording
                complete(live[address])
            got = space.place(address, size)
            if last_alloc[address] == index and address in ends:
                told += 1
                differing += got != ends[address][0]
                got = ends[address][0]
            elif got is None:
                unknown += 1
                got = rules.rounded(size)
            live[address] = Block(address, size, got)
            for total, bytes_ in zip(TOTALS, (size, got, got, 0, size)):
                now[total] += bytes_
        elif action in ("free_requested", "free_completed", "free") and address in live:
            block = live[address]
            if action == "free_requested" and index not in completed:
                request(block)
            else:
                complete(block)
        after.append(dict(now))
    facts = {"sizes_told": told, "sizes_told_otherwise": differing, "places_unknown": unknown}
    return after, facts


def figures(snapshot, series=False):
    """The figures of each device of a snapshot."""
    settings = snapshot.get("allocator_settings") or {}
    traces = snapshot.get("device_traces") or []
    devices = {segment.get("device", 0) for segment in snapshot["segments"]}
    devices |= {i for i, trace in enumerate(traces) if any(event["action"] != "snapshot" for event in trace)}
    out = {}
    for device in sorted(devices):
        trace = traces[device] if device < len(traces) else []
        segments = [segment for segment in snapshot["segments"] if segment.get("device", 0) == device]
        after, facts = replay(segments, trace, settings)
        actions = [event["action"] for event in trace]
        peaks = {}
        for total in TOTALS:
            most = max(row[total] for row in after)
            first = next(index for index, row in enumerate(after) if row[total] == most)
            peaks[total] = {"bytes": most, "event": first - 1 if first else None}
            if first:
                peaks[total].update(action=actions[first - 1], nth=actions[: first - 1].count(actions[first - 1]))
                frames = trace[first - 1].get("frames") or []
                peaks[total]["frames"] = [[frame["name"], frame["filename"], frame["line"]] for frame in frames]
        out[str(device)] = {
            "events": len(trace),
            "actions": {action: actions.count(action) for action in sorted(set(actions))},
            "baseline": after[0],
            "peaks": peaks,
            "end": after[-1],
        }
        if series:
            out[str(device)].update(series=after, **facts)
    return out


def annotations(snapshot):
    """How many ranges of each name were marked; a start or an end alone is one too."""
    marks = [(a["name"], a.get("device", 0), a["stage"] == "START") for a in snapshot.get("external_annotations") or []]
    for device, trace in enumerate(snapshot.get("device_traces") or []):
        frames = (event["frames"][0] for event in trace if event["action"] == "user_defined")
        marks += [(frame["filename"], device, frame["name"] == "START") for frame in frames]
    count, open_ = {}, {}
    for name, device, is_start in marks:
        depth = open_.get((name, device), 0)
        count[name] = count.get(name, 0) + (is_start or not depth)
        open_[name, device] = max(depth + (1 if is_start else -1), 0)
    return count


# ---- checks


def differences(path, snapshot):
    """What is not as it should be, in words; and which checks could be made."""
    made, wrong = [], []
    beside = pathlib.Path(path).parent / "expected.json"
    told = json.loads(beside.read_text()).get(pathlib.Path(path).name, {}).get("pytorch", {}) if beside.exists() else {}
    found = figures(snapshot, series=True)
    for device, one in found.items():
        segments = [segment for segment in snapshot["segments"] if str(segment.get("device", 0)) == device]
        if all("active_size" in segment for segment in segments):
            made.append("segments")
            sums = {"reserved": "total_size", "allocated": "allocated_size", "active": "active_size"}
            for total, key in sums.items():
                stated = sum(segment[key] for segment in segments)
                if stated != one["end"][total]:
                    wrong.append(f"device {device}: {total} ends at {one['end'][total]}, segments say {stated}")
        if one["sizes_told_otherwise"]:
            wrong.append(f"device {device}: {one['sizes_told_otherwise']} sizes differ from those at the end")
        if one["places_unknown"]:
            made.append(f"{one['places_unknown']} sizes by rounding alone, as their segment is not in the file")
        counted = told.get("memory_stats", {}).get(device)
        if counted:
            since = told["counted_since"]
            made.append(f"memory_stats since {since}" if since else "memory_stats at the end")
            for total, key in (("unfinished", "requested"), *((t, t) for t in ("allocated", "active", "reserved"))):
                pairs = [("end", one["end"][total], counted["current"][key])]
                if since:
                    pairs.append(("peak", one["peaks"][total]["bytes"], counted["peak"][key]))
                for name, ours, theirs in pairs:
                    if ours != theirs:
                        wrong.append(f"device {device}: {name} of {total} is {ours}, PyTorch counted {theirs}")
        # The end of a recording, read alone, must tell the same: as though a ring had lost the beginning.
        trace = snapshot["device_traces"][int(device)] if snapshot.get("device_traces") else []
        is_whole = {"alloc", "free_completed"} <= one["actions"].keys() and {*OBTAINED} & one["actions"].keys()
        if len(trace) > 1 and is_whole:
            parts = min(len(trace), 400)
            cuts = sorted({len(trace) * part // parts for part in range(1, parts)})
            guessed = 0
            for cut in cuts:
                rest, _ = replay(segments, trace[cut:], snapshot.get("allocator_settings") or {})
                exact = one["series"][cut:]
                guessed += rest != exact  # the rounding of a block of which nothing but its free is left
                for row, (ours, whole) in enumerate(zip(rest, exact)):
                    if any(ours[total] != whole[total] for total in ("requested", "reserved", "unfinished")):
                        wrong.append(f"device {device}: without its first {cut} events, event {cut + row - 1} has "
                                     f"{ours} instead of {whole}")
                        break
            made.append(f"{len(cuts)} cuts, {guessed} with roundings lost")
    return sorted(set(made)), wrong


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("files", nargs="+")
    options.add_argument("--check", action="store_true")
    options = options.parse_args()
    failed = 0
    for path in options.files:
        snapshot = load(path)
        if not options.check:
            print(json.dumps({path: figures(snapshot)}, indent=1))
            continue
        made, wrong = differences(path, snapshot)
        print(f"{path}: {'; '.join(wrong) or 'agrees'} ({', '.join(made) or 'nothing to check against'})")
        failed += bool(wrong)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
