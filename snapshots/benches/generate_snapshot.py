#!/usr/bin/env python3
"""Writes a PyTorch memory snapshot of any size to measure readers with, and prints as JSON what they must find in it.

The events are those of a training run on an allocator with PyTorch's rules; the same options give the same bytes. Each
event takes about a kilobyte of memory.
"""

import argparse
import bisect
import json
import pickle

KIB = 1 << 10
MIB = 1 << 20
LAYERS = 48


class Block:
    """Memory within a segment; free if it has no stack."""

    __slots__ = ("address", "after", "before", "frames", "requested", "segment", "size")

    def __init__(self, address, size, segment):
        self.address, self.size, self.segment = address, size, segment
        self.before = self.after = self.frames = None
        self.requested = 0


class Segment:
    def __init__(self, address, size, is_small, frames):
        self.address, self.size, self.is_small, self.frames = address, size, is_small, frames
        self.first = Block(address, size, self)

    def blocks(self):
        block = self.first
        while block:
            yield block
            block = block.after


class Allocator:
    """Memory of a device, carved and merged by the rules of PyTorch's caching allocator with its usual settings."""

    def __init__(self, address):
        self.next, self.segments = address, []
        # Free blocks by size and address: of segments for small requests, and of others.
        self.free_blocks = {True: [], False: []}

    def malloc(self, requested, frames):
        """Hands out a block; with the segment that had to be obtained."""
        size = -(-max(requested, 1) // 512) * 512
        is_small, segment = size <= MIB, None
        free = self.free_blocks[is_small]
        fit = bisect.bisect_left(free, (size,))
        if fit == len(free):
            segment = self.obtain(size, is_small, frames)
            fit = bisect.bisect_left(free, (size,))
        block = free.pop(fit)[2]
        left = block.size - size
        if left >= 512 if is_small else left > MIB:
            block.size = size
            rest = Block(block.address + size, left, block.segment)
            rest.before, rest.after, block.after = block, block.after, rest
            if rest.after:
                rest.after.before = rest
            self.add_free(rest)
        block.requested, block.frames = requested, frames
        return block, segment

    def free(self, block):
        """Takes a block back, and joins it with the free ones next to it."""
        before, after = block.before, block.after
        block.frames, block.requested = None, 0
        if after and after.frames is None:
            self.remove_free(after)
            self.join(block, after)
        if before and before.frames is None:
            self.remove_free(before)
            self.join(before, block)
            block = before
        self.add_free(block)

    @staticmethod
    def join(block, after):
        block.size += after.size
        block.after = after.after
        if after.after:
            after.after.before = block

    def add_free(self, block):
        bisect.insort(self.free_blocks[block.segment.is_small], (block.size, block.address, block))

    def remove_free(self, block):
        free = self.free_blocks[block.segment.is_small]
        del free[bisect.bisect_left(free, (block.size, block.address))]

    def obtain(self, size, is_small, frames):
        size = 2 * MIB if is_small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        segment = Segment(self.next, size, is_small, frames)
        self.next += size + 2 * MIB
        self.segments.append(segment)
        self.add_free(segment.first)
        return segment


class Full(Exception):
    """The events are all there."""


class Stacks:
    """Call stacks: a list for each call, of frames that the outer ones of more stacks share."""

    def __init__(self, depth, stacks):
        self.depth, self.stacks, self.frames, self.called = depth, stacks, {}, {}

    def frame(self, height, number):
        if (height, number) not in self.frames:
            folder = f"/opt/train/lib/python3.12/site-packages/model/block_{height}"
            self.frames[height, number] = {
                "name": f"forward_{height}_{number % 97}",
                "filename": f"{folder}/part_{number // 40}.py",
                "line": 12 + number * 7 % 1_900,
            }
        return self.frames[height, number]

    def call(self, place):
        """The frames of a call, innermost first."""
        place %= self.stacks
        if place not in self.called:
            at_height = [min(1 << min(height // 2, 40), self.stacks) for height in range(self.depth)]
            numbers = [place * count // self.stacks for count in at_height]
            self.called[place] = [self.frame(*frame) for frame in enumerate(numbers)][::-1]
        return list(self.called[place])


class Program:
    """A program on one device, which stops in the middle of its work once it made its events."""

    def __init__(self, options, device, stacks):
        self.numbers = (0x9E3779B97F4A7C15 ^ options.seed * 0x2545_F491_4F6C_DD1D % 2**64 ^ device << 32) | 1
        self.memory = Allocator(0x7F10_0000_0000 + device * (1 << 45))
        self.stacks, self.time_us, self.events, self.steps = stacks, 1_760_000_000_000_000, [], []
        self.found = dict.fromkeys(("allocs", "requested_peak", "requested_event", "requested_end"), 0)
        self.found |= {"reserved_peak": 0, "reserved_end": 0}
        self.most = options.events // options.devices + (device < options.events % options.devices)
        try:
            if options.oldest_first is None:
                self.train()
            else:
                self.most = float("inf")
                self.queue(options.oldest_first // options.devices)
        except Full:
            pass

    def below(self, end):
        """A number below `end`: it looks random and is the same in every run."""
        self.numbers ^= self.numbers << 13 & 2**64 - 1
        self.numbers ^= self.numbers >> 7
        self.numbers ^= self.numbers << 17 & 2**64 - 1
        return self.numbers % end

    def record(self, action, address, size, frames):
        """Adds an event; the events of one call share the stack that was captured."""
        self.time_us += self.below(12)
        self.events.append({
            "action": action,
            "addr": address,
            "size": size,
            "stream": 0,
            "time_us": self.time_us,
            # Each event has a text and a pair of its own.
            "compile_context": "/".join("NA"),
            "user_metadata": "",
            "pool_id": tuple([0, 0]),
            "frames": frames,
        })
        self.find(action, size)
        if len(self.events) == self.most:
            raise Full

    def find(self, action, size):
        found = self.found
        if action == "segment_alloc":
            found["reserved_end"] += size
            found["reserved_peak"] = max(found["reserved_peak"], found["reserved_end"])
        elif action == "alloc":
            found["allocs"] += 1
            found["requested_end"] += size
            if found["requested_end"] > found["requested_peak"]:
                found |= {"requested_peak": found["requested_end"], "requested_event": len(self.events) - 1}
        elif action == "free_requested":
            found["requested_end"] -= size

    def alloc(self, place, size):
        if len(self.events) == self.most:
            raise Full
        frames = self.stacks.call(place)
        block, segment = self.memory.malloc(size, frames)
        if segment:
            try:
                self.record("segment_alloc", segment.address, segment.size, frames)
            except Full:
                # No room for the block's own event: it was never handed out.
                self.memory.free(block)
                raise
        self.record("alloc", block.address, size, frames)
        return block

    def free(self, place, block):
        size = block.requested
        # Both events or neither, so that the state is always the one that they lead to; a block fills the last place.
        while len(self.events) + 2 > self.most:
            self.alloc(place, size)
        frames = self.stacks.call(place)
        address = block.address
        self.memory.free(block)
        self.record("free_requested", address, size, frames)
        self.record("free_completed", address, size, frames)

    def queue(self, blocks):
        live = [self.alloc(block, MIB - 4 * (block % 7)) for block in range(blocks)]
        for place, block in enumerate(live):
            self.free(place, block)

    def train(self):
        """A deep net: forward keeps activations, backward frees them in reverse and makes gradients, which the next
        step frees oldest first; the first step makes the optimizer's state."""
        weights = [size * KIB for size in (12, 4 * KIB, 16, 64 * KIB)] * LAYERS
        for place, size in enumerate(weights):
            self.alloc(place, size)
        gradients = []
        while True:
            began = self.time_us
            rows = 8 * (32 + self.below(33))
            kept = []
            for place, part in ((1_000 + layer * 40 + part, part) for layer in range(LAYERS) for part in range(6)):
                size = rows * (2_048, 4_096, 8_192, 24, 8_192, 2_048)[part] + 4 * part
                kept.append((place, self.alloc(place, size)))
                for extra in range(self.below(3)):
                    temporary = self.alloc(place + 7 + extra, 4 + self.below(3) * rows * 1_000)
                    self.free(place + 9 + extra, temporary)
            for place, block in enumerate(gradients):
                self.free(4_000 + place, block)
            gradients, row = [], len(weights)
            for place, activation in reversed(kept):
                flowing = self.alloc(place + 20, activation.requested)
                if place % 3 > 0 and row > 0:
                    row -= 1
                    gradients.append(self.alloc(place + 21, weights[row]))
                self.free(place + 22, activation)
                self.free(place + 23, flowing)
            for place, size in zip(range(6_000, 9_000, 3), weights):
                if not self.steps:
                    self.alloc(place, size)
                    self.alloc(place + 1, size)
                self.free(place + 2, self.alloc(place + 2, size))
            self.steps.append((began, self.time_us))


def segment_entry(device, segment):
    blocks = [
        {
            "address": block.address,
            "size": block.size,
            "requested_size": block.requested,
            "state": "inactive" if block.frames is None else "active_allocated",
            "frames": [] if block.frames is None else block.frames,
        }
        for block in segment.blocks()
    ]
    allocated = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
    return {
        "device": device,
        "address": segment.address,
        "total_size": segment.size,
        "allocated_size": allocated,
        "active_size": allocated,
        "requested_size": sum(block["requested_size"] for block in blocks),
        "stream": 0,
        "segment_type": "small" if segment.is_small else "large",
        "segment_pool_id": tuple([0, 0]),
        "is_expandable": False,
        "frames": segment.frames,
        "blocks": blocks,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, help="the file to write")
    parser.add_argument("--events", type=int, default=100_000, help="events in all")
    parser.add_argument("--oldest-first", type=int, help="in place of training: blocks of some 1 MiB, freed in order")
    parser.add_argument("--devices", type=int, default=1, help="devices that share the events")
    parser.add_argument("--depth", type=int, default=40, help="frames of a stack")
    parser.add_argument("--stacks", type=int, default=4_000, help="distinct stacks")
    parser.add_argument("--seed", type=int, default=0, help="another run of the same kind")
    options = parser.parse_args()
    stacks = Stacks(options.depth, options.stacks)
    programs = [Program(options, device, stacks) for device in range(options.devices)]
    snapshot = {
        "segments": [
            segment_entry(device, segment)
            for device, program in enumerate(programs)
            for segment in program.memory.segments
        ],
        "device_traces": [program.events for program in programs],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "",
            "max_split_size": -1,
            "garbage_collection_threshold": 0.0,
            "expandable_segments": False,
        },
        "external_annotations": [
            {"stage": stage, "name": f"ProfilerStep#{step}", "device": 0, "time_us": time_us}
            for step, times in enumerate(programs[0].steps)
            for stage, time_us in zip(("START", "END"), times)
        ],
    }
    with open(options.out, "wb") as file:
        pickle.dump(snapshot, file, protocol=4)
    found = [{"events": len(program.events), "baseline": 0, "oom_events": 0} | program.found for program in programs]
    print(json.dumps(dict(enumerate(found))))


if __name__ == "__main__":
    main()
