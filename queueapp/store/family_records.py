"""Trees of jobs as they go into the store, and what comes out of it about parents and children. Pure: no I/O, no Redis.

A child is told by its id, a UUID of version 8 (`ids.new_child_id`). Ids here are the 22 characters inside a shard; a
job that another pool has is named by its public id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from queueapp.store.records import NewJob

OnFailure = Literal["fail_parent", "retry_parent", "continue", "ignore"]
POLICIES: dict[OnFailure, str] = {"fail_parent": "f", "retry_parent": "r", "continue": "c", "ignore": "i"}
"""What becomes of a parent whose child fails → the letter that the store keeps (lua/include/kin.lua)."""
ON_FAILURE: dict[str, OnFailure] = {letter: name for name, letter in POLICIES.items()}
Mode = Literal["new", "more", "sent"]
COMPLETED = "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A job of a tree."""

    job: NewJob
    parent: str = ""
    """Id of its parent; public where another pool has it; "" = it has none."""
    on_failure: OnFailure = "fail_parent"
    position: int = 0
    """Among its siblings."""
    waits: bool = False
    """It has children, and waits for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """A child in another pool."""

    id: str
    """Its public id."""
    parent: str
    on_failure: OnFailure
    position: int
    tenant: str
    tree: bytes
    """It and all below it (`trees.pack`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """What became of a tree: all of it is there, or nothing."""

    outcome: Literal["enqueued", "exists", "conflict", "throttled", "backlog_full"]
    id: str
    """Of the job that it is about: the root, the one that stands for it, or the one that was refused."""
    wait_ms: int = 0
    """Of `throttled` and `backlog_full` until it is worth another try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnd:
    """A child ended in another pool."""

    parent: str
    child: str
    """As its parent names it."""
    on_failure: OnFailure
    position: int
    outcome: str
    """As of `Ended`; or `reopened`: it was dead, and runs again."""
    result: bytes | None = None
    entry: str = ""
    """Of the note by which its pool says so; "" = another pool says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """An entry of the outbox: what another pool must hear; or `failed`, of which receivers of signals must."""

    entry: str
    kind: Literal["made", "ended", "cancel", "failed"]
    to: str
    """Public id of the job that it is about there: the child to be made or cancelled, or the parent that waits; of
    `failed` the parent here."""
    tree: bytes = b""
    end: ChildEnd | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a parent knows of a child that has ended."""

    child: str
    """As the parent names it."""
    position: int
    on_failure: OnFailure
    outcome: str
    """completed; else how it failed: dead, cancelled, expired, discarded, erased, lost (nobody can read it), refused
    (its pool did not take it)."""
    result: bytes | None

    @property
    def completed(self) -> bool:
        return self.outcome == COMPLETED


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """As much of a tree as goes into the store in one call."""

    nodes: Sequence[Node]
    away: Sequence[Away]
    held: frozenset[str]
    """Parents of `nodes` that get more children by later pages."""
    filled: tuple[str, ...]
    """Parents that have all of their children with this page, of those that an earlier one held."""
