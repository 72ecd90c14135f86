"""Random faults for as long as one likes: `make test-soak` for half an hour, two minutes of it with the other faults.

Workers and schedulers die, freeze and come back; wires are cut, slow, silent, half closed; the server forgets its
functions, pauses, restarts. Meanwhile jobs come in, and some are cancelled. In the end: accepted = completed + dead +
cancelled, no outcome was recorded twice, and `verify` finds nothing. The seed is said; DUCTOR_SOAK_SEED plays it again
(the faults are the same, what they hit depends on the machine's own timing).
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis

from queueapp import backoff, enqueue_many
from queueapp.errors import StoreError
from queueapp.store import embedded, shards
from tests.faults.wire import Wire
from tests.integration import jobs
from tests.integration.conftest import Manage, ManagedProcess, until

SECONDS = float(os.environ.get("DUCTOR_SOAK_SECONDS", "120"))
SEED = int(os.environ.get("DUCTOR_SOAK_SEED", "1"))
WORKERS, SCHEDULERS = 3, 2
STANDSTILL_S = 60.0
SETTINGS: dict[str, Any] = {
    "LEASE_SECONDS": 2,
    "LEADER_TTL_SECONDS": 1,
    "LEADER_RETRY_SECONDS": 0.2,
    "MAX_CRASHES": 1_000,
    "RESULT_MAX": 10_000_000,
}


@dataclass(slots=True)
class Victim:
    """A process, how it is started, and the wire that it speaks over."""

    start: Callable[[Wire], ManagedProcess]
    wire: Wire
    process: ManagedProcess
    frozen: bool = False


@dataclass(slots=True)
class Soak:
    """All of it. `log` says what was done, second by second."""

    chance: random.Random
    server: embedded.EmbeddedServer
    directory: Path
    victims: list[Victim] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    unknown: int = 0
    """Sends whose reply was lost: accepted or not."""
    log: list[str] = field(default_factory=list)

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.server.url, protocol=2, socket_timeout=10)

    # -- what happens ------------------------------------------------------------------------------------------------

    def send(self) -> None:
        chance = self.chance
        bound = [
            *[jobs.noop.using(tenant=f"t{chance.randrange(5)}").bind(n) for n in range(chance.randrange(12))],
            *[jobs.sleep.bind(chance.choice([0.01, 0.1, 1.0])) for _ in range(chance.randrange(5))],
            *[jobs.broken.using(max_attempts=2, backoff=backoff.fixed(0.1)).bind() for _ in range(chance.randrange(3))],
            *[jobs.noop.using(delay=chance.random() * 2).bind() for _ in range(chance.randrange(4))],
        ]
        if not bound:
            return
        for sent in enqueue_many(bound):
            if sent.result is not None:
                self.accepted.append(sent.result.id.rpartition(".")[2])
            else:
                self.unknown += 1

    def cancel(self) -> None:
        chosen = self.chance.sample(self.accepted[-200:], min(5, len(self.accepted)))
        with suppress(StoreError):
            shards.store("default").cancel(chosen)

    def kill(self, victim: Victim) -> None:
        victim.process.signal(signal.SIGKILL)
        victim.process.wait()
        victim.frozen = False
        victim.process = victim.start(victim.wire)

    def freeze(self, victim: Victim) -> None:
        victim.process.signal(signal.SIGCONT if victim.frozen else signal.SIGSTOP)
        victim.frozen = not victim.frozen

    def spoil(self, victim: Victim) -> None:
        wire = victim.wire
        match self.chance.randrange(5):
            case 0:
                wire.cut_after = self.chance.randrange(2_000)
            case 1:
                wire.half_close()
            case 2:
                wire.delay_s = self.chance.choice([0.0, 0.01, 0.1])
            case 3:
                wire.freeze()
            case 4:
                wire.thaw()

    def server_fault(self) -> None:
        with suppress(redis.RedisError):
            match self.chance.randrange(4):
                case 0:
                    self.client().function_flush()
                case 1:
                    self.client().script_flush()
                case 2:
                    self.client().client_pause(300)
                case 3:
                    self.server.stop()
                    self.server = embedded.start(self.directory, extra=("--appendfsync", "always"))

    def step(self, second: float) -> None:
        victim = self.chance.choice(self.victims)
        acts: list[tuple[str, Callable[[], None]]] = [
            *[("send", self.send)] * 6,
            ("cancel", self.cancel),
            *[("kill", lambda: self.kill(victim))] * 2,
            *[("freeze", lambda: self.freeze(victim))] * 2,
            *[("spoil", lambda: self.spoil(victim))] * 2,
            ("server", self.server_fault),
        ]
        name, act = self.chance.choice(acts)
        self.log.append(f"{second:.1f} {name} {self.victims.index(victim)}")
        with suppress(StoreError):
            act()

    def heal(self) -> None:
        for victim in self.victims:
            victim.wire.delay_s, victim.wire.cut_after = 0.0, None
            victim.wire.thaw()
            if victim.frozen:
                self.freeze(victim)


@pytest.mark.timeout(SECONDS * 3 + 300)
def test_whatever_dies_nothing_is_lost_and_nothing_is_twice(
    manage: Manage, worker: Manage, own_store: embedded.EmbeddedServer, directory: Path
) -> None:
    print(f"DUCTOR_SOAK_SEED={SEED} DUCTOR_SOAK_SECONDS={SECONDS:g}")
    soak = Soak(random.Random(SEED), own_store, directory)
    try:
        _run(soak, worker, manage)
    finally:
        for victim in soak.victims:
            victim.wire.close()
        soak.server.stop()


def _run(soak: Soak, worker: Manage, manage: Manage) -> None:
    starts: list[Callable[[Wire], ManagedProcess]] = [
        *[lambda wire: worker("--slots", "3", env={"REDIS_URL": wire.url}, **SETTINGS)] * WORKERS,
        *[lambda wire: manage("scheduler", env={"REDIS_URL": wire.url}, **SETTINGS)] * SCHEDULERS,
    ]
    for start in starts:
        wire = Wire(soak.server.url)
        soak.victims.append(Victim(start, wire, start(wire)))
    until(lambda: shards.reads("default").overview().workers)
    began = time.monotonic()
    while (second := time.monotonic() - began) < SECONDS:
        soak.step(second)
        time.sleep(soak.chance.random() * 0.2)
    soak.heal()

    _await_the_end(soak)
    reads, store = shards.reads("default"), shards.store("default")
    stats, seen = reads.overview().stats, reads.overview()
    ended = {outcome: stats.get(outcome, 0) for outcome in ("completed", "cancelled", "dead")}
    print(f"{len(soak.accepted)} accepted, {soak.unknown} unheard, {ended}, {stats.get('lost', 0)} lost leases")
    assert sum(ended.values()) == seen.ended + seen.dead, "an outcome was recorded twice"
    assert len(soak.accepted) <= seen.ended + seen.dead <= len(soak.accepted) + soak.unknown
    for job_id in soak.accepted:
        record = reads.job(job_id)
        assert record is not None, f"{job_id} is lost"
        assert record.state.value in {"ended", "dead"}
    assert store.verify() == []


def _await_the_end(soak: Soak) -> None:
    """Until every job has ended. A backlog of what came in faster may take its time; standing still may not."""
    ended, moved_at = -1, time.monotonic()
    while True:
        try:
            seen = shards.reads("default").overview()
        except StoreError:
            seen = None
        now = time.monotonic()
        if seen is not None:
            if seen.waiting == seen.active == 0 and seen.ended + seen.dead > 0:
                return
            if seen.ended + seen.dead != ended:
                ended, moved_at = seen.ended + seen.dead, now
        if now - moved_at > STANDSTILL_S:
            done = "\n".join(soak.log[-40:])
            pytest.fail(f"nothing has ended for {STANDSTILL_S:g} s, and there is: {seen}\n{done}")
        time.sleep(0.1)
