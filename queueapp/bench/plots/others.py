"""`bench throughput --peers --json`: Ductor beside other queues, a bar for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from queueapp.bench.plots import dots, scales
from queueapp.bench.plots.files import Figures
from queueapp.bench.plots.look import HIGHLIGHT, INK, QUIET, WARNING
from queueapp.bench.plots.sheet import Sheet, sheet

OTHERS = "#B3B3B3"
OURS = "ductor"
NOTE = (
    "Medians over the rounds; in each all take their turn on one server. Of two ways of a queue the better one counts."
)

NO_CALL = "no such call"
"""Of `experiments.peers`: why some have no figure of bulk."""

Row = Mapping[str, Any]


def plots(figures: Figures) -> Iterator[Sheet]:
    """One for each persistence that was measured."""
    rows = [row for row in figures.rows if "peer" in row]
    for aof in dict.fromkeys(str(row.get("aof")) for row in rows):
        yield beside(figures, aof, [row for row in rows if str(row.get("aof")) == aof])


def beside(figures: Figures, aof: str, rows: Sequence[Row]) -> Sheet:
    """Drain, enqueue, start and memory, in four panels."""
    ordered = sorted(rows, key=lambda row: -(row.get("drain_per_s") or 0))
    run = {name: value for name, value in figures.run.items() if name != "append_only_file"}
    bare = Figures(bench=figures.bench, run=run, figures=figures.figures, rows=figures.rows)
    made = sheet(
        f"peers_aof_{aof}",
        "Ductor beside other queues: drain, enqueue, start in an idle worker, memory",
        bare.conditions(f"append-only file {aof}", "16 slots each"),
        rows=2,
        columns=2,
        height=dots.FRAME + 0.36 * len(ordered),
        width=11.0,
        keys=[
            Patch(facecolor=HIGHLIGHT, edgecolor=INK, label="Ductor"),
            Patch(facecolor=OTHERS, edgecolor=INK, label="others"),
            Patch(facecolor="white", edgecolor=QUIET, hatch="////", label="enqueue in bulk"),
            dots.key("start: p50", "o"),
            dots.key("start: p99", "|", size=11),
        ],
        notes=[NOTE],
    )
    for number, (title, unit) in enumerate(PANELS):
        axes = made.panel(number, title)
        dots.lanes(axes, [_name(row) for row in ordered])
        for label, row in zip(axes.get_yticklabels(), ordered, strict=True):
            if row["peer"] == OURS:
                label.set_fontweight("bold")
                label.set_color(HIGHLIGHT)
        DRAWN[title](axes, ordered)
        scales.name(axes, "x", unit)
    for row in ordered:
        made.told.append(_told(row))
    return made


def _name(row: Row) -> str:
    return f"{row.get('title', row['peer'])} {row.get('version') or ''}".strip()


def _bars(
    axes: Axes, rows: Sequence[Row], figure: str, *, aside: float = 0.0, tall: float = 0.62, hatch: str = ""
) -> None:
    for place, row in enumerate(rows):
        value = row.get(figure)
        if value is None:
            _missing(axes, place + aside, NO_CALL if hatch and _has_no_call(row) else "not measured")
            continue
        colour = HIGHLIGHT if row["peer"] == OURS else OTHERS
        axes.barh(
            place + aside,
            value,
            height=tall,
            color="white" if hatch else colour,
            edgecolor=colour if hatch else INK,
            hatch=hatch,
            linewidth=0.8,
        )
        axes.annotate(
            f"{value:,.0f}",
            (value, place + aside),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            color=INK,
        )


def _has_no_call(row: Row) -> bool:
    return NO_CALL in str(row.get("not_measured", {}).get("enqueue, in bulk"))


def _missing(axes: Axes, place: float, why: str = "not measured") -> None:
    axes.annotate(
        why,
        (0, place),
        xycoords=("axes fraction", "data"),
        xytext=(16, 0),
        textcoords="offset points",
        va="center",
        fontsize=7.5,
        color=WARNING,
    )


def _fit(axes: Axes, rows: Sequence[Row], *figures: str) -> None:
    values = [float(row[figure]) for row in rows for figure in figures if row.get(figure) is not None]
    scales.fit(axes, "x", [1.14 * max(values, default=1.0)], log=False)


def _drain(axes: Axes, rows: Sequence[Row]) -> None:
    _bars(axes, rows, "drain_per_s")
    _fit(axes, rows, "drain_per_s")


def _enqueue(axes: Axes, rows: Sequence[Row]) -> None:
    _bars(axes, rows, "enqueue_single_per_s", aside=-0.19, tall=0.36)
    _bars(axes, rows, "enqueue_bulk_per_s", aside=0.19, tall=0.36, hatch="////")
    _fit(axes, rows, "enqueue_single_per_s", "enqueue_bulk_per_s")


def _start(axes: Axes, rows: Sequence[Row]) -> None:
    shown = []
    for place, row in enumerate(rows):
        middle, late = row.get("start_ms_p50"), row.get("start_ms_p99")
        if middle is None or late is None:
            _missing(axes, place)
            continue
        colour = HIGHLIGHT if row["peer"] == OURS else QUIET
        axes.plot([middle, late], [place, place], color=colour, linewidth=2, alpha=0.6)
        axes.plot([middle], [place], "o", color=colour, markersize=7)
        axes.plot([late], [place], "|", color=colour, markersize=12, markeredgewidth=2)
        dots.beside(axes, place, f"{middle:.2f} / {late:.2f}")
        shown += [float(middle), float(late)]
    scales.fit(axes, "x", shown, log=True)


def _memory(axes: Axes, rows: Sequence[Row]) -> None:
    _bars(axes, rows, "bytes_per_job")
    _fit(axes, rows, "bytes_per_job")


PANELS = (
    ("Drain of no-op jobs by one worker", "jobs/s: more is better"),
    ("Enqueue, one by one and in bulk", "jobs/s: more is better"),
    ("Start in an idle worker, p50 and p99", "ms: less is better"),
    ("Memory of a waiting job", "bytes: less is better"),
)
DRAWN = dict(zip((title for title, _ in PANELS), (_drain, _enqueue, _start, _memory), strict=True))
TOLD = (
    ("drain_per_s", "drain {:,.0f}/s"),
    ("enqueue_single_per_s", "enqueue one by one {:,.0f}/s"),
    ("enqueue_bulk_per_s", "in bulk {:,.0f}/s"),
    ("start_ms_p50", "start p50 {:.2f} ms"),
    ("start_ms_p99", "p99 {:.2f} ms"),
    ("bytes_per_job", "{:,.0f} bytes a job"),
)


def _told(row: Row) -> str:
    parts = [form.format(row[name]) for name, form in TOLD if row.get(name) is not None]
    return f"{_name(row)}: {', '.join(parts) or 'not measured'}"
