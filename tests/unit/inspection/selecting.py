"""Words for the tests of bulk actions: selections of jobs, and the states of some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queueapp.inspection.bulk import Redrive
from queueapp.inspection.jobs import find_jobs
from queueapp.inspection.selection import NOT_ENDED, Selection
from queueapp.states import State

FAST = Redrive(rate=0, stop_after=0)


def dead(**conditions: Any) -> Selection:
    return Selection(pool="default", states=(State.DEAD,), **conditions)


def live(*states: State, **conditions: Any) -> Selection:
    return Selection(pool="default", states=states or NOT_ENDED, **conditions)


def states(ids: Sequence[str]) -> list[str]:
    found = {job.id: job.state for job in find_jobs(ids)}
    return [found[job_id] for job_id in ids]
