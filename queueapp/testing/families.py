"""Trees of jobs in memory: who waits for whom under `recorded()` and `immediate()`. Part of `memory.MemoryShard`.

What a store notes for another pool and a scheduler relays is told at once here.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from queueapp.errors import NotWaiting
from queueapp.moments import now_ms
from queueapp.states import Outcome, State
from queueapp.store import shards, trees
from queueapp.store.family_records import COMPLETED, Away, Ended, Mode, Node, Note, OnFailure, Planted
from queueapp.store.ids import LENGTH, new_id
from queueapp.store.records import Enqueued, NewJob, Word
from queueapp.store.views import ErrorRecord
from queueapp.testing.rows import Row


class MemoryFamilies(ABC):
    """Parents and children of one pool; `others` finds the shard of another."""

    pool: str
    others: Callable[[str], MemoryFamilies]
    _lock: threading.RLock
    _rows: dict[str, Row]

    def __init__(self) -> None:
        self.released: list[str] = []
        """Parents whose last child has ended, until somebody runs them."""
        self._failed: list[Note] = []

    @abstractmethod
    def _take(self, job: NewJob) -> Enqueued:
        """Takes one job, as `enqueue` does."""

    @abstractmethod
    def cancel(self, ids: Sequence[str]) -> list[str]: ...

    # -- for producers and workers -----------------------------------------------------------------------------------

    def enqueue_flow(self, nodes: Sequence[Node], away: Sequence[Away] = (), mode: Mode = "new") -> Planted:
        with self._lock:
            root = nodes[0].job
            is_new = root.id not in self._rows
            answer = self._take(root)
            if answer.outcome in ("exists", "conflict"):
                return Planted(outcome="exists" if answer.outcome == "exists" else "conflict", id=answer.id)
            if is_new:
                self._plant(nodes, away)
            return Planted(outcome="enqueued", id=root.id)

    def add_children(
        self,
        parent: str,
        nodes: Sequence[Node],
        away: Sequence[Away] = (),
        *,
        attempts: int | None = None,
        cost: float = 0,
    ) -> Word:
        with self._lock:
            row = self._rows.get(parent)
            if attempts is None and (row is None or row.state is not State.WAITING):
                refused = NotWaiting()
                refused.detail = [row.state.value.encode()] if row else []
                raise refused
            if row is None:
                return "gone"
            if attempts is not None:
                if row.state is not State.ACTIVE or row.attempts != attempts:
                    return "stale"
                if row.cancelling_ms:
                    row.end(Outcome.CANCELLED, now_ms())
                    self._tell(row)
                    return "cancelled"
                row.state, row.charged = State.WAITING, max(1.0, cost or row.job.cost)
            self._plant(nodes, away)
            if not row.open:
                self._release(row)
            return "done"

    def children(self, parent: str) -> list[Ended]:
        with self._lock:
            row = self._rows.get(parent)
            return sorted(row.ended.values(), key=lambda child: (child.position, child.child)) if row else []

    def outbox(self, most: int = 100, after: str = "") -> list[Note]:
        """Of what a store notes, all but the parents that died of a child is told at once here."""
        return self._failed[:most] if not after else []

    def relayed(self, entries: Sequence[str]) -> int:
        with self._lock:
            left = [note for note in self._failed if note.entry not in entries]
            taken, self._failed = len(self._failed) - len(left), left
            return taken

    def cancel_children(self, row: Row) -> None:
        """Nobody is left who would want what they do."""
        for child in sorted(row.open):
            shard, job_id = self._place(child)
            shard.cancel([job_id])
        row.open.clear()

    # -- who is whose child ------------------------------------------------------------------------------------------

    def _plant(self, nodes: Sequence[Node], away: Sequence[Away]) -> None:
        for node in nodes:
            self._take(node.job)
            row = self._rows[node.job.id]
            row.parent, row.on_failure, row.position = node.parent, node.on_failure, node.position
            if node.waits:
                row.state = State.WAITING
            if node.parent in self._rows:
                self._rows[node.parent].open.add(node.job.id)
        for child in away:
            self._rows[child.parent].open.add(child.id)
        for child in away:
            shard, _ = self._place(child.id)
            shard.enqueue_flow(*trees.unpack(child.tree), "sent")

    def _place(self, name: str) -> tuple[MemoryFamilies, str]:
        """The shard of a job, and its id there; `name` is public where another pool has it."""
        if len(name) == LENGTH:
            return self, name
        code = name.partition(".")[0]
        return self.others(shards.pools_of([code])[code]), name[-LENGTH:]

    # -- ends --------------------------------------------------------------------------------------------------------

    def _tell(self, row: Row) -> None:
        """A job has ended or died: tells who waits for it."""
        if not row.parent:
            return
        shard, parent = self._place(row.parent)
        name = row.job.id if shard is self else shards.keys(self.pool).public_id(row.job.id)
        outcome = "dead" if row.state is State.DEAD else str(row.outcome)
        shard.hear(parent, name, row.on_failure, row.position, outcome, row.result)

    def hear(
        self, parent: str, child: str, on_failure: OnFailure, position: int, outcome: str, result: bytes | None
    ) -> None:
        """A child of a parent here has ended."""
        row = self._rows.get(parent)
        if row is None or row.state not in (State.WAITING, State.DEAD):
            return
        waited = child in row.open
        row.open.discard(child)
        row.ended[child] = Ended(
            child=child, position=position, on_failure=on_failure, outcome=outcome, result=result or None
        )
        if row.state is State.DEAD:
            return
        if outcome != COMPLETED and waited:
            last = len(row.errors) + 1 >= row.job.max_attempts
            if on_failure == "fail_parent" or (on_failure == "retry_parent" and last):
                return self._die(row, child, outcome)
            if on_failure == "retry_parent":
                row.failed_by = row.failed_by or (child, outcome)
        if not row.open:
            self._release(row)

    def _die(self, row: Row, child: str, outcome: str) -> None:
        self._note_child(row, child, outcome)
        row.state, row.reason, row.ended_ms, row.failed_child = State.DEAD, "child_failed", now_ms(), child
        to = shards.keys(self.pool).public_id(row.job.id)
        self._failed.append(Note(entry=new_id(), kind="failed", to=to))
        self._tell(row)

    def _release(self, row: Row) -> None:
        if row.failed_by is not None:
            self._note_child(row, *row.failed_by)
            row.failed_by = None
        later = row.due_ms > now_ms() and not row.attempts
        row.state = State.SCHEDULED if later else State.PENDING
        self.released.append(row.job.id)

    def _note_child(self, row: Row, child: str, outcome: str) -> None:
        named = child if "." in child else shards.keys(self.pool).public_id(child)
        message = f"Its child {named} {outcome}."
        detail = {"class": "queueapp.errors.ChildFailed", "message": message, "child": named, "outcome": outcome}
        row.errors.append(
            ErrorRecord(kind="child", attempt=row.attempts, worker="", started_ms=0, at_ms=now_ms(), detail=detail)
        )
