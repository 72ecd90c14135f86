"""The watchdog: whatever is lost of a run, somebody looks at it again. Pure; part of a tick.

Each run that has not ended has a moment at which it is looked at, come what may: while something of it is with the
queue every `WATCH_MS`, else when its next timer should have fired. The moment is a column, too: a sweep over the
database wakes runs whose timers were lost with the store.
"""

from __future__ import annotations

from flows.draft import Draft
from flows.snapshot import Inquire, Timer

WATCH_MS = 5 * 60_000
IDLE_MS = 24 * 3_600_000
"""For a run that waits for an event without a timeout."""
REASON = "watchdog"


def look(draft: Draft) -> None:
    """Inquire when it is time, and say when the next time is."""
    with_queue, due = False, []
    for step, row in draft.running():
        if step.kind in ("sleep", "event"):
            due.append(row.due_ms or draft.now_ms + IDLE_MS)
        else:
            with_queue = True
    soon = with_queue or draft.held or not due
    latest = (draft.now_ms if soon else min(due)) + WATCH_MS
    run, fired = draft.run, draft.snapshot.fired
    is_due = draft.now_ms >= run.watch_ms
    if is_due and run.watch_ms:
        _inquire(draft)
    used_up = fired == Timer(reason=REASON, requeues=run.watches)
    # One period of grace: clocks differ, and a moment that is near enough is not moved for every tick.
    if is_due or used_up or run.watch_ms > latest + WATCH_MS:
        draft.change_run(watch_ms=latest, watches=run.watches + 1)
        draft.set_timer(REASON, latest, draft.run.watches)


def _inquire(draft: Draft) -> None:
    for step, row in [*draft.running()]:
        if step.kind not in ("sleep", "event"):
            draft.send(Inquire(step=step.name, attempt=row.attempt))
        elif row.due_ms is not None and row.due_ms > draft.now_ms:
            kind = "sleep" if step.kind == "sleep" else "timeout"
            draft.set_timer(f"{kind}:{step.name}", row.due_ms, row.requeues)
