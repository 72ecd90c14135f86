"""Small words for trees of jobs: who is whose child, and how one ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from queueapp.states import Outcome, State
from queueapp.store.family_records import Node, OnFailure, Planted
from queueapp.store.records import LeasedJob, NewJob, Returned
from queueapp.store.views import JobRecord
from tests.lua.harness import LEASE_MS, Shard, completed, failed

POLICIES: list[OnFailure] = ["fail_parent", "retry_parent", "continue", "ignore"]
_numbers = itertools.count(1)


def child_id() -> str:
    """An id that tells that somebody waits for its job: version 8."""
    return f"00000000V{next(_numbers):013d}"


@dataclass(frozen=True, slots=True)
class Kin:
    """A tree of two levels that is in the shard."""

    parent: str
    children: list[str]
    nodes: list[Node]


def node(shard: Shard, parent: str = "", on_failure: OnFailure = "fail_parent", **options: Any) -> Node:
    """A node of a fresh job; a child when it has a parent."""
    waits, position = options.pop("waits", False), options.pop("position", 0)
    job: NewJob = shard.job(**{"id": child_id(), "max_crashes": 1, **options} if parent else options)
    return Node(job=job, parent=parent, on_failure=on_failure, waits=waits, position=position)


def kin(shard: Shard, policies: Sequence[OnFailure], *, above: str = "", **options: Any) -> Kin:
    """Nodes of a parent with a child for each policy; nothing is planted yet."""
    root = node(shard, above, waits=True, **{"tier": "continue", **options})
    children = [node(shard, root.job.id, policy, position=position) for position, policy in enumerate(policies)]
    return Kin(root.job.id, [child.job.id for child in children], [root, *children])


def plant(shard: Shard, policies: Sequence[OnFailure], **options: Any) -> Kin:
    """A parent and its children, accepted."""
    found = kin(shard, policies, **options)
    assert shard.store.enqueue_flow(found.nodes) == Planted(outcome="enqueued", id=found.parent)
    return found


def record(shard: Shard, job_id: str) -> JobRecord:
    found = shard.reads.job(job_id)
    assert found is not None
    return found


def state(shard: Shard, job_id: str) -> str:
    """Its state; of one that has ended, how."""
    found = record(shard, job_id)
    return found.outcome.value if found.state is State.ENDED and found.outcome else found.state.value


def lease(shard: Shard, *ids: str) -> list[LeasedJob]:
    """Leases of these jobs, in this order; whatever else could be leased stays where it is."""
    leased = {job.id: job for job in shard.lease(100)}
    others = [Returned(id=job.id, attempts=job.attempts) for job in leased.values() if job.id not in ids]
    assert shard.store.partition_requeue(others) == ["done"] * len(others)
    return [leased[job_id] for job_id in ids]


def complete(shard: Shard, *ids: str) -> None:
    assert shard.store.complete([completed(job) for job in lease(shard, *ids)]) == ["done"] * len(ids)


def die(shard: Shard, job_id: str) -> None:
    [job] = lease(shard, job_id)
    assert shard.store.fail([failed(job)]) == ["dead"]


def cancel(shard: Shard, job_id: str) -> None:
    assert shard.store.cancel([job_id]) == ["cancelled"]


def set_aside(shard: Shard, job_id: str) -> None:
    assert shard.store.move_to_dlq([job_id], "operator") == ["moved"]


def erase(shard: Shard, job_id: str) -> None:
    assert shard.store.erase("acme", [job_id]) == ["erased"]


def lose_worker(shard: Shard, job_id: str) -> None:
    """Its worker dies, once too often."""
    lease(shard, job_id)
    shard.now_ms += LEASE_MS
    shard.store.partition_recover()


FAILING: dict[str, Callable[[Shard, str], None]] = {
    "dies": die,
    "cancelled": cancel,
    "set_aside": set_aside,
    "erased": erase,
    "worker_lost": lose_worker,
}
"""The ways in which a child can fail that waits in line."""
ENDED = {outcome.value for outcome in Outcome}
