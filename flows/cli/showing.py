"""A run as text: facts, then its steps as a table or drawn; contents beneath, where they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flows.cli.sketch import NODE, sketch
from flows.definition import UNDO
from queueapp.cli.table import as_json, pairs, printable, printable_lines, prose, table
from queueapp.moments import moment, now_ms

MARKS = {"running": ">", "completed": "*", "failed": "!", "skipped": "~", "cancelled": "x"}
"""Of steps in a drawing; one that waits is an `o`."""
SKIPPED = {
    "condition": "its condition was not true",
    "no_value": "a step whose value it takes left none",
    "upstream": "a step before it failed",
}
HEADER = ("step", "state", "attempt", "started", "took", "")


def text_of(facts: Mapping[str, Any], *, drawn: bool) -> str:
    """The whole text of `facts.as_mapping`. `drawn`: steps as a graph in plain characters."""
    steps: Sequence[Mapping[str, Any]] = facts["steps"]
    parts = [_head(facts), (_drawn if drawn else _table)(steps)]
    if facts["events"]:
        events = [
            (event["name"], event["sent_at"], f"taken by {event['taken_by']}" if event["taken_by"] else "not taken yet")
            for event in facts["events"]
        ]
        parts.append(table(("event", "sent", ""), events))
    parts += _contents(facts)
    return "\n\n".join(part for part in parts if part)


def span(seconds: float | None) -> str:
    """A duration for people: `0.42 s`, `3 min 5 s`, `2 h 10 min`."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


# -- parts -----------------------------------------------------------------------------------------------------------


def _head(facts: Mapping[str, Any]) -> str:
    shown = {name: value for name, value in facts.items() if name not in {"steps", "events", "input", "output", "note"}}
    took = shown.pop("took_s")
    shown["took"] = None if took is None else span(took)
    parent = shown["parent"]
    if parent is not None:
        item = "" if parent["index"] is None else f", item {parent['index']}"
        shown["parent"] = f"step {parent['step']}{item} of run {parent['run']}"
    head = pairs([(name, value) for name, value in shown.items() if value is not None])
    return head + (f"\n{prose(printable(facts['note']))}" if facts["note"] else "")


def _table(steps: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (step["step"], step["state"], step["attempt"], _clock(step), span(_took_s(step)), _what(step)) for step in steps
    ]
    return table(HEADER, rows, wraps=True)


def _drawn(steps: Sequence[Mapping[str, Any]]) -> str:
    """Steps that undo stand beneath, in their order: each follows the one before."""
    by_name = {step["step"]: step for step in steps}
    forward = {name: step["after"] for name, step in by_name.items() if not name.startswith(UNDO)}
    rows = [*sketch(forward, lambda name: MARKS.get(by_name[name]["state"], NODE))]
    width = max((len(row.drawn) for row in rows), default=0)
    lines = [f"{row.drawn.ljust(width)}  {_beside(by_name[row.step])}" if row.step else row.drawn for row in rows]
    lines += [
        f"{MARKS.get(step['state'], NODE).ljust(width)}  {_beside(step)}"
        for name, step in by_name.items()
        if name.startswith(UNDO)
    ]
    return "\n".join(line.rstrip() for line in lines)


def _beside(step: Mapping[str, Any]) -> str:
    attempt = f"attempt {step['attempt']}" if step["attempt"] > 1 else ""
    parts = (step["state"], attempt, span(_took_s(step)), _what(step))
    return printable(f"{step['step']}: {', '.join(part for part in parts if part)}")


def _what(step: Mapping[str, Any]) -> str:
    """What else there is to say of it, in words."""
    parts = []
    items = step["items"]
    if items is not None and step["attempt"]:
        total = "?" if items["total"] is None else f"{items['total']:,}"
        failed = f", {items['failed']:,} failed" if items["failed"] else ""
        parts.append(f"{items['completed']:,} of {total} items{failed}")
    if step["skipped"]:
        parts.append(SKIPPED.get(step["skipped"], step["skipped"]))
    if step["error"]:
        parts.append(step["error"].strip().splitlines()[-1])
    if step["state"] == "running":
        if step["kind"] == "event":
            parts.append(f"waits for the event {step['target']!r}")
        if step["due_at"]:
            parts.append(f"until {printable(step['due_at'])}")
        if step["job"]:
            parts.append(f"job {step['job']}")
    if step["run"]:
        parts.append(f"run {step['run']}")
    return "; ".join(parts)


def _took_s(step: Mapping[str, Any]) -> float | None:
    """Of one that runs: so far."""
    if step["state"] != "running" or step["started_at"] is None:
        took: float | None = step["took_s"]
        return took
    now = moment(now_ms())
    return max(0.0, (now - step["started_at"]).total_seconds()) if now is not None else None


def _clock(step: Mapping[str, Any]) -> str:
    return "" if step["started_at"] is None else printable(step["started_at"])


def _contents(facts: Mapping[str, Any]) -> Iterator[str]:
    for name in ("input", "output"):
        if name in facts:
            yield f"{name}: {printable_lines(as_json(facts[name]))}"
    for step in facts["steps"]:
        if "output" in step and step["kind"] != "map":
            yield f"output of {step['step']}: {printable_lines(as_json(step['output']))}"
        if step["error"] and "\n" in step["error"]:
            yield f"error of {step['step']}:\n{printable_lines(step['error'])}"
    for event in facts["events"]:
        if "payload" in event:
            yield f"payload of {event['name']}: {printable_lines(as_json(event['payload']))}"
