"""Small words for the script tests: make jobs, move a fake clock, look at the whole keyspace."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import redis

from queueapp.store.configuration import PoolConf
from queueapp.store.keys import ShardKeys
from queueapp.store.leader_records import Admitted, Dispatched, IngressEntry, Term
from queueapp.store.reads import Reads
from queueapp.store.records import Completed, Failed, LeasedJob, NewJob
from queueapp.store.store import Store

START_MS = 1_800_000_000_000
LEASE_MS = 30_000


@dataclass
class Shard:
    """A shard under a fake clock. Every test of `tests/lua` gets one as the fixture `shard`."""

    client: redis.Redis
    keys: ShardKeys
    now_ms: int = START_MS
    numbers: Any = field(default_factory=lambda: itertools.count(1))
    seqs: dict[str, int] = field(default_factory=dict)
    versions: int = 100

    def __post_init__(self) -> None:
        self.store = Store(self.client, self.keys, clock_ms=lambda: self.now_ms)
        self.reads = Reads(self.client, self.keys)

    def job(self, tenant: str = "acme", **options: Any) -> NewJob:
        """A job with a fresh id: `0000000000000000000001` and so on."""
        values: dict[str, Any] = {"task": "shop.tasks.bill", "payload": b'{"a":[1]}', "fingerprint": "f00d"}
        return NewJob(**{"id": f"{next(self.numbers):022d}", "tenant": tenant, **values, **options})

    def add(self, *jobs: NewJob) -> list[str]:
        """Enqueues the jobs, which must all be accepted; their ids."""
        answers = self.store.enqueue(jobs)
        assert [answer.outcome for answer in answers] == ["enqueued"] * len(jobs)
        return [answer.id for answer in answers]

    def lease(self, want: int = 1, worker: str = "w1", begin: int | None = None) -> list[LeasedJob]:
        """The next `want` jobs for `worker`, with the next seq of that worker."""
        self.seqs[worker] = self.seqs.get(worker, 0) + 1
        leases = self.store.check_and_lease(
            worker, self.seqs[worker], want=want, begin=want if begin is None else begin, lease_ms=LEASE_MS
        )
        return list(leases.jobs)

    def schedule(self, **options: Any) -> Term:
        """The pool's dispatch is scheduled from now on; a leader's term."""
        self.versions += 1
        self.store.configure(self.versions, pool=PoolConf(**{"dispatch": "scheduled", **options}))
        return self.term()

    def term(self) -> Term:
        """A new term: that of whoever led is over."""
        self.client.delete(self.keys["leader"])
        return self.store.lead_acquire("me", f"nonce{next(self.numbers)}", 5_000)

    def admit(self, term: Term, rank: Callable[[IngressEntry], float | None] = lambda _: None) -> Admitted:
        """Everything in ingress becomes pending."""
        entries = self.store.read_ingress(term.nonce)
        rows = [(entry.entry, entry.id, rank(entry)) for entry in entries]
        return self.store.admit(term, rows, order=self.order)

    def dispatch(self, term: Term, window: int = 1_000, most: int = 250) -> Dispatched:
        """Everything in ingress becomes pending, then as many as fit into the window become ready."""
        self.admit(term)
        return self.store.dispatch(term, most, window, order=self.order)

    @property
    def order(self) -> int:
        """The order of jobs in force, as a leader that has just read it."""
        return self.reads.in_force()[1]

    def snapshot(self) -> dict[str, Any]:
        """Every key of the shard without its prefix → its whole value."""
        found: dict[str, Any] = {}
        for key in self.client.scan_iter(f"{self.keys.prefix}*", count=1000):
            kind = self.client.type(key)
            value: Any
            if kind == b"string":
                value = self.client.get(key)
            elif kind == b"hash":
                value = self.client.hgetall(key)
            elif kind == b"zset":
                value = self.client.zrange(key, 0, -1, withscores=True)
            elif kind == b"stream":
                value = self.client.xrange(key)
            elif kind == b"set":
                value = self.client.smembers(key)
            else:
                value = self.client.lrange(key, 0, -1)
            found[key.decode().removeprefix(self.keys.prefix)] = value
        return found


def completed(job: LeasedJob, run_ms: int = 10, **options: Any) -> Completed:
    return Completed(id=job.id, attempts=job.attempts, run_ms=run_ms, **options)


def failed(job: LeasedJob, retry_ms: int | None = None, **options: Any) -> Failed:
    return Failed(
        id=job.id, attempts=job.attempts, run_ms=10, error=b'{"class":"ValueError"}', retry_ms=retry_ms, **options
    )


def counting_commands(shard: Shard, call: Callable[[], object]) -> int:
    """How many commands the server ran during a call for the counting of service."""
    mine, count = shard.keys.prefix, 0
    with shard.client.monitor() as monitor:
        call()
        shard.client.echo("enough")
        for event in monitor.listen():
            if event["command"].startswith("ECHO"):
                return count
            count += f"{mine}served:" in event["command"] or event["command"] == f"ZCARD {mine}active"
    raise AssertionError


def commands(shard: Shard) -> int:
    """How many the server has run for scripts and clients since it began."""
    return sum(int(entry["calls"]) for entry in shard.client.info("commandstats").values())
