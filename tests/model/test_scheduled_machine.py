"""Scheduled dispatch under everything at once: leaders and workers that die, modes that change, by hand and by time.

The machine does not know the order (the parity tests hold that). It knows of each job whether it waits, runs or is
over, and demands after every call that the shard recounts, that only what waits is leased, and that each lease is one
attempt more. At the end everything opens, a last leader and a worker come, and every job that was not ended by hand or
by time runs to its end, once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from queueapp.codec import digest
from queueapp.errors import Fenced
from queueapp.policies.registry import DIRECT
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.keys import ShardKeys
from queueapp.store.leader_records import IngressEntry, Term
from queueapp.store.records import Completed, KeyUse, Leases, NewJob, Returned
from queueapp.store.store import Store

TENANTS, LANES = ("ant", "bee", "cat"), ("main", "other")
LEASE_MS = 20_000
STEPS_IN_CI, STEPS_LONG = 1_200, 60_000
_shards = itertools.count(1)

new_jobs = st.lists(
    st.fixed_dictionaries(
        {"tenant": st.sampled_from(TENANTS)},
        optional={
            "lane": st.sampled_from(LANES),
            "priority": st.sampled_from([0, 5, -5]),
            "cost": st.sampled_from([0.0, 2.5]),
            "tier": st.sampled_from(["start", "continue"]),
            "delay_ms": st.sampled_from([0, 500]),
            "expires_after_ms": st.sampled_from([0, 0, 0, 400, 40_000]),
            "keys": st.sampled_from(["", "", "", "a", "b", "ab"]).map(
                lambda names: tuple(sorted((_key(name) for name in names), key=lambda key: key.digest))
            ),
        },
    ),
    min_size=1,
    max_size=5,
)
picks = st.lists(st.integers(0, 10**6), min_size=1, max_size=4)
twice = st.sampled_from([False, False, False, True])


def _key(name: str) -> KeyUse:
    return KeyUse(digest=digest(name), text=name, limit=1, pattern=digest(name))


class ScheduledMachine(RuleBasedStateMachine):
    """`read` is what the leader has read and not admitted; `former` are the terms of leaders that are gone."""

    steps = 0
    """Rules run by all machines of this process."""

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        super().__init__()
        self.client = client
        self.keys = ShardKeys(namespace, "sched0", next(_shards))
        self.now_ms = 1_800_000_000_000
        self.store = Store(client, self.keys, clock_ms=lambda: self.now_ms)
        self.waiting: set[str] = set()
        self.running: dict[str, int] = {}
        self.attempts: dict[str, int] = {}
        self.completed: list[str] = []
        self.over: set[str] = set()
        """Ended by hand or by time."""
        self.ids, self.versions, self.calls, self.nonces = (itertools.count(1) for _ in range(4))
        self.read: list[IngressEntry] = []
        self.former: list[Term] = []
        self.conf = PoolConf(dispatch="scheduled")
        self.configured: set[tuple[str, str]] = set()
        self.flushed = 0

    def check_invariants(self, *args: Any, **kwargs: Any) -> None:
        """Called by hypothesis after each rule."""
        super().check_invariants(*args, **kwargs)
        ScheduledMachine.steps += 1
        assert self.store.verify() == []

    def teardown(self) -> None:
        if not hasattr(self, "term"):
            return
        self._configure(pool=PoolConf(policy=self.conf.policy, dispatch=self.conf.dispatch))
        self._configure(scopes=[ScopeLimits(tenant=tenant, lane=lane, clear=True) for tenant, lane in self.configured])
        self.now_ms += 100_000  # what is leased is lost, what is scheduled is due, keys are looked at again
        self._end_expired()
        self.store.partition_recover(1_000)
        self.waiting |= self.running.keys()
        self.running.clear()
        self._new_term()
        for _ in range(500):
            if not self.waiting:
                break
            self.now_ms += 1_100
            self.store.promote_due(1_000)
            self._admit_all()
            self._dispatch(250, 1_000)
            self.lease(20, False)
            self.complete(list(range(20)), False)
        assert not self.waiting, "a job never came to run"
        assert self.store.verify() == []
        assert len(self.completed) == len(set(self.completed))
        assert set(self.completed) | self.over == self.attempts.keys()
        self.client.unlink(*self.client.keys(f"{self.keys.prefix}*"))

    # -- life ---------------------------------------------------------------------------------------------------

    @initialize(
        policy=st.sampled_from(["tiered", "wfq", "fifo", "ring", "drr", "lottery"]),
        wanted=new_jobs,
        direct=st.booleans(),
    )
    def begin(self, policy: str, wanted: list[dict[str, Any]], direct: bool) -> None:
        mode: Any = "direct" if direct and policy in DIRECT else "scheduled"
        self.conf = PoolConf(policy=policy, dispatch=mode)
        self._configure(pool=self.conf)
        self._new_term()
        self.enqueue(wanted, False)

    @rule(wanted=new_jobs, again=twice)
    def enqueue(self, wanted: list[dict[str, Any]], again: bool) -> None:
        new = [
            NewJob(
                id=f"{next(self.ids):022d}",
                task="demo.task",
                payload=b"{}",
                fingerprint="f",
                max_attempts=1_000,
                max_crashes=1_000,
                **options,
            )
            for options in wanted
        ]
        for _ in range(1 + again):
            assert {one.outcome for one in self.store.enqueue(new)} == {"enqueued"}
        self.waiting |= {job.id for job in new}
        self.attempts |= {job.id: 0 for job in new}

    @rule(want=st.integers(1, 4), again=twice)
    def lease(self, want: int, again: bool) -> None:
        seq = next(self.calls)

        def ask() -> Leases:
            if seq % 2:
                return self.store.cycle("w", seq, want=want, begin=0, lease_ms=LEASE_MS)
            return self.store.check_and_lease("w", seq, want=want, begin=0, lease_ms=LEASE_MS)

        lost = self._overdue()
        answer = ask()
        if seq % 2:
            self._lost(lost)
        self._end_expired()
        for job in answer.jobs:
            assert job.id in self.waiting, "a job was leased that does not wait"
            assert job.attempts == self.attempts[job.id] + 1, "a lease was given twice, or none is known"
            self.attempts[job.id] = job.attempts
            self.waiting.remove(job.id)
            self.running[job.id] = self.now_ms + LEASE_MS
        if again:
            assert {(job.id, job.attempts) for job in ask().jobs} == {(job.id, job.attempts) for job in answer.jobs}

    @rule(chosen=picks, again=twice)
    def complete(self, chosen: Sequence[int], again: bool) -> None:
        done = [
            Completed(id=job_id, attempts=self.attempts[job_id], run_ms=3)
            for job_id in self._some(chosen, self.running)
        ]
        for _ in range(1 + again):
            assert self.store.complete(done) == ["done"] * len(done)
        for job in done:
            del self.running[job.id]
            self.completed.append(job.id)

    @rule(chosen=picks)
    def give_back(self, chosen: Sequence[int]) -> None:
        ids = self._some(chosen, self.running)
        self.store.partition_requeue([Returned(id=job_id, attempts=self.attempts[job_id]) for job_id in ids])
        self._lost(ids)

    @rule(ms=st.sampled_from([1, 100, 500, 2_000, 31_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def what_time_alone_sets_off(self) -> None:
        lost = self._overdue()
        self.store.partition_recover(1_000)
        self._lost(lost)
        self.store.promote_due(1_000)
        self._end_expired()

    @rule(chosen=picks, redrive=st.booleans())
    def by_hand(self, chosen: Sequence[int], redrive: bool) -> None:
        """Cancelled, or set aside and redriven."""
        ids = self._some(chosen, self.waiting)
        if redrive:
            moved = [
                job_id for job_id, word in zip(ids, self.store.move_to_dlq(ids, "why"), strict=True) if word == "moved"
            ]
            assert self.store.retry_from_dlq(moved) == ["retried"] * len(moved)
        else:
            assert set(self.store.cancel(ids)) <= {"cancelled"}
            self.waiting -= set(ids)
            self.over |= set(ids)

    # -- leaders ------------------------------------------------------------------------------------------------

    @rule(most=st.integers(1, 4))
    def leader_reads(self, most: int) -> None:
        self.read = self.store.read_ingress(self.term.nonce, most)

    @rule(again=twice)
    def leader_admits(self, again: bool) -> None:
        for _ in range(1 + again):
            self.store.admit(self.term, [(one.entry, one.id, float(one.seq)) for one in self.read], order=self._order)

    @rule(most=st.integers(0, 4), window=st.integers(0, 6))
    def leader_dispatches(self, most: int, window: int) -> None:
        self._dispatch(most, window)

    @rule()
    def leader_keeps_what_its_policy_knows(self) -> None:
        self.flushed += 1
        assert self.store.flush_policy(self.term, self.flushed, b"%d" % self.flushed, order=self._order)
        assert self.store.read_policy() == (self.flushed, b"%d" % self.flushed)

    @rule()
    def leader_dies(self) -> None:
        """It may have read and not admitted, admitted and not dispatched, dispatched and not kept."""
        self.former.append(self.term)
        self._new_term()

    @rule(chosen=st.integers(0, 10**6))
    def a_former_leader_goes_on(self, chosen: int) -> None:
        """It was frozen: it reads, but whatever it writes is refused."""
        if not self.former:
            return
        term = self.former[chosen % len(self.former)]
        read = self.store.read_ingress(term.nonce, 2)
        before = self._everything()
        writes: list[Callable[[], object]] = [
            lambda: self.store.admit(term, [(one.entry, one.id, None) for one in read]),
            lambda: self.store.dispatch(term, 5, 100, [("ant", "main")]),
            lambda: self.store.flush_policy(term, 10**6, b"stale"),
        ]
        for write in writes:
            with pytest.raises(Fenced):
                write()
        assert self._everything() == before

    # -- by the admin -------------------------------------------------------------------------------------------

    @rule(
        tenant=st.sampled_from(TENANTS),
        lane=st.sampled_from(["", *LANES]),
        ceiling=st.sampled_from([None, None, 0, 1, 2]),
        paused=st.sampled_from([False, False, True]),
        minimum=st.sampled_from([0, 0, 1]),
    )
    def configure_scope(self, tenant: str, lane: str, ceiling: int | None, paused: bool, minimum: int) -> None:
        self.configured.add((tenant, lane))
        self._configure(
            scopes=[
                ScopeLimits(
                    tenant=tenant, lane=lane, max_in_flight=ceiling, paused=paused, min_share=0 if lane else minimum
                )
            ]
        )

    @rule(ceiling=st.sampled_from([None, None, 0, 2]), paused=st.sampled_from([False, False, True]))
    def configure_pool(self, ceiling: int | None, paused: bool) -> None:
        self.conf = PoolConf(policy=self.conf.policy, dispatch=self.conf.dispatch, max_in_flight=ceiling, paused=paused)
        self._configure(pool=self.conf)

    @rule()
    def dispatch_changes(self) -> None:
        if self.conf.policy in DIRECT:
            mode: Any = "direct" if self.conf.dispatch == "scheduled" else "scheduled"
            self.conf = PoolConf(policy=self.conf.policy, dispatch=mode)
            self._configure(pool=self.conf)

    # -- parts --------------------------------------------------------------------------------------------------

    def _configure(self, **what: Any) -> None:
        self.store.configure(next(self.versions), **what)

    def _new_term(self) -> None:
        self.read = []
        self.client.delete(self.keys["leader"])
        self.term = self.store.lead_acquire("leader", f"nonce{next(self.nonces)}", 5_000)

    @property
    def _order(self) -> int:
        """The order of jobs in force, as a leader that has just read it."""
        return int(self.client.hget(self.keys["conf"], "order") or 0)

    def _admit_all(self) -> None:
        while read := self.store.read_ingress(self.term.nonce):
            self.store.admit(self.term, [(one.entry, one.id, float(one.seq)) for one in read], order=self._order)

    def _dispatch(self, most: int, window: int) -> None:
        """With picks where the store needs them: some of what runs, and some that may not."""
        names = [(tenant, lane) for tenant in TENANTS for lane in LANES] * 40
        chosen = names[: most * 6] if self.conf.policy not in DIRECT else []
        answer = self.store.dispatch(self.term, most, window, chosen, order=self._order)
        assert answer.jobs <= window
        assert not self.client.zcard(self.keys["ready"]) > max(window, self._before(answer.jobs))
        self._end_expired()

    def _before(self, jobs: int) -> int:
        return int(self.client.zcard(self.keys["ready"])) - jobs

    def _some(self, chosen: Sequence[int], among: Any) -> list[str]:
        known = sorted(among)
        return [known[index] for index in sorted({index % len(known) for index in chosen})] if known else []

    def _overdue(self) -> list[str]:
        return [job_id for job_id, until_ms in self.running.items() if until_ms <= self.now_ms]

    def _lost(self, ids: Sequence[str]) -> None:
        for job_id in ids:
            del self.running[job_id]
            self.waiting.add(job_id)

    def _end_expired(self) -> None:
        """Which waiting jobs time has ended is asked of the store."""
        known = sorted(self.waiting)
        pipeline = self.client.pipeline(transaction=False)
        for job_id in known:
            pipeline.hmget(self.keys.run(job_id), "s", "o")
        for job_id, found in zip(known, pipeline.execute(), strict=True):
            if found == [b"e", b"expired"]:
                self.waiting.remove(job_id)
                self.over.add(job_id)

    def _everything(self) -> list[tuple[bytes, object]]:
        keys: list[Any] = sorted(self.client.keys(f"{self.keys.prefix}*"))
        return [(key, self.client.dump(key)) for key in keys if not key.endswith(b":ingress")]


def run_machine(client: redis.Redis, namespace: str, steps: int) -> None:
    """Machines of 40 steps each until `steps` were run."""
    machine: Any = lambda: ScheduledMachine(client, namespace)  # noqa: E731  (a function has another type here)
    ScheduledMachine.steps = 0
    while ScheduledMachine.steps < steps:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=10,
                stateful_step_count=40,
                report_multiple_bugs=False,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


@pytest.mark.timeout(600)
def test_nothing_is_lost_and_nothing_runs_twice(redis_client: redis.Redis, namespace: str) -> None:
    run_machine(redis_client, namespace, STEPS_IN_CI)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_nothing_is_lost_and_nothing_runs_twice_for_long(redis_client: redis.Redis, namespace: str) -> None:
    run_machine(redis_client, namespace, STEPS_LONG)
