"""Reads the tables of recordings with one library, and prints what it finds as JSON.

    python tables.py to_pandas step.snap ranks

For each recording: the columns of both tables by type; for each device and total the sum of the blocks that are live at
the peak, and the highest total of the events; and some columns of the events, row by row. Also the errors of wrong
arguments.
"""

import json
import sys

import highwater

WRONG = [{"table": "steps"}, {"columns": "step"}, {"columns": []}, {"columns": ["step", "bytes"]}]
COLUMNS = ["rank", "event", "kind", "device", "block", "address", "size_bytes", "time_ns", "category"]
# The column of a block's bytes in each total, and that of the event that ends its part in it.
TOTALS = {
    "requested": ("requested_bytes", "free_event"),
    "allocated": ("allocated_bytes", "free_event"),
    "active": ("allocated_bytes", "free_completed_event"),
}


class Arrow:
    def types(self, table):
        return {field.name: str(field.type) for field in table.schema}

    def live_bytes(self, table, device, event, size, end):
        from pyarrow.compute import field, sum

        is_live = (field("alloc_event") <= event) & (field(end).is_null() | (field(end) > event))
        return sum(table.filter((field("device") == device) & is_live)[size]).as_py() or 0

    def highest(self, table, device, total):
        from pyarrow.compute import field, max

        return max(table.filter(field("device") == device)[total]).as_py()

    def bytes_of(self, table, group):
        found = table.group_by(group).aggregate([("allocated_bytes", "sum")]).to_pydict()
        return dict(zip(found[group], found["allocated_bytes_sum"]))

    def rows(self, table):
        return [list(row.values()) for row in table.to_pylist()]


class Pandas:
    def types(self, table):
        return {name: str(dtype) for name, dtype in table.dtypes.items()}

    def live_bytes(self, table, device, event, size, end):
        is_live = (table["alloc_event"] <= event) & (table[end].isna() | (table[end] > event))
        return int(table[(table["device"] == device) & is_live][size].sum())

    def highest(self, table, device, total):
        return int(table[table["device"] == device][total].max())

    def bytes_of(self, table, group):
        return {key: int(size) for key, size in table.groupby(group, observed=True)["allocated_bytes"].sum().items()}

    def rows(self, table):
        return table.astype(object).where(table.notna(), None).values.tolist()


class Polars:
    def types(self, table):
        return {name: str(dtype) for name, dtype in table.schema.items()}

    def live_bytes(self, table, device, event, size, end):
        from polars import col

        is_live = (col("alloc_event") <= event) & (col(end).is_null() | (col(end) > event))
        return table.filter((col("device") == device) & is_live)[size].sum()

    def highest(self, table, device, total):
        from polars import col

        return table.filter(col("device") == device)[total].max()

    def bytes_of(self, table, group):
        from polars import col

        return dict(table.group_by(group).agg(col("allocated_bytes").sum()).rows())

    def rows(self, table):
        return [list(row) for row in table.rows()]


def main(method, *paths):
    library = {"to_arrow": Arrow, "to_pandas": Pandas, "to_polars": Polars}[method]()
    answers, errors = {}, []
    for path in paths:
        snapshot = highwater.Snapshot(path)
        blocks, events = getattr(snapshot, method)(), getattr(snapshot, method)("events")
        peaks = []
        for device in snapshot.info().get("devices", []):
            for total, (size, end) in TOTALS.items():
                number, event = device["device"], device["peaks"][total]["event"]
                live = library.live_bytes(blocks, number, -1 if event is None else event, size, end)
                peaks.append([number, total, live, library.highest(events, number, f"{total}_bytes")])
        answers[path] = {
            "types": {"blocks": library.types(blocks), "events": library.types(events)},
            "peaks": peaks,
            "categories": library.bytes_of(blocks, "category"),
            "rows": library.rows(getattr(snapshot, method)("events", columns=COLUMNS)),
        }
    for arguments in WRONG:
        try:
            getattr(snapshot, method)(**arguments)
        except ValueError as error:
            errors.append(str(error))
    print(json.dumps({"answers": answers, "errors": errors}))


if __name__ == "__main__":
    main(*sys.argv[1:])
