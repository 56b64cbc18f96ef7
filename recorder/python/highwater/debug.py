"""A page of PyTorch's debug server about the GPU memory of all ranks.

>>> from torch.distributed.debug import start_debug_server
>>> from torch.distributed.debug._debug_handlers import default_handlers
>>> from highwater.debug import Memory
>>> start_debug_server(handlers=[*default_handlers(), Memory("recordings")])
"""

from __future__ import annotations

import base64
import os
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from ._test_memory import format_size

try:
    from tabulate import tabulate
    from torch.distributed.debug._frontend import DebugHandler, NavLink, Route, fetch_all
except ImportError as error:
    needs = "a PyTorch version whose debug server accepts custom handlers (such as 2.15), jinja2 and tabulate"
    raise ImportError(f"highwater.debug requires {needs} ({error})", name=error.name) from None

from . import _debug_rank

if TYPE_CHECKING:
    from torch.distributed.debug._frontend import HTTPRequestHandler

_COLUMNS = ["rank", "host", "process", "device", "allocated", "peak", "reserved", "peak reserved", "now"]
_TOTALS = ("allocated", "allocated_peak", "reserved", "reserved_peak")
_TEMPLATE = """
{% extends "base.html" %}
{% block header %}<h1>{% block title %}GPU memory{% endblock %}</h1>{% endblock %}
{% block content %}
{% if refreshes %}<meta http-equiv="refresh" content="2;url=/memory">{% endif %}
<style>td, th { padding: 2px 12px 2px 0; text-align: left; vertical-align: top }</style>
<form action="/memory/record" method="get">
  <label>Record the next <input type="number" name="steps" value="{{ steps }}" min="1"> steps of all ranks</label>
  <input type="submit" value="Record">
</form>
{{ totals | safe }}
<h2>Recordings</h2>
{% for file in files %}
<p><a href="/memory/file?{{ file.query | e }}" download="{{ file.name | e }}">{{ file.name | e }}</a>
{{ file.text | e }}</p>
{% endfor %}
{% endblock %}
"""


class Memory(DebugHandler):
    """Shows the allocated memory of each rank, and records the next steps of all ranks.

    Pass it to `start_debug_server` on all ranks. Its page is `/memory`. If the server dumps periodically, and
    `enabled_dumps` contains "memory", each dump contains the totals, and records the next steps.

    Args:
        folder: the folder for the recordings of each rank, such as `memory_20260131_120000.rank0.snap`. Pass the
            server's `dump_dir` to store them with its dumps. Created if it does not exist.
        steps: number of steps to record, unless the page requests another number.
        options: options of `record_memory_history`, such as `step_at="Engine.step"` for a server without an optimizer.
    """

    def __init__(self, folder: str = "recordings", *, steps: int = 3, **options: Any) -> None:
        self._steps = steps
        _debug_rank.serve(folder, options)

    def routes(self) -> list[Route]:
        """Returns the routes: the page, a request to record, and a recorded file."""
        return [
            Route("/memory", self._page),
            Route("/memory/record", self._record_page),
            Route("/memory/file", self._file),
        ]

    def nav_links(self) -> list[NavLink]:
        """Returns the link to this page, shown on all pages."""
        return [NavLink("/memory", "GPU memory")]

    def templates(self) -> dict[str, str]:
        """Returns the template of the page, by name."""
        return {"highwater_memory.html": _TEMPLATE}

    def dump_filename(self) -> str:
        """Returns the name of this handler in `enabled_dumps`."""
        return "memory"

    def dump(self) -> str:
        """Makes all ranks record the next steps, and returns their totals and last recordings as text."""
        rows = self._rows(self._record(self._steps))
        last = [f"{file['path']} {file['text']}" for row in rows for file in _files(row)[-1:]]
        return "\n".join([_table(rows, "plain"), *last, ""])

    def _record(self, steps):
        """Makes all ranks record. Returns a text for each rank: empty, or the reason that it did not record."""
        asked = urlencode({"steps": steps, "name": time.strftime("memory_%Y%m%d_%H%M%S")})
        _, answers = fetch_all("highwater_record", asked, timeout=self.fetch_timeout)
        return ["" if answer.status_code == 200 else f"not recorded: {answer.text}" for answer in answers]

    def _record_page(self, request: HTTPRequestHandler) -> bytes:
        return self._page(request, self._record(request.get_query_arg("steps", self._steps, int)))

    def _page(self, request: HTTPRequestHandler, errors: list[str] | None = None) -> bytes:
        rows = self._rows(errors)
        return request.frontend.render_template(
            "highwater_memory.html",
            totals=_table(rows, "html"),
            files=[file for row in rows for file in _files(row)],
            steps=self._steps,
            refreshes=any(row["is_recording"] for row in rows),
        )

    def _file(self, request: HTTPRequestHandler) -> bytes:
        values: list[Any] = [request.get_query_arg(name, 0, int) for name in ("rank", "row")]
        rank, row = values
        _, answers = fetch_all("highwater_file", urlencode({"rank": rank, "row": row}), timeout=self.fetch_timeout)
        answer = answers[rank]
        answer.raise_for_status()
        return base64.b64decode(answer.json()["base64"])

    def _rows(self, errors):
        """Returns the state of each rank, as reported by the rank."""
        _, answers = fetch_all("highwater_memory", timeout=self.fetch_timeout)
        rows = []
        for rank, (answer, error) in enumerate(zip(answers, errors or [""] * len(answers))):
            nothing = {"host": "", "pid": "", "devices": [], "categories": {}, "files": [], "is_recording": False}
            row = answer.json() if answer.status_code == 200 else {**nothing, "no_answer": answer.text}
            rows.append({**row, "rank": rank, "error": error})
        return rows


def _table(rows, style):
    lines = []
    for row in rows:
        for device in row["devices"] or [{}]:
            totals = [format_size(device[name]) if device else "" for name in _TOTALS]
            lines.append([row["rank"], row["host"], row["pid"], device.get("device", ""), *totals, _now(row)])
    return tabulate(lines, headers=_COLUMNS, tablefmt=style, disable_numparse=True)


def _now(row):
    """Returns the state of a rank as text, and its allocated bytes by category on all its devices."""
    texts = [row["error"], f"no answer: {row['no_answer']}" if "no_answer" in row else ""]
    texts.append(f"recording, step {row['step']}" if row["is_recording"] else "")
    if row["categories"]:
        rest = sum(device["allocated"] for device in row["devices"]) - sum(row["categories"].values())
        texts.append(_sizes({**row["categories"], "other": rest}))
    return "; ".join(filter(None, texts))


def _files(row):
    """Returns the recordings of a rank."""
    files = []
    for file in row["files"]:
        text = f"on {row['host']}, {format_size(file['bytes'])}"
        if file["peak"] is not None:
            text += f", peak {format_size(file['peak']['bytes'])} ({_sizes(file['peak']['groups'])})"
        query = urlencode({"rank": row["rank"], "row": file["row"]})
        files.append({"name": os.path.basename(file["path"]), "path": file["path"], "query": query, "text": text})
    return files


def _sizes(categories):
    ordered = sorted(categories.items(), key=lambda row: -row[1])
    return ", ".join(f"{name} {format_size(size)}" for name, size in ordered if size)
