"""The report of a run in Markdown, and the comment on the pull request."""

import html
import re
import urllib.error

from github import Api, advice, annotate

# GitHub refuses comments of more than 65,536 characters.
_LONGEST_TEXT = 60_000
# Failed recordings whose reports are in the comment; those of the others are in the artifact.
_MOST_REPORTS = 10
# In the order of a step.
_PHASES = "setup forward backward optimizer zero_grad eval other".split()
_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def code(text):
    """Formats a name as code, so that Markdown in it has no effect."""
    plain = re.sub(r"[`|<>\s\x00-\x1f]+", " ", text)[:200].strip()
    return f"`{plain or '?'}`"


def _size(count):
    unit, name = next((one for one in _UNITS if abs(count) >= one[0]), _UNITS[-1])
    figure = count // unit if count % unit == 0 else f"{count / unit:.2f}"
    return f"{figure} {name}".replace("-", "−")


def text(event, run, links):
    """Returns the report of a run. `links` has the address for each description."""
    rows, problem = run["rows"], run["problem"]
    failed = [row for row in rows if not row["passed"]]
    lines = [_headline(rows, failed, problem), ""]
    if problem:
        lines += [f"{problem[0].upper()}{problem[1:]}. The log has its messages.", ""]
    if len(rows) == 1:
        lines += [_body(rows[0]), *_chart(rows[0])]
    elif rows:
        lines += _table(rows)
        for row in failed[:_MOST_REPORTS]:
            name = html.escape(code(row["name"]).strip("`"))
            lines += ["", f"<details><summary><code>{name}</code></summary>", "", _body(row), "", "</details>"]
        if len(failed) > _MOST_REPORTS:
            lines += ["", f"{len(failed) - _MOST_REPORTS} more failed; the artifact has their reports."]
    if rows and not run["baseline"]:
        makes = "this run" if event.is_of_branch else "the next run on the branch"
        lines += ["", f"There is no baseline yet: {makes} makes one."]
    report = "\n".join(lines).strip()
    if len(report) > _LONGEST_TEXT:
        report = report[:_LONGEST_TEXT].rsplit("\n", 1)[0]
        is_open = report.count("<details>") > report.count("</details>")
        report += ("\n\n</details>" if is_open else "") + "\n\nThe rest is in the artifact."
    parts = [f"[{what}]({address})" for what, address in links.items() if address]
    parts.append(f"commit {code(event.commit[:10])}")
    if run["baseline"]:
        parts.append(f"baseline: {run['baseline']}")
    return f"{report}\n\n<sub>{' · '.join(parts)}</sub>"


def _headline(rows, failed, problem):
    is_checked = any(row["report"] for row in rows)
    verdict = "failed" if failed or problem else "passed" if is_checked else "recorded"
    count = f"{len(failed)} of {len(rows)}" if failed else f"{len(rows)}"
    return f"### Memory: {verdict}" + (f" ({count} recordings)" if len(rows) > 1 else "")


def _body(row):
    """Returns the report of `highwater check` without its heading and picture, since a comment cannot show a file of an
    artifact."""
    if not row["report"]:
        # Errors are indented, as code.
        errors = ["    " + line for error in row["errors"] for line in error.splitlines()]
        return "\n".join(errors or _table([row]))
    with open(row["report"], encoding="utf-8") as file:
        return re.sub(r"(?m)\A### .*\n|^!\[[^\]]*\]\(<[^>]*>\)\n", "", file.read()).strip()


def _table(rows):
    """Returns a table with the peak of each recording and of its baseline, failed checks first."""
    lines = ["| | recording | peak | baseline | difference |", "|---|---|--:|--:|--:|"]
    for row in sorted(rows, key=lambda row: (row["passed"], row["name"])):
        own, base = (max(row[side].values(), default=None) for side in ("phases", "baseline_phases"))
        cells = ["" if peak is None else _size(peak) for peak in (own, base)]
        cells.append("" if None in (own, base) else ("+" if own > base else "") + _size(own - base))
        lines.append(f"| {'' if row['passed'] else '**failed**'} | {code(row['name'])} | {' | '.join(cells)} |")
    return lines


def _chart(row):
    """Returns a chart of the peak of each phase, drawn by GitHub: bars, with a line for the baseline."""
    own, base = row["phases"], row["baseline_phases"]
    # Those of a newer version of the program come last.
    phases = [*(phase for phase in _PHASES if phase in own), *sorted(set(own) - set(_PHASES))]
    if len(phases) < 2:
        return []
    highest = max(*own.values(), *base.values(), 1)
    unit, name = next(one for one in _UNITS if highest >= one[0])
    bars, line = (", ".join(f"{side.get(phase, 0) / unit:.3f}" for phase in phases) for side in (own, base))
    title = f"Peak by phase, {name}" + (" (line: baseline)" if base else "")
    lines = ["", "```mermaid", "xychart-beta", f'    title "{title}"', f"    x-axis [{', '.join(phases)}]"]
    lines += [f"    y-axis 0 --> {highest / unit * 1.05:.3f}", f"    bar [{bars}]"]
    return [*lines, *([f"    line [{line}]"] if base else []), "```"]


def comment(event, name, report):
    """Creates or updates the comment on the pull request."""
    if event.is_from_fork:
        annotate("notice", "no comment: the token of a run for a fork cannot write; the summary has the report")
        return
    marker = f"<!-- highwater memory-check: {name} -->"
    api, body = Api(event.repository), {"body": f"{marker}\n{report}"}
    try:
        for known in api.rows(f"issues/{event.pull_request}/comments"):
            # Anybody can write a comment that begins so; theirs are left alone.
            if (known.get("body") or "").startswith(marker) and (known.get("user") or {}).get("type") == "Bot":
                api.call("PATCH", f"issues/comments/{int(known['id'])}", body)
                return
        api.call("POST", f"issues/{event.pull_request}/comments", body)
    except (urllib.error.URLError, OSError, ValueError) as error:
        annotate("warning", f"the comment was not written: {error}{advice(error, 'pull-requests: write')}")
