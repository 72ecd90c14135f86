"""A store in memory for the worker's unit tests: the leases, fences and sequence numbers of one shard, no Redis.

It keeps the promises that the worker builds on (a repeat of a call answers the same leases, an old fence is refused)
and can lose replies or be away. Single lock, because a test's thread looks on while the worker's threads call.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, sleep
from typing import Any

from queueapp.errors import StoreUnavailable
from queueapp.store.records import Completed, Cycle, Failed, Finish, LeasedJob, Returned, Word


def leased(job_id: str = "j", *, attempts: int = 1, task: str = "tests.noop", **values: Any) -> LeasedJob:
    """A leased job with plain values."""
    fields: dict[str, Any] = {
        "errors": 0,
        "crashes": 0,
        "tenant": "acme",
        "lane": "main",
        "priority": 0,
        "cost": 0.0,
        "submitted_ms": 1,
        "ready_ms": 1,
        "leased_ms": 1,
        "deadline_ms": 30_001,
        "max_attempts": 1,
        "payload": b"{}",
    }
    return LeasedJob(id=job_id, attempts=attempts, task=task, **{**fields, **values})


class FakeStore:
    """One shard. `pending` holds (id, task); everything that was said stands in the lists."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.pending: deque[tuple[str, str]] = deque()
        self.active: dict[str, int] = {}
        self.tasks: dict[str, str] = {}
        self.attempts: dict[str, int] = {}
        self.crashes: dict[str, int] = {}
        self.calls: list[dict[str, object]] = []
        self.outcomes: dict[str, Finish] = {}
        self.refused: list[str] = []
        self.returned: list[Returned] = []
        self.begun: set[str] = set()
        self.lost: set[str] = set()
        self.stopping: set[str] = set()
        """Jobs that were told to stop."""
        self.extended: list[str] = []
        self.forgotten = False
        self.channels: list[str] = []
        """Signs of life that were told with registrations."""
        self.unseen = False
        """No sign of life is seen on the server that registers."""
        self.away = False
        self.lose_replies = 0
        self.next_due_ms = -1
        self.version = 1
        self.limited: set[str] = set()
        """Tenants that something configured holds back."""
        self._seq = 0
        self._leases: list[LeasedJob] = []

    def add(self, count: int, task: str = "tests.noop", prefix: str = "j") -> None:
        with self.lock:
            for number in range(count):
                self.pending.append((f"{prefix}{number}", task))

    def cycle(
        self,
        worker: str,
        seq: int,
        *,
        want: int,
        begin: int,
        lease_ms: int,
        finished: Sequence[Finish] = (),
        extend: Sequence[tuple[str, int]] = (),
        begun: Sequence[tuple[str, int]] = (),
    ) -> Cycle:
        with self.lock:
            self._reach()
            self.calls.append({"seq": seq, "want": want, "begin": begin, "finished": len(finished), "at": monotonic()})
            assert want <= 100
            assert len(finished) <= 100
            assert begin <= want
            words = [self._finish(finish) for finish in finished]
            self.begun.update(job_id for job_id, _ in begun)
            lost = [job_id for job_id, _ in extend if job_id in self.lost or job_id not in self.active]
            self.extended += [job_id for job_id, _ in extend]
            if seq != self._seq:
                assert seq == self._seq + 1, "a call was skipped"
                self._seq = seq
                self._leases = [self._lease() for _ in range(min(want, len(self.pending)))]
                self.begun.update(job.id for job in self._leases[:begin])
            if self.lose_replies:
                self.lose_replies -= 1
                raise StoreUnavailable("the reply was lost")
            return Cycle(
                jobs=self._leases,
                runnable=bool(self.pending),
                next_due_ms=self.next_due_ms,
                now_ms=1,
                version=self.version,
                finished=words,
                lost=lost,
                cancelled=sorted(self.stopping & self.active.keys()),
            )

    def partition_requeue(self, returned: Sequence[Returned]) -> list[Word]:
        with self.lock:
            self._reach()
            words: list[Word] = []
            for job in returned:
                current = self.active.get(job.id) == job.attempts
                stops = job.id in self.stopping
                words.append(("cancelled" if stops else "done") if current else "stale")
                if current:
                    del self.active[job.id]
                    self.returned.append(job)
                if current and not stops:
                    self.pending.appendleft((job.id, self.tasks[job.id]))
            return words

    def save(self, job_id: str, attempts: int, fields: Mapping[str, bytes]) -> Word:
        self._reach()
        return "done" if self.active.get(job_id) == attempts else "stale"

    def register(self, worker: str, info: Mapping[str, str], ttl_ms: int, channel: str = "") -> bool:
        with self.lock:
            self._reach()
            self.channels.append(channel)
            return not self.unseen

    def forget(self, worker: str) -> int:
        with self.lock:
            self._reach()
            self.forgotten = True
            return 0

    def unlimited(self, scopes: Sequence[tuple[str, str]]) -> tuple[int, list[bool]]:
        with self.lock:
            self._reach()
            return self.version, [tenant not in self.limited for tenant, _ in scopes]

    def wait(self, condition: Callable[[], bool], timeout: float = 10.0) -> None:
        """Waits until something is so; it is looked at under the store's lock, whatever it is that changes."""
        deadline = monotonic() + timeout
        while True:
            with self.lock:
                if condition():
                    return
            assert monotonic() < deadline, "it did not come to that"
            sleep(0.002)

    def _reach(self) -> None:
        if self.away:
            raise StoreUnavailable("the store is away")

    def _lease(self) -> LeasedJob:
        job_id, task = self.pending.popleft()
        attempts = self.attempts[job_id] = self.attempts.get(job_id, 0) + 1
        self.active[job_id] = attempts
        self.tasks[job_id] = task
        return leased(job_id, attempts=attempts, task=task, crashes=self.crashes.get(job_id, 0))

    def _finish(self, finish: Finish) -> Word:
        assert isinstance(finish, (Completed, Failed))
        if self.active.get(finish.id) != finish.attempts:
            if finish.id in self.outcomes:
                return "done"
            self.refused.append(finish.id)
            return "stale"
        del self.active[finish.id]
        self.outcomes[finish.id] = finish
        return "cancelled" if finish.id in self.stopping else "done"


class FakeBlocking:
    """A blocking client whose BZPOPMIN waits for `wake`, notes its calls, and can be closed under the waiter."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.tokens = 0
        self.closed = False
        self.calls: list[tuple[list[str], float]] = []
        self.error: Exception | None = None

    def wake(self) -> None:
        with self.condition:
            self.tokens += 1
            self.condition.notify_all()

    def bzpopmin(self, keys: Sequence[str], timeout: float) -> object:
        with self.condition:
            self.calls.append((list(keys), timeout))
            self.condition.notify_all()
            if self.error:
                raise self.error
            self.condition.wait_for(lambda: self.tokens or self.closed, timeout)
            if self.closed:
                raise ConnectionError("closed")
            if self.tokens:
                self.tokens -= 1
                return (keys[0], b"w", 0)
            return None

    def close(self) -> None:
        with self.condition:
            self.closed = True
            self.condition.notify_all()

    def wait_parked(self, times: int = 1) -> None:
        with self.condition:
            assert self.condition.wait_for(lambda: len(self.calls) >= times, 10), "nobody parked"
