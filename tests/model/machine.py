"""What the state machine stands on: store and ledger side by side, how both are asked, what must always hold."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import redis
from hypothesis.stateful import RuleBasedStateMachine

from queueapp.states import State
from queueapp.store.keys import ShardKeys
from queueapp.store.reads import Reads
from queueapp.store.records import Completed, Failed, Finish, NewJob
from queueapp.store.store import Store
from tests.model.ledger import EXPIRED_PER_CYCLE, PROMOTED_PER_CYCLE, RECOVERED_PER_CYCLE, Ledger

T = TypeVar("T")
TENANTS, LANES, WORKERS = ("ant", "bee"), ("main", "other"), ("w1", "w2", "w3")
ID_LENGTH = 22
NOT_ARMED = "something is runnable but wake is not armed"
_shards = itertools.count(1)


class Machine(RuleBasedStateMachine):
    """`flights` is what the live workers believe they hold; `history` every lease that was ever granted."""

    steps = 0
    """Rules run by all machines of this process."""

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        super().__init__()
        self.client = client
        self.keys = ShardKeys(namespace, "model0", next(_shards))
        self.ledger = Ledger(raw_ms=1_800_000_000_000)
        self.store = Store(client, self.keys, clock_ms=lambda: self.ledger.raw_ms)
        self.reads = Reads(client, self.keys)
        self.names = list(WORKERS)
        self.seqs = dict.fromkeys(WORKERS, 0)
        self.flights: list[tuple[str, int, str]] = []
        self.history: list[tuple[str, int]] = []
        self.ids, self.version = itertools.count(1), 1
        self.armed_known = True
        self.leader: tuple[str, int] | None = None
        self.newest_term = ""

    # -- how the store is called --------------------------------------------------------------------------------

    def call(self, again: bool, ask: Callable[[], T], repeat: Callable[[T, T], None]) -> T:
        """The answer of the first call; when its reply is lost, the same call again must answer as `repeat` says."""
        self.armed_known = True
        first = ask()
        if again:
            repeat(first, ask())
        return first

    def words(self, again: bool, ask: Callable[[], Sequence[str]], model: Callable[[], Sequence[str]]) -> list[str]:
        """Words per id: the model is asked as often as the store, and must agree each time."""
        self.armed_known = True
        answers = []
        for _ in range(1 + again):
            answer = list(ask())
            assert answer == list(model())
            answers.append(answer)
        return answers[0]

    def choose(self, indices: Sequence[int], among: Sequence[T]) -> list[T]:
        """Distinct members of `among`."""
        return [among[index] for index in sorted({index % len(among) for index in indices})] if among else []

    # -- what must hold after every step ------------------------------------------------------------------------

    def check_invariants(self, *args: Any, **kwargs: Any) -> None:
        """Called by hypothesis after each rule."""
        super().check_invariants(*args, **kwargs)
        Machine.steps += 1
        violations = self.store.verify()
        assert [one for one in violations if self.armed_known or one != NOT_ARMED] == []
        where = dict(self._indices())
        assert where == dict(self.ledger.indices())
        self._check_groups()
        self.ledger.check_keys()
        if self.armed_known:
            self._check_runnable(self.client.zscore(self.keys["wake"], "w") is not None)
        popped: Any = self.client.lpop(self.keys["done:waiter"], 1000) or []
        told = [value.decode() for value in popped]
        assert sorted(told) == sorted(self.ledger.answered)
        self.ledger.answered = []

    def teardown(self) -> None:
        jobs = self.ledger.jobs
        for record, job in zip(self.reads.jobs(list(jobs)), jobs.values(), strict=True):
            if job.state is None:
                assert record is None
                continue
            assert record is not None
            assert (record.state, record.outcome) == (job.state, job.outcome)
            assert record.group == (job.group if job.state is State.DEAD else "")
            assert (record.attempts, record.error_count, record.crashes) == (job.attempts, job.errors, job.crashes)
        stored: Any = self.client.hgetall(self.keys["stats"])
        stats = {name.decode(): int(value) for name, value in stored.items()}
        assert stats.get("leased", 0) == self.ledger.leased
        assert stats.get("completed", 0) == self.ledger.completed
        self.client.unlink(*self.client.keys(f"{self.keys.prefix}*"))

    def in_line(self, name: str) -> str:
        return self.keys.in_line(name, self.reads.queues.generations().number)

    def changes(self) -> bool:
        """Jobs still stand in the order of an earlier policy: whether they may run is seen when they have moved."""
        return self.reads.queues.generations().earlier is not None

    # -- parts --------------------------------------------------------------------------------------------------

    def _indices(self) -> Iterator[tuple[str, str]]:
        """(id, state) by the index in which it stands; an id in two of them fails."""
        queues = [f"{q}:{tenant}|{lane}" for q in ("q", "qc") for tenant in TENANTS for lane in LANES]
        sets = {self.keys[name]: name for name in ("scheduled", "active", "dead", "ended")}
        for _, number, _ in self.reads.queues.generations().every():
            sub_lanes: Any = self.client.zrange(self.keys.in_line("sublanes", number), 0, -1)
            names = [*queues, *(name.decode() for name in sub_lanes)]
            sets |= {self.keys.in_line(name, number): "pending" for name in names}
        pipeline = self.client.pipeline(transaction=False)
        for name in sets:
            pipeline.zrange(name, 0, -1)
        seen: set[str] = set()
        for members, state in zip(pipeline.execute(), sets.values(), strict=True):
            jobs = {member.decode()[-ID_LENGTH:] for member in members if b"@" not in member}  # "@": a sub-lane
            assert not seen & jobs, "a job stands in two indices"
            seen |= jobs
            yield from ((job_id, state) for job_id in jobs)

    def _check_groups(self) -> None:
        """The groups of dead letters: their members, and the newest death of each."""
        want = self.ledger.groups()
        listed: Any = self.client.zrange(self.keys["deadgroups"], 0, -1, withscores=True)
        assert {name.decode(): score for name, score in listed} == {
            name: max(members.values()) for name, members in want.items()
        }
        for name, members in want.items():
            found: Any = self.client.zrange(self.keys[f"deadgroup:{name}"], 0, -1, withscores=True)
            assert {job_id.decode(): score for job_id, score in found} == members

    def _next_call(self, worker: int) -> tuple[str, int]:
        name = self.names[worker]
        self.seqs[name] += 1
        return name, self.seqs[name]

    def _check_leases(
        self, name: str, answer: Any, want: int, begin: int, lease_ms: int, *, shared: bool = False
    ) -> None:
        held = self.ledger.held(name)
        alone = any(job.suspect for job in held)
        self._see_what_expired()
        doubtful = any(job.suspect for job in self.ledger.of(State.PENDING))
        for position, leased in enumerate(answer.jobs):
            suspect = self.ledger.jobs[leased.id].suspect
            assert not suspect or (len(answer.jobs) == 1 and not held), "a suspect was not leased alone"
            self.ledger.lease(leased, name, lease_ms, begun=position < begin)
            self.flights.append((leased.id, leased.attempts, name))
            self.history.append((leased.id, leased.attempts))
        assert len(answer.jobs) <= (0 if alone else want)
        if len(answer.jobs) < want and not alone and not doubtful:
            assert answer.more or not self.ledger.surely_leasable(), "a job that could run was not leased"
        self._check_runnable(answer.runnable)
        assert answer.next_due_ms == self._next_due_ms()
        assert answer.now_ms == self.ledger.now()

    def _next_due_ms(self) -> int:
        """What the ledger knows to become due, or the next look at a key with waiters, which the store alone knows."""
        due = self.ledger.next_due_ms()
        looks: Any = self.client.zrange(self.in_line("waitkeys"), 0, 0, withscores=True)
        if not looks:
            return due
        look_ms = max(0, int(looks[0][1]) - self.ledger.now())
        return look_ms if due < 0 else min(due, look_ms)

    def _check_runnable(self, told: bool) -> None:
        """Of a job with keys the store may believe too much, until it meets it, or too little, until the next sweep."""
        assert told or not self.ledger.surely_leasable()
        assert not told or self.ledger.leasable() or self.ledger.keyed() or self.changes()

    def _see_what_expired(self) -> None:
        """The pick drops expired jobs that it meets; which ones depends on the order, so the store is asked."""
        for job in self.ledger.expiring(1000):
            if job.state is State.PENDING and self.client.hget(self.keys.run(job.new.id), "s") == b"e":
                self.ledger.expire([job])

    def _share_of_cycle(
        self,
        answer: Any,
        finished: Sequence[Finish],
        extend: Sequence[tuple[str, int]],
        begun: Sequence[tuple[str, int]],
        lease_ms: int,
    ) -> None:
        ledger = self.ledger
        due, expiring = ledger.due(PROMOTED_PER_CYCLE), ledger.expiring(EXPIRED_PER_CYCLE)
        active = ledger.of(State.ACTIVE)
        ledger.begin(begun)
        assert list(answer.finished) == [ledger.finish(one) for one in finished]
        assert list(answer.lost) == ledger.extend(extend, lease_ms)
        self.flights = [flight for flight in self.flights if flight[0] not in answer.lost]
        ledger.promote(due)
        ledger.expire(expiring)
        overdue = [job for job in active if job.deadline_ms <= ledger.now()]
        overdue.sort(key=lambda job: (job.deadline_ms, job.new.id))
        ledger.recover(overdue[:RECOVERED_PER_CYCLE])

    def _finishes(
        self, chosen: Sequence[tuple[str, int]], fails: bool, run_ms: int, cost: float, retry_ms: int | None
    ) -> list[Finish]:
        if not fails:
            return [Completed(id=job_id, attempts=attempts, run_ms=run_ms, cost=cost) for job_id, attempts in chosen]
        return [
            Failed(
                id=job_id,
                attempts=attempts,
                run_ms=run_ms,
                cost=cost,
                retry_ms=retry_ms,
                error=b'{"class": "X"}',
                fingerprint=f"{run_ms:012x}" if cost else "",
            )
            for job_id, attempts in chosen
        ]

    def _send(self, finished: Sequence[Finish]) -> Sequence[str]:
        done = [one for one in finished if isinstance(one, Completed)]
        failed = [one for one in finished if isinstance(one, Failed)]
        return self.store.fail(failed) if failed else self.store.complete(done)

    def _model(self, arrow: Callable[[Any], str], what: Sequence[Any]) -> list[str]:
        self.ledger.now()
        return [arrow(one) for one in what]

    def _drop(self, finished: Sequence[Finish]) -> None:
        gone = {(finish.id, finish.attempts) for finish in finished}
        self.flights = [flight for flight in self.flights if flight[:2] not in gone]

    def _configure(self, again: bool, **what: Any) -> None:
        self.version += 1
        self.call(again, lambda: self.store.configure(self.version, **what), self._same)
        self.ledger.now()

    @staticmethod
    def _same(first: object, second: object) -> None:
        assert first == second

    @staticmethod
    def _same_leases(first: Any, second: Any) -> None:
        """The same jobs under the same fences, in any order."""
        assert sorted((job.id, job.attempts) for job in first.jobs) == sorted(
            (job.id, job.attempts) for job in second.jobs
        )

    def _enqueue(self, wanted: list[dict[str, Any]], again: bool) -> None:
        new = [NewJob(id=f"{next(self.ids):022d}", task="demo.task", payload=b"{}", **options) for options in wanted]
        armed, known = self.armed_known, len(self.ledger.jobs)
        answer = self.call(again, lambda: self.store.enqueue(new), self._same)
        self.ledger.now()
        assert [(one.outcome, one.id) for one in answer] == [self.ledger.enqueue(job) for job in new]
        self.armed_known = armed or len(self.ledger.jobs) > known  # a call that adds nothing arms nothing
