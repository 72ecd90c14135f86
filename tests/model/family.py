"""Parents and children as plainly as they can be said: who waits for whom, and what an end does to those above.

No shards, no indices, no scripts: a job knows its parent and the set of its children that have not ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from queueapp.states import Outcome, State
from queueapp.store.family_records import Node, OnFailure

WAITS = (State.PENDING, State.SCHEDULED)


@dataclass(slots=True)
class Person:
    """One job. `state` None = erased."""

    id: str
    parent: str
    tenant: str
    on_failure: OnFailure
    max_attempts: int
    expires_ms: int
    state: State | None
    outcome: Outcome | None = None
    attempts: int = 0
    errors: int = 0
    due_ms: int = 0
    open: set[str] = field(default_factory=set)
    """Its children that have not ended."""
    told: dict[str, str] = field(default_factory=dict)
    """Its children that have → how."""
    to_retry: bool = False
    """One whose end counts as its error has failed."""
    stopping: bool = False
    linked: bool = False
    """Its end is told to its parent."""


@dataclass
class Family:
    """All jobs of a shard."""

    now_ms: int
    people: dict[str, Person] = field(default_factory=dict)

    def of(self, *states: State | None) -> list[Person]:
        return [one for one in self.people.values() if one.state in states]

    # -- arrows -----------------------------------------------------------------------------------------------------

    def enqueue_flow(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            job = node.job
            self.people[job.id] = Person(
                id=job.id,
                parent=node.parent,
                tenant=job.tenant,
                on_failure=node.on_failure,
                max_attempts=job.max_attempts,
                expires_ms=self.now_ms + job.expires_after_ms if job.expires_after_ms else 0,
                state=State.WAITING if node.waits else State.PENDING,
                linked=bool(node.parent),
            )
            if node.parent:
                self.people[node.parent].open.add(job.id)

    def add_children(self, parent: str, nodes: Sequence[Node], *, runs: bool) -> str:
        one = self.people[parent]
        if runs and one.stopping:
            self.end([one], Outcome.CANCELLED)
            return "cancelled"
        self.enqueue_flow(nodes)
        if runs:
            one.state = State.WAITING
        self._look(one)
        return "done"

    def lease(self, job_id: str) -> None:
        one = self.people[job_id]
        assert one.state is State.PENDING, f"{job_id} was leased in state {one.state}"
        one.state, one.attempts = State.ACTIVE, one.attempts + 1

    def finish(self, job_id: str, *, fails: bool, retry_ms: int | None) -> str:
        one = self.people[job_id]
        if one.stopping:
            self.end([one], Outcome.CANCELLED)
            return "cancelled"
        if not fails:
            self.end([one], Outcome.COMPLETED)
            return "done"
        one.errors += 1
        due_ms = self.now_ms + (retry_ms or 0)
        if retry_ms is not None and one.errors < one.max_attempts and not 0 < one.expires_ms <= due_ms:
            one.state, one.due_ms = State.SCHEDULED, due_ms
            return "retry"
        self.die(one)
        return "dead"

    def cancel(self, job_id: str) -> str:
        one = self.people[job_id]
        if one.state is State.WAITING:
            children = [self.people[child] for child in sorted(one.open)]
            one.open.clear()
            self.end([one], Outcome.CANCELLED)
            for child in children:
                self.cancel(child.id)
            return "cancelled"
        if one.state in WAITS:
            self.end([one], Outcome.CANCELLED)
            return "cancelled"
        if one.state is State.ACTIVE:
            one.stopping = True
            return "stopping"
        return "gone" if one.state is None else "already"

    def move_to_dlq(self, job_id: str) -> str:
        one = self.people[job_id]
        if one.state in (*WAITS, State.WAITING):
            self.die(one)
            return "moved"
        return "gone" if one.state is None else "active" if one.state is State.ACTIVE else "already"

    def discard(self, job_id: str) -> str:
        one = self.people[job_id]
        if one.state is State.DEAD:
            self.end([one], Outcome.DISCARDED)
            one.open.clear()
            return "discarded"
        return "gone" if one.state is None else "already"

    def retry(self, job_id: str) -> str:
        one = self.people[job_id]
        if one.state is not State.DEAD:
            return "gone" if one.state is None else "already"
        one.errors, one.expires_ms = 0, 0
        one.state = State.WAITING if one.open else State.PENDING
        above = self.people.get(one.parent) if one.linked else None
        if above is not None and above.state in (State.WAITING, State.DEAD):
            above.open.add(one.id)
            above.told.pop(one.id, None)
        return "retried"

    def erase(self, job_id: str) -> str:
        one = self.people[job_id]
        if one.state is None:
            return "gone"
        ended = one.state is State.ENDED
        one.state = None
        one.open.clear()
        if not ended:
            self._tell(one, "erased")
            one.linked = False
        return "erased"

    def pass_time(self) -> None:
        """What is due, as `promote_due` does it."""
        expired = [one for one in self.of(*WAITS, State.WAITING) if 0 < one.expires_ms <= self.now_ms]
        for one in sorted(expired, key=lambda one: (one.expires_ms, one.id)):
            if one.state in (*WAITS, State.WAITING):
                one.open.clear()
                self.end([one], Outcome.EXPIRED)
        for one in self.of(State.SCHEDULED):
            if one.due_ms <= self.now_ms:
                one.state = State.PENDING

    # -- ends -------------------------------------------------------------------------------------------------------

    def end(self, those: Iterable[Person], outcome: Outcome) -> None:
        for one in those:
            one.state, one.outcome, one.stopping = State.ENDED, outcome, False
            self._tell(one, outcome.value)
            one.linked = False

    def die(self, one: Person) -> None:
        one.state, one.to_retry = State.DEAD, False
        self._tell(one, "dead")

    def _tell(self, one: Person, outcome: str) -> None:
        above = self.people.get(one.parent) if one.linked else None
        if above is None or above.state not in (State.WAITING, State.DEAD):
            return
        is_new = one.id in above.open
        above.open.discard(one.id)
        above.told[one.id] = outcome
        if above.state is State.DEAD:
            return
        if is_new and outcome != "completed":
            if one.on_failure == "fail_parent":
                return self.die(above)
            if one.on_failure == "retry_parent":
                if above.errors + 1 >= above.max_attempts:
                    return self.die(above)
                above.to_retry = True
        self._look(above)

    def _look(self, one: Person) -> None:
        if one.state is not State.WAITING or one.open:
            return
        one.errors += one.to_retry
        one.to_retry = False
        one.state = State.PENDING
