"""`bench compare`: what differs between two runs beyond noise."""

from __future__ import annotations

from pathlib import Path

from queueapp.bench.harness import Progress, Report
from queueapp.bench.results import comparison_tables as tables
from queueapp.bench.results.comparing import compare, notes
from queueapp.bench.results.reading import read


def run(
    report: Report,
    progress: Progress,
    base: Path,
    other: Path,
    *,
    csv: Path | None,
    markdown: Path | None,
    fail_on_worse: float | None,
) -> None:
    """Rows: each figure of each arm. With `fail_on_worse` (percent) what is worse, or no longer whole, is missed."""
    found = compare(read(base), read(other))
    report.rows += tables.rows(found)
    report.figures |= {
        "pairs": sum(map(len, found.pairs.values())),
        "compared": len(found.figures),
        "marked": len(found.marked),
        "by_chance": found.by_chance,
        "worse": sum(one.verdict == "worse" for one in found.figures),
        "better": sum(one.verdict == "better" for one in found.figures),
    }
    progress.say(f"  A is {base}, B is {other}")
    for text in [*notes(found), *tables.lines(found), "", tables.conclusion(found)]:
        progress.say(f"  {text}")
    if csv is not None:
        tables.write_csv(found, csv)
    if markdown is not None:
        markdown.write_text("\n".join(tables.markdown(found)) + "\n", encoding="utf-8")
    if fail_on_worse is not None:
        report.missed += found.worse(fail_on_worse) + found.broken()
    else:
        for sentence in found.broken():
            progress.say(f"  {sentence}")
