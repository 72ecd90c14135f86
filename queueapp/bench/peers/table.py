"""Rows of peers as a table for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from queueapp.bench.peers.results import MS, Row, share_name

Column = tuple[str, str, str]
"""Heading, figure, format."""
COLUMNS: Sequence[Column] = (
    ("single/s", "enqueue_single_per_s", "{:,.0f}"),
    ("bulk/s", "enqueue_bulk_per_s", "{:,.0f}"),
    ("drain/s", "drain_per_s", "{:,.0f}"),
    *((f"{ms} ms", share_name(ms), "{:.1%}") for ms in MS[1:]),
    ("start p50", "start_ms_p50", "{:.2f} ms"),
    ("p99", "start_ms_p99", "{:.2f} ms"),
    ("bytes", "bytes_per_job", "{:,.0f}"),
)
WIDTH = 9


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """A heading, a line for each peer, and below them what was not measured, with the reasons."""
    name = max(len(_name(row)) for row in rows)
    yield "  " + " " * name + "".join(f" {heading:>{WIDTH}}" for heading, _, _ in COLUMNS)
    for row in rows:
        cells = "".join(f" {_cell(row, figure, form):>{WIDTH}}" for _, figure, form in COLUMNS)
        yield f"  {_name(row):<{name}}{cells}"
    for row in rows:
        for what, why in row.get("not_measured", {}).items():
            yield f"  {row['title']}, not measured: {what}: {why}"


def _name(row: Row) -> str:
    return f"{row['title']} {row['version'] or ''}".rstrip()


def _cell(row: Row, figure: str, form: str) -> str:
    value = row.get(figure)
    return "–" if value is None else form.format(value)
