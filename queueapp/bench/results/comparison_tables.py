"""A comparison as a table: for the terminal, as Markdown, as CSV."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from queueapp.bench.results.comparing import Compared, Comparison, notes
from queueapp.bench.results.rows import write
from queueapp.bench.results.summary import NONE, SHOWN

COLUMNS = (
    "run_a",
    "run_b",
    "policy",
    "dispatch",
    "workload",
    "load",
    "figure",
    "n",
    "mean_a",
    "mean_b",
    "kind",
    "change",
    "low",
    "high",
    "verdict",
)
MARKS = {"": " ", "better": "*", "worse": "!", "other": "~"}
LEGEND = (
    "B / A, means over the seeds ± 95 % (Student); d: B - A, where A is 0; beyond noise: * better, ! worse, ~ neither"
)
WIDTH = 22


def rows(found: Comparison) -> Iterator[Mapping[str, Any]]:
    """`COLUMNS` of each figure."""
    runs = [" ".join(run.id for run in one.runs) for one in (found.base, found.other)]
    for one in found.figures:
        yield {
            "run_a": runs[0],
            "run_b": runs[1],
            "policy": one.arm.policy,
            "dispatch": one.arm.dispatch,
            "workload": one.arm.workload,
            "load": one.arm.load,
            "figure": one.figure,
            "n": one.change.count,
            "mean_a": one.base.mean,
            "mean_b": one.other.mean,
            "kind": one.kind,
            "change": one.change.mean,
            "low": one.change.low,
            "high": one.change.high,
            "verdict": one.verdict,
        }


def write_csv(found: Comparison, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        write(file, [COLUMNS, *([row[name] for name in COLUMNS] for row in rows(found))])


def lines(found: Comparison) -> Iterator[str]:
    """For the terminal: a block for each workload and load, a line for each figure, a column for each arm."""
    yield LEGEND
    for workload, load in _blocks(found):
        keys = [key for key in found.pairs if (key.workload, key.load) == (workload, load)]
        yield ""
        yield f"{workload}, load {load:.3g}"
        yield f"{'':<18}" + "".join(f"{f'{key.policy} {key.dispatch}':>{WIDTH}} " for key in keys)
        yield f"{'n':<18}" + "".join(f"{len(found.pairs[key]):>{WIDTH}} " for key in keys)
        for figure in dict.fromkeys(one.figure for one in found.figures):
            cells = [one for one in found.figures if one.figure == figure and one.arm in keys]
            yield f"{figure:<18}" + "".join(f"{_cell(one):>{WIDTH}}{MARKS[one.verdict]}" for one in cells)


def markdown(found: Comparison) -> Iterator[str]:
    yield f"# {found.base.directory.name} (A) and {found.other.directory.name} (B)"
    yield ""
    yield re.sub("[*!~]", r"`\g<0>`", LEGEND) + "."
    yield conclusion(found)
    yield ""
    yield from (f"- {note}" for note in notes(found))
    for workload, load in _blocks(found):
        yield from ("", f"## {workload}, load {load:.3g}", "")
        yield "| policy | dispatch | n | " + " | ".join(SHOWN.values()) + " |"
        yield "|---|---|" + "---:|" * (len(SHOWN) + 1)
        for key, pairs in found.pairs.items():
            if (key.workload, key.load) == (workload, load):
                own = {one.figure: one for one in found.figures if one.arm == key}
                cells = [f"{_cell(own[name])} {_code(MARKS[own[name].verdict])}".rstrip() for name in SHOWN]
                yield f"| {key.policy} | {key.dispatch} | {len(pairs)} | " + " | ".join(cells) + " |"


def conclusion(found: Comparison) -> str:
    """How many differences are marked, and how many would be if there were none."""
    worse = sum(one.verdict == "worse" for one in found.figures)
    return (
        f"{len(found.marked)} of {len(found.figures)} figures differ beyond noise, {worse} of them for the worse; "
        f"about {found.by_chance:.1f} would by chance alone."
    )


def _blocks(found: Comparison) -> list[tuple[str, float]]:
    return list(dict.fromkeys((key.workload, key.load) for key in found.pairs))


def _cell(one: Compared) -> str:
    told = str(one.change)
    if told == NONE:
        return told
    return told if one.kind == "ratio" else f"d {'+' if one.change.mean > 0 else ''}{told}"


def _code(mark: str) -> str:
    return f"`{mark}`" if mark.strip() else ""
