"""Reads the tags of a snapshot, and the truth about them."""

import json
import re


def tagged_allocations(snapshot):
    """Yields each alloc event with its tag, a dict; an empty one if it has none."""
    marks = [row for row in snapshot.get("external_annotations", []) if row["name"].startswith('{"step"')]
    marks.sort(key=lambda row: row["time_us"])
    open_tags, position = [], 0
    for event in snapshot["device_traces"][0]:
        while position < len(marks) and marks[position]["time_us"] <= event["time_us"]:
            mark = marks[position]
            if mark["stage"] == "START":
                open_tags.append(mark["name"])
            # The recording may begin within one.
            elif mark["name"] in open_tags:
                open_tags.remove(mark["name"])
            position += 1
        if event["action"] == "alloc":
            text = event.get("user_metadata") or (open_tags[-1] if open_tags else "{}")
            yield event, json.loads(text)


def true_module(event, phase):
    """The module by the stacks of an event; None if they do not name one."""
    if phase in ("forward", "recompute"):
        names = [frame["name"] for frame in event["frames"] if frame["name"].startswith("MODULE|")]
        return names[0][7:] if names else ("" if phase == "forward" else None)
    if phase == "backward" and "forward_frames" in event:
        names = re.findall(r"in MODULE\|(\S*)", "".join(event["forward_frames"]))
        return names[-1] if names else ""
    return None
