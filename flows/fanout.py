"""The steps of a map: list its items, hand them over as there is room, count their ends. Pure; part of a tick.

Nothing here sees the list. Whoever carries out `ListItems` makes a row for each item, a page at a time; the map's own
row holds how many there are, how many were handed over and how many have ended. A million items cost as many ticks as
they have pages, and each tick looks at one page of ends.
"""

from __future__ import annotations

from dataclasses import replace

from flows.definition import StepDefinition
from flows.draft import Draft
from flows.snapshot import (
    ITEMS_PER_PAGE,
    Counted,
    IssueItems,
    ItemReport,
    ListItems,
    Recount,
    StepRun,
    Withdraw,
)

PARALLEL = 1_000
"""Most items of a map that are with the queue at once, unless it says another number."""
LOSSES_MAX = 3
"""So often may the job of a step, or of an item, vanish from the store before it counts as failed."""


def start(draft: Draft, step: StepDefinition, row: StepRun) -> None:
    """`row` has just begun. What an earlier try of the map completed stays; the rest waits again once it is counted."""
    if row.listed:
        draft.send(Recount(step=step.name, attempt=row.attempt))
        draft.put(replace(row, asked=-1))
    else:
        draft.put(replace(row, asked=-1, recounted=row.attempt))
        settle(draft, step)


def count(draft: Draft, step: StepDefinition, row: StepRun) -> None:
    """Items that have ended go into the counts, each once: the row that is shown here is marked in the same change."""
    reports = draft.snapshot.items.get(step.name, ())
    if not reports or row.recounted != row.attempt:
        return
    ended: list[int] = []
    again: list[int] = []
    completed = failed = 0
    error = row.error
    for report in reports:
        fault = _fault(report, row)
        if fault is None:
            again.append(report.index)
            continue
        ended.append(report.index)
        completed += not fault
        failed += bool(fault)
        error = error or (f"item {report.index}: {fault}" if fault else "")
    draft.count(Counted(step=step.name, ended=tuple(ended), again=tuple(again)))
    row = replace(
        row,
        completed=row.completed + completed,
        failed=row.failed + failed,
        issued=row.issued - len(again),
        error=error,
    )
    draft.note_failure(draft.put(row))
    if draft.snapshot.more:
        draft.again = True


def settle(draft: Draft, step: StepDefinition) -> None:
    """The map ends, or as many further items as there is room for are handed over."""
    row = draft.row(step.name)
    if row.recounted != row.attempt:
        return
    report = row.report
    broken = ""
    if report is not None and report.attempt == row.attempt:
        broken = report.error or "its list could not be read"
    done = row.total is not None and row.completed + row.failed == row.total
    if broken and not row.open:
        draft.fail(row, broken)
    elif done and (step.may_fail or not row.failed):
        draft.complete(row)
    elif done or (draft.halted and not row.open):
        _end_badly(draft, step, row)
    elif draft.halted:
        if not row.withdrawn:
            draft.send(Withdraw(step=step.name, attempt=row.attempt))
            draft.put(replace(row, withdrawn=True))
    elif not broken:
        _issue(draft, step, row)


def _issue(draft: Draft, step: StepDefinition, row: StepRun) -> None:
    room = (step.max_parallel or PARALLEL) - row.open
    waiting = row.listed - row.issued
    if room > 0 and waiting > 0 and draft.has_code(step):
        number = min(room, waiting, ITEMS_PER_PAGE)
        row = draft.put(replace(row, issued=row.issued + number))
        draft.send(IssueItems(step=step.name, attempt=row.attempt, tier=draft.tier(step)))
        if number < min(room, waiting):
            draft.again = True
    if row.total is None and row.asked < row.listed and row.listed - row.issued < ITEMS_PER_PAGE:
        draft.put(replace(row, asked=row.listed))
        draft.send(ListItems(step=step.name, attempt=row.attempt, start=row.listed))


def _end_badly(draft: Draft, step: StepDefinition, row: StepRun) -> None:
    """Failed by its own items, or cut off by another's failure."""
    if row.failed and not step.may_fail:
        draft.fail(row, row.error)
    else:
        draft.cancel(row)


def _fault(report: ItemReport, row: StepRun) -> str | None:
    """ "" for an item that completed; None for one that waits again."""
    match report.ending:
        case "completed":
            return ""
        case "lost" if report.attempt > LOSSES_MAX:
            return f"its job was lost {report.attempt} times"
        case "cancelled" if not row.withdrawn:
            return "its job was cancelled"
        case "failed":
            return report.error or "it failed"
    return None
