"""A worker in a thread of its own over fake stores, with bodies that a test controls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from queueapp.store.records import Completed
from queueapp.sync.installation import Ownership
from queueapp.worker.faults import Faults
from queueapp.worker.limits import Limits
from queueapp.worker.line import Line
from queueapp.worker.loop import Worker, WorkerOptions
from queueapp.worker.parker import Parker
from queueapp.worker.slots import Held, Outcome
from tests.unit.fake_store import FakeBlocking, FakeStore

Body = Callable[[Held], object]


class Running:
    """One pool for each store. `bodies` holds what a task's jobs do; those of any other task do nothing."""

    def __init__(
        self,
        *stores: FakeStore,
        lease_ms: int = 30_000,
        slots: int = 4,
        grace_ms: int = 25_000,
        batch: bool = False,
        max_tasks: int | None = None,
        ownership: Ownership | None = None,
        run: Callable[[Held, Faults, Limits], Outcome] | None = None,
        coroutines: int = 0,
        replaceable: bool = False,
        own: Sequence[str] = (),
    ) -> None:
        self.blocking = FakeBlocking()
        self.bodies: dict[str, Body] = {}
        self.started: list[str] = []
        self.lines = [Line(f"pool{i}", store, "w", lease_ms=lease_ms) for i, store in enumerate(stores)]
        keys = [line.pool for line in self.lines]
        self.worker = Worker(
            self.lines,
            WorkerOptions(
                slots=slots,
                coroutines=coroutines,
                grace_ms=grace_ms,
                batch=batch,
                max_tasks=max_tasks,
                replaceable=replaceable,
            ),
            lambda post: Parker(self._connect, [*keys, *own], post, own=own),
            ownership=ownership,
            run=run or self._run,
        )
        self.code: int | None = None
        self.thread = threading.Thread(target=self._work, daemon=True)
        self._store = stores[0]

    def _connect(self) -> FakeBlocking:
        self.blocking.closed = False  # the worker closes it to end a wait, and connects anew
        return self.blocking

    def start(self) -> Running:
        self.thread.start()
        return self

    def wait_turn(self) -> None:
        """Until the I/O thread has gone round twice more, which it does each second at least."""
        for _ in range(2):
            before = self.worker.turned_at
            self._store.wait(lambda before=before: self.worker.turned_at > before)  # type: ignore[misc]  # mypy infers no lambda with a default

    def join(self) -> int | None:
        """The exit code of a worker that ends by itself, or was told to."""
        self.thread.join(10)
        assert not self.thread.is_alive()
        return self.code

    def _work(self) -> None:
        self.code = self.worker.run()

    def _run(self, held: Held, faults: Faults, limits: Limits) -> Outcome:
        self.started.append(held.job.id)
        body = self.bodies.get(held.job.task)
        if body:
            body(held)
        return Completed(id=held.job.id, attempts=held.job.attempts, run_ms=0)
