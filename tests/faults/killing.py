"""What a kill matrix of processes needs: work to do, a process that dies at a command, and the sums at the end."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queueapp import backoff, enqueue_many
from queueapp.store import scripts
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.faults.wire import When, Wire
from tests.integration import jobs
from tests.integration.conftest import ManagedProcess, until

LEASE_S = 1.0
FAST: dict[str, Any] = {
    "LEASE_SECONDS": LEASE_S,
    "LEADER_TTL_SECONDS": 1.0,
    "LEADER_RETRY_SECONDS": 0.2,
    "MAX_CRASHES": 50,
    "RESULT_MAX": 100_000,
}


@dataclass(slots=True)
class Sums:
    """What was accepted, and what must become of it."""

    accepted: int = 0

    def send(self, *bound: Any) -> None:
        sent = enqueue_many(list(bound))
        self.accepted += sum(one.result is not None for one in sent)

    def come_out(self, store: Store, reads: Reads) -> None:
        def all_told() -> bool:
            seen = reads.overview()
            return seen.ended + seen.dead == self.accepted

        until(all_told, timeout=60, what=f"{self.accepted} jobs end, but {reads.overview()}")
        stats = reads.overview().stats
        ended = stats.get("completed", 0) + stats.get("cancelled", 0) + stats.get("expired", 0)
        assert ended == reads.overview().ended, "something was recorded twice"
        assert store.verify() == []


def send_some(sums: Sums, place: Path) -> None:
    """Of everything a little: plain, slow, keyed, failing with and without a retry, given back, delayed."""
    sums.send(
        *[jobs.noop.using(tenant=f"t{number % 3}").bind(number) for number in range(30)],
        *[jobs.sleep.bind(0.05) for _ in range(4)],
        *[jobs.broken.using(max_attempts=2, backoff=backoff.fixed(0.05)).bind() for _ in range(3)],
        *[jobs.progress.bind() for _ in range(3)],
        *[jobs.noop.using(delay=0.3).bind() for _ in range(3)],
    )


def word(name: str) -> str:
    """A script by its name, or a command by its own."""
    return name if name.isupper() else scripts.script(name).function


def killed_at(
    process: Callable[[], ManagedProcess],
    wire: Wire,
    name: str,
    when: When,
    *,
    where: Callable[[Sequence[bytes]], bool] = lambda command: True,
) -> ManagedProcess:
    """Starts it; it dies there, at the first of these calls that is as `where` says."""
    started: list[ManagedProcess] = []
    strike = wire.strike(word(name), when, lambda: started[0].signal(signal.SIGKILL) if started else None, where)
    strike.done.set()
    started.append(process())
    strike.done.clear()
    assert strike.done.wait(30), f"{name} was not called:\n{started[0].output}"
    assert started[0].wait() == -signal.SIGKILL
    return started[0]
