"""What one must know before one believes a run's figures, found in the run itself. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from queueapp.bench.results.reading import CellRow, RunResults

FEW = 5
"""Repetitions below which an interval is wide for want of them."""
LATE = 0.1
"""A sender that is later than this part of the p50 latency measures itself, too."""


def part_of_the_jobs(cells: Sequence[CellRow]) -> list[str]:
    """A sentence for each cell in which a job is missing or double."""
    found = []
    for cell in cells:
        if not (cell.unfinished or cell.lost or cell.recorded_twice):
            continue
        patience = " when its time was over" if cell.timed_out else ""
        found.append(
            f"{cell.name}: of {cell.setting.jobs:,} jobs {cell.unfinished:,} had not ended{patience}, {cell.lost:,} "
            f"were lost, {cell.recorded_twice:,} recorded twice."
        )
    return found


def caveats(results: RunResults) -> Iterator[str]:
    """Those that hold here."""
    cells = results.cells
    if not results.finished:
        yield "The run was broken off: the figures are of the cells that it had."
    if len(results.runs) > 1:
        yield (
            f"The cells come from {len(results.runs)} runs that were merged: times depend on the machine and the "
            "moment."
        )
    if any(cell.unfinished for cell in cells):
        yield "Where jobs had not ended, the figures are of those that had: such cells look better than they were."
    executions = {cell.setting.execution for cell in cells}
    if "virtual" in executions:
        yield (
            "In virtual time network, server and processes take none: waits are the policy's alone, and the least "
            "there can be."
        )
    if executions - {"virtual"}:
        yield "Times depend on the machine and on what else it does: compare arms of one run, not runs of two machines."
    if "sleep" in executions:
        yield "Jobs sleep: they hold a slot, but no processor. With --exec cpu they compute."
    repetitions = max((cell.setting.repetition for cell in cells), default=0)
    if repetitions == 1:
        yield "Nothing was repeated: how far a next run would be from these figures is not known."
    elif repetitions < FEW:
        yield f"{repetitions} repetitions give wide intervals: differences that do not show here may be there."
    yield from _late(cells)
    if dead := sum(cell.dead_letters for cell in cells):
        yield (
            f"{dead:,} jobs ended as dead letters. They are no throughput and have no latency: dead_letters/ has them."
        )
    yield (
        "Waits and latencies count from the moment at which a job was to be sent, so that a sender that is held up "
        "does not hide the delay that holds it up. Percentiles that the jobs are too few for are left out (p95: 20, "
        "p99: 100)."
    )
    yield (
        "Jain's index says how equal the tenants' shares were, not how fair the queue was: where they ask for unequal "
        "amounts and get them, it is low under every policy. Read it with the tenants' waits."
    )


def _late(cells: Sequence[CellRow]) -> Iterator[str]:
    late = [
        cell for cell in cells if cell.figures["producer_lag_ms_max"] > max(5.0, LATE * cell.figures["latency_p50_ms"])
    ]
    if late:
        worst = max(late, key=lambda cell: cell.figures["producer_lag_ms_max"])
        yield (
            f"The sender was late in {len(late)} of {len(cells)} cells, at worst "
            f"{worst.figures['producer_lag_ms_max']:,.0f} ms ({worst.name}): part of what was measured there is the "
            "sender."
        )
