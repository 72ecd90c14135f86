"""What became of the children of a job: `context.children` of the job that waited for them.

Read from the store of the parent's pool, which keeps outcome and result of each of them until the parent has ended,
whatever the retention of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from queueapp.codec import decode_result
from queueapp.compat import TaskError
from queueapp.producer.results import result_from_record
from queueapp.store import shards
from queueapp.store.family_records import Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildOutcome:
    """One child that has ended."""

    id: str
    """Its public id."""
    outcome: str
    """completed, or how it failed: dead, cancelled, expired, discarded, erased, lost (nobody can read it), refused (its
    pool could not take it)."""
    return_value: Any
    """What it returned; None for one that failed."""

    @property
    def completed(self) -> bool:
        return self.outcome == "completed"

    @property
    def errors(self) -> list[TaskError]:
        """Why it failed, as far as its pool still knows. Asks the store, and raises StoreError where that is away."""
        place = None if self.completed else shards.locate(self.id)
        record = shards.reads(place[0]).job(place[1]) if place is not None else None
        return result_from_record(record, place[0]).errors if record is not None and place is not None else []


class Children(Sequence[ChildOutcome]):
    """The children of a job that have ended, in the order in which they were named. Those that failed and whose
    `on_failure` is `ignore` are not among them."""

    def __init__(self, outcomes: Sequence[ChildOutcome]) -> None:
        self._outcomes = list(outcomes)

    @overload
    def __getitem__(self, index: int) -> ChildOutcome: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ChildOutcome]: ...
    def __getitem__(self, index: int | slice) -> ChildOutcome | Sequence[ChildOutcome]:
        return self._outcomes[index]

    def __len__(self) -> int:
        return len(self._outcomes)

    def __iter__(self) -> Iterator[ChildOutcome]:
        return iter(self._outcomes)

    @property
    def results(self) -> list[Any]:
        """What those returned that completed."""
        return [child.return_value for child in self._outcomes if child.completed]

    @property
    def failed(self) -> list[ChildOutcome]:
        """Those that ended in any other way."""
        return [child for child in self._outcomes if not child.completed]


def read_children(pool: str, job_id: str) -> Children:
    """The children of a job of this pool. Raises StoreError."""
    store = shards.store(pool)
    return Children([_outcome(child, pool) for child in store.children(job_id) if not _is_ignored(child)])


def _is_ignored(child: Ended) -> bool:
    return child.on_failure == "ignore" and not child.completed


def _outcome(child: Ended, pool: str) -> ChildOutcome:
    return ChildOutcome(
        id=child.child if "." in child.child else shards.keys(pool).public_id(child.child),
        outcome=child.outcome,
        return_value=decode_result(child.result) if child.completed else None,
    )
