"""The whole store against the small model of `ledger.py`: random calls by several workers, random faults.

Faults: a worker dies between a script and its reply; the reply of any script is lost, so that it is called again with
the same token; a wake token is popped by a client that dies; the server forgets its scripts; the clock steps forth and
back. After every step each job stands in exactly one index, the one the model says, and `verify` finds nothing.
"""

from __future__ import annotations

from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from queueapp.errors import StaleCall
from queueapp.policies.registry import DIRECT
from queueapp.states import State
from queueapp.store.configuration import PoolConf
from queueapp.store.records import NewJob, Returned
from tests.model.machine import Machine
from tests.model.operating import OperatedMachine
from tests.model.strategies import (
    begins,
    finishes,
    lease_times,
    new_jobs,
    often,
    picks,
    plain_jobs,
    twice,
    wants,
    workers,
)

DEAD_SAMPLED = 16
"""`trim` counts the dead letters of the tenants that a sample of this size names: all of them while there are few."""
MOST_WAITING = 25
STEPS_IN_CI, STEPS_LONG = 10_000, 40_000


class StoreMachine(OperatedMachine):
    """The rules: what producers, workers, time and bad luck do to a shard, beside what operators do."""

    # -- producers ----------------------------------------------------------------------------------------------

    @initialize(policy=st.sampled_from(sorted(DIRECT)), ceiling=st.sampled_from([None, None, 5]), wanted=new_jobs)
    def begin(self, policy: str, ceiling: int | None, wanted: list[dict[str, Any]]) -> None:
        self.ledger.pool = PoolConf(policy=policy, max_in_flight=ceiling)
        self.ledger.now()
        self.store.configure(self.version, pool=self.ledger.pool)
        self._enqueue(wanted * 3, again=False)

    @often(wanted=new_jobs, again=twice)
    def enqueue(self, wanted: list[dict[str, Any]], again: bool) -> None:
        if len(self.ledger.of(State.PENDING, State.SCHEDULED)) < MOST_WAITING:
            self._enqueue(wanted, again)

    @precondition(lambda self: any(job.state for job in self.ledger.jobs.values()))
    @rule(chosen=picks)
    def enqueue_an_old_id(self, chosen: list[int]) -> None:
        known = self.choose(chosen, [job.new for job in self.ledger.jobs.values() if job.state is not None])
        armed = self.armed_known
        assert [one.outcome for one in self.store.enqueue(known)] == ["enqueued"] * len(known)
        self.ledger.now()
        self.armed_known = armed

    # -- workers ------------------------------------------------------------------------------------------------

    @often(worker=workers, want=wants, begin=begins, lease_ms=lease_times, again=twice)
    def check_and_lease(self, worker: int, want: int, begin: int, lease_ms: int, again: bool) -> None:
        name, seq = self._next_call(worker)
        answer = self.call(
            again,
            lambda: self.store.check_and_lease(name, seq, want=want, begin=begin, lease_ms=lease_ms),
            self._same_leases,
        )
        self.ledger.now()
        self._check_leases(name, answer, want, begin, lease_ms)

    @often(
        worker=workers,
        want=wants,
        begin=begins,
        lease_ms=lease_times,
        ending=finishes,
        extended=picks,
        begun=picks,
        again=twice,
    )
    def cycle(
        self,
        worker: int,
        want: int,
        begin: int,
        lease_ms: int,
        ending: tuple[list[int], bool, int, float, int | None],
        extended: list[int],
        begun: list[int],
        again: bool,
    ) -> None:
        name, seq = self._next_call(worker)
        mine = [(job_id, attempts) for job_id, attempts, holder in self.flights if holder == name]
        finished = self._finishes(self.choose(ending[0], mine), *ending[1:])
        rest = [lease for lease in mine if lease[0] not in {finish.id for finish in finished}]
        extend, started = self.choose(extended, rest), self.choose(begun, rest)

        def ask() -> Any:
            return self.store.cycle(
                name, seq, want=want, begin=begin, lease_ms=lease_ms, finished=finished, extend=extend, begun=started
            )

        self.armed_known = True
        stopping = self.ledger.stopping(name)
        answer = ask()
        self.ledger.now()
        assert stopping >= set(answer.cancelled) >= stopping & {job_id for job_id, _ in extend}
        assert set(answer.cancelled) == stopping or not self.client.exists(self.keys[f"worker:{name}"])
        self._share_of_cycle(answer, finished, extend, started, lease_ms)
        self._check_leases(name, answer, want, begin, lease_ms, shared=True)
        self._drop(finished)
        if again:
            repeated = ask()
            self._share_of_cycle(repeated, finished, extend, started, lease_ms)
            self._same_leases(answer, repeated)

    @often(worker=workers, options=plain_jobs, lease_ms=lease_times, again=twice)
    def match(self, worker: int, options: dict[str, Any], lease_ms: int, again: bool) -> None:
        """Its process has begun a job already: it is leased, unless a limit or nobody knowing the worker forbids it."""
        new, name = NewJob(id=f"{next(self.ids):022d}", task="demo.task", payload=b"{}", **options), self.names[worker]
        known = self.client.zscore(self.keys["workers"], name) is not None
        answer = self.call(again, lambda: self.store.match(new, name, lease_ms), self._same)
        self.ledger.now()
        assert (answer.answer.outcome, answer.answer.id) == self.ledger.enqueue(new)
        assert (answer.job is not None) == (known and self.ledger.room(new.tenant, new.lane))
        if answer.job is None:
            self.ledger.use_up_an_attempt(new.id)
            return
        self.ledger.lease(answer.job, name, lease_ms, begun=True)
        self.flights.append((new.id, 1, name))
        self.history.append((new.id, 1))

    @often(ending=finishes, again=twice)
    def finish(self, ending: tuple[list[int], bool, int, float, int | None], again: bool) -> None:
        chosen = [flight[:2] for flight in self.choose(ending[0], self.flights)]
        finished = self._finishes(chosen, *ending[1:])
        self.words(again, lambda: self._send(finished), lambda: self._model(self.ledger.finish, finished))
        self._drop(finished)

    @precondition(lambda self: self.history)
    @rule(ending=finishes)
    def finish_late(self, ending: tuple[list[int], bool, int, float, int | None]) -> None:
        """Whoever held a lease once may still call: only the attempt that holds it now is heard."""
        live = {flight[:2] for flight in self.flights}
        chosen = [lease for lease in self.choose(ending[0], self.history) if lease not in live]
        finished = self._finishes(chosen, *ending[1:])
        self.words(False, lambda: self._send(finished), lambda: self._model(self.ledger.finish, finished))

    @precondition(lambda self: self.flights)
    @rule(chosen=picks, lease_ms=st.sampled_from([30, 9000]), again=twice)
    def extend_lease(self, chosen: list[int], lease_ms: int, again: bool) -> None:
        leases = [flight[:2] for flight in self.choose(chosen, self.flights)]
        lost = self.words(
            again,
            lambda: self.store.extend_lease(leases, lease_ms),
            lambda: (self.ledger.now(), self.ledger.extend(leases, lease_ms))[1],
        )
        self.flights = [flight for flight in self.flights if flight[0] not in lost]

    @precondition(lambda self: self.flights)
    @rule(chosen=picks, delay_ms=st.sampled_from([0, 0, 200]), unknown=st.booleans(), again=twice)
    def partition_requeue(self, chosen: list[int], delay_ms: int, unknown: bool, again: bool) -> None:
        returned = [
            Returned(id=job_id, attempts=attempts, delay_ms=delay_ms, unknown_task=unknown, grace_ms=1000)
            for job_id, attempts, _ in self.choose(chosen, self.flights)
        ]
        self.words(
            again,
            lambda: self.store.partition_requeue(returned),
            lambda: self._model(self.ledger.give_back, returned),
        )
        gone = {job.id for job in returned}
        self.flights = [flight for flight in self.flights if flight[0] not in gone]

    @rule(worker=workers)
    def die(self, worker: int) -> None:
        """The worker is gone with all that it holds; its successor has another name."""
        name = self.names[worker]
        self.flights = [flight for flight in self.flights if flight[2] != name]
        self.names[worker] = f"{name.split('.')[0]}.{next(self.ids)}"
        self.seqs[self.names[worker]] = 0

    @often(worker=workers, want=st.integers(1, 3), again=twice)
    def crash(self, worker: int, want: int, again: bool) -> None:
        """A worker begins what it leased and dies of it; its leases run out and come back."""
        self.check_and_lease(worker, want, want, 30, again)
        self.die(worker)
        self.ledger.raw_ms += 40
        self.partition_recover(100, again)

    @rule(worker=workers, back=st.integers(1, 3))
    def call_too_late(self, worker: int, back: int) -> None:
        name = self.names[worker]
        if self.seqs[name] > back:
            self.ledger.now()
            with pytest.raises(StaleCall):
                self.store.check_and_lease(name, self.seqs[name] - back, want=5, begin=0, lease_ms=1000)

    @precondition(lambda self: self.history)
    @rule(chosen=st.integers(0, 10**6), again=twice)
    def save(self, chosen: int, again: bool) -> None:
        job_id, attempts = self.history[chosen % len(self.history)]
        owned = self.ledger.owns(job_id, attempts)
        want = "done" if owned else "gone" if self.ledger.jobs[job_id].state is None else "stale"
        for _ in range(1 + again):
            assert self.store.save(job_id, attempts, {"progress": b"1"}) == want

    # -- time ---------------------------------------------------------------------------------------------------

    @often(ms=st.sampled_from([1, 30, 30, 400, 400, 3000, 8_000, -200, -3000, -60_000]))
    def clock_steps(self, ms: int) -> None:
        self.ledger.raw_ms += ms

    @rule(limit=st.sampled_from([1, 100]), again=twice)
    def partition_recover(self, limit: int, again: bool) -> None:
        for _ in range(1 + again):
            self.armed_known = True
            moved = self.store.partition_recover(limit)
            self.ledger.now()
            chosen = self.ledger.overdue(limit)
            assert (moved.pending, moved.dead, moved.cancelled) == self.ledger.recover(chosen)
            assert moved.more == (len(chosen) == limit)

    @rule(limit=st.sampled_from([1, 100]), again=twice)
    def promote_due(self, limit: int, again: bool) -> None:
        for _ in range(1 + again):
            self.armed_known = True
            moved = self.store.promote_due(limit)
            self.ledger.now()
            expired = self.ledger.expire(self.ledger.expiring(limit))
            assert (moved.expired, moved.pending) == (expired, self.ledger.promote(self.ledger.due(limit)))

    @rule(ttl_ms=st.sampled_from([0, 1000, 10**6]), most=st.sampled_from([0, 2, 1000]), again=twice)
    def trim(self, ttl_ms: int, most: int, again: bool) -> None:
        for _ in range(1 + again):
            dead_max = most if len(self.ledger.of(State.DEAD)) <= DEAD_SAMPLED else 1000
            self.store.trim(
                result_ttl_ms=ttl_ms,
                result_max=most,
                dead_ttl_ms=2 * ttl_ms + 1,
                dead_max=dead_max,
                replay_window_ms=500,
            )
            self.ledger.now()
            self.ledger.trim(ttl_ms, most, 2 * ttl_ms + 1, dead_max, 500)

    # -- waking, bad luck ----------------------------------------------------------------------------------------

    @rule()
    def a_wake_token_is_lost(self) -> None:
        """Popped by a client that dies: whatever script runs next puts it back."""
        self.client.zpopmin(self.keys["wake"])
        self.armed_known = False

    @rule()
    def the_server_forgets_its_scripts(self) -> None:
        self.client.function_flush()

    @precondition(lambda self: self.ledger.jobs)
    @rule(chosen=st.integers(0, 10**6), again=twice)
    def await_result(self, chosen: int, again: bool) -> None:
        job = list(self.ledger.jobs.values())[chosen % len(self.ledger.jobs)]
        over = job.state in (None, State.ENDED, State.DEAD)
        for _ in range(1 + again):
            assert self.store.await_result(job.new.id, "waiter") == over
        if not over:
            self.ledger.waiters[job.new.id] = "waiter"


def run_machine(client: redis.Redis, namespace: str, steps: int) -> None:
    """Machines of 40 steps each until `steps` were run."""
    machine: Any = lambda: StoreMachine(client, namespace)  # noqa: E731  (a function has another type here)
    Machine.steps = 0
    while Machine.steps < steps:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=50,
                stateful_step_count=40,
                report_multiple_bugs=False,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


@pytest.mark.timeout(600)
def test_the_store_does_what_the_model_does(redis_client: redis.Redis, namespace: str) -> None:
    run_machine(redis_client, namespace, STEPS_IN_CI)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_store_does_what_the_model_does_for_long(redis_client: redis.Redis, namespace: str) -> None:
    run_machine(redis_client, namespace, STEPS_LONG)
