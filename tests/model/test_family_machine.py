"""Trees of jobs against the small model of `family.py`: random trees, who ends in which order and how, calls that come
twice, parents that get more children, cancel, redrive and erasure in between.

After every step each job is in the state that the model says, each parent has just the children open that it says, and
`verify` finds nothing. So nobody waits for ever, and nobody is released twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from queueapp.policies.registry import DIRECT
from queueapp.states import State
from queueapp.store.configuration import PoolConf
from queueapp.store.family import planting
from queueapp.store.family_records import Node
from queueapp.store.keys import ShardKeys
from queueapp.store.reads import Reads
from queueapp.store.records import Completed, Failed, Finish, NewJob
from queueapp.store.store import Store
from queueapp.store.trees import pages
from tests.lua.families import POLICIES
from tests.model.family import Family

_shards = itertools.count(1)
shapes = st.lists(
    st.fixed_dictionaries(
        {
            "above": st.integers(0, 10**6),
            "on_failure": st.sampled_from(POLICIES),
            "max_attempts": st.sampled_from([1, 1, 2, 3]),
            "expires_after_ms": st.sampled_from([0, 0, 0, 700]),
            "tenant": st.sampled_from(["ant", "bee"]),
        }
    ),
    min_size=1,
    max_size=7,
)
picks = st.lists(st.integers(0, 10**6), min_size=1, max_size=4)
twice = st.booleans()
STEPS_IN_CI, STEPS_LONG = 2_000, 40_000
MOST = 60


class FamilyMachine(RuleBasedStateMachine):
    steps = 0

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        super().__init__()
        self.client = client
        self.keys = ShardKeys(namespace, "family", next(_shards))
        self.family = Family(now_ms=1_800_000_000_000)
        self.store = Store(client, self.keys, clock_ms=lambda: self.family.now_ms)
        self.reads = Reads(client, self.keys)
        self.ids, self.seq = itertools.count(1), itertools.count(1)

    @initialize(policy=st.sampled_from(sorted(DIRECT)))
    def begin(self, policy: str) -> None:
        self.store.configure(1, pool=PoolConf(policy=policy))

    # -- trees ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.family.people) < MOST)
    @rule(shape=shapes, most=st.sampled_from([1, 3, 250]), again=twice)
    def enqueue_flow(self, shape: list[dict[str, Any]], most: int, again: bool) -> None:
        """In pages of so many jobs, nothing else happening in between."""
        nodes = self._tree(shape, "")
        for _ in range(1 + again):
            for number, page in enumerate(pages(nodes, most=most)):
                answer = self.store._run(planting(page, "more" if number else "new", self.family.now_ms))
                assert answer.outcome == "enqueued"
        self.family.enqueue_flow(nodes)

    @precondition(lambda self: self.family.of(State.ACTIVE))
    @rule(chosen=st.integers(0, 10**6), shape=st.one_of(st.just([]), shapes), again=twice)
    def add_children_while_it_runs(self, chosen: int, shape: list[dict[str, Any]], again: bool) -> None:
        one = self._choose([chosen], State.ACTIVE)[0]
        nodes = self._children(shape, one)
        attempts = self.family.people[one].attempts
        word = self.family.add_children(one, nodes, runs=True)
        for number in range(1 + again):
            said = self.store.add_children(one, nodes, attempts=attempts)
            assert said == (word if number == 0 else "done")

    @precondition(lambda self: self.family.of(State.WAITING))
    @rule(chosen=st.integers(0, 10**6), shape=shapes, again=twice)
    def add_children_while_it_waits(self, chosen: int, shape: list[dict[str, Any]], again: bool) -> None:
        one = self._choose([chosen], State.WAITING)[0]
        nodes = self._children(shape, one)
        self.family.add_children(one, nodes, runs=False)
        for _ in range(1 + again):
            assert self.store.add_children(one, nodes) == "done"

    # -- workers ----------------------------------------------------------------------------------------------------

    @rule(want=st.integers(1, 6))
    def lease(self, want: int) -> None:
        for job in self.store.check_and_lease("w1", next(self.seq), want=want, begin=0, lease_ms=10**9).jobs:
            self.family.lease(job.id)
            assert job.attempts == self.family.people[job.id].attempts

    @precondition(lambda self: self.family.of(State.ACTIVE))
    @rule(chosen=picks, fails=st.booleans(), retry_ms=st.sampled_from([None, 0, 50]), again=twice)
    def finish(self, chosen: list[int], fails: bool, retry_ms: int | None, again: bool) -> None:
        ids = self._choose(chosen, State.ACTIVE)
        finished: list[Finish] = [
            Failed(id=job, attempts=self.family.people[job].attempts, run_ms=1, error=b"{}", retry_ms=retry_ms)
            if fails
            else Completed(id=job, attempts=self.family.people[job].attempts, run_ms=1, result=b"1")
            for job in ids
        ]
        want = [self.family.finish(job, fails=fails, retry_ms=retry_ms) for job in ids]
        for number in range(1 + again):
            words = self.store.fail(finished) if fails else self.store.complete(finished)  # type: ignore[arg-type]
            assert words == (want if number == 0 else ["done"] * len(ids))

    @precondition(lambda self: self.family.of(State.ACTIVE))
    @rule(chosen=picks, again=twice)
    def cycle(self, chosen: list[int], again: bool) -> None:
        ids = self._choose(chosen, State.ACTIVE)
        finished = [Completed(id=job, attempts=self.family.people[job].attempts, run_ms=1) for job in ids]
        want = [self.family.finish(job, fails=False, retry_ms=None) for job in ids]
        self.family.pass_time()
        seq = next(self.seq)
        for number in range(1 + again):
            answer = self.store.cycle("w1", seq, want=0, begin=0, lease_ms=10**9, finished=finished)
            assert list(answer.finished) == (want if number == 0 else ["done"] * len(ids))

    # -- operators and time -----------------------------------------------------------------------------------------

    @precondition(lambda self: self.family.people)
    @rule(chosen=picks, what=st.sampled_from(["cancel", "move_to_dlq", "discard", "retry", "erase"]), again=twice)
    def operate(self, chosen: list[int], what: str, again: bool) -> None:
        calls: dict[str, Callable[[list[str]], Sequence[str]]] = {
            "cancel": self.store.cancel,
            "move_to_dlq": lambda ids: self.store.move_to_dlq(ids, "why"),
            "discard": self.store.discard,
            "retry": self.store.retry_from_dlq,
            "erase": lambda ids: [self.store.erase(self.family.people[job].tenant, [job])[0] for job in ids],
        }
        ids = self._choose(chosen)
        if what == "cancel":
            ids = ids[:1]  # of several the first may take the others along, all at once or one after the other
        for _ in range(1 + again):
            assert list(calls[what](ids)) == [getattr(self.family, what)(job) for job in ids]

    @rule(ms=st.sampled_from([0, 60, 400, 800]), again=twice)
    def time_passes(self, ms: int, again: bool) -> None:
        self.family.now_ms += ms
        for _ in range(1 + again):
            self.store.promote_due()
        self.family.pass_time()

    # -- what must hold ---------------------------------------------------------------------------------------------

    def check_invariants(self, *args: Any, **kwargs: Any) -> None:
        super().check_invariants(*args, **kwargs)
        FamilyMachine.steps += 1
        assert self.store.verify() == []
        people = self.family.people
        for job, one in zip(self.reads.jobs(list(people)), people.values(), strict=True):
            found = (job.state, job.outcome, job.error_count) if job is not None else None
            assert found == (None if one.state is None else (one.state, one.outcome, one.errors)), one
            if one.state in (State.WAITING, State.DEAD):
                assert _texts(self.client.smembers(self.keys[f"open:{one.id}"])) == one.open
                assert {child.child: child.outcome for child in self.store.children(one.id)} == one.told

    def teardown(self) -> None:
        self.client.unlink(*self.client.keys(f"{self.keys.prefix}*"))

    # -- parts ------------------------------------------------------------------------------------------------------

    def _tree(self, shape: list[dict[str, Any]], parent: str) -> list[Node]:
        ids = [self._id(child=bool(parent) or position > 0) for position in range(len(shape))]
        above = [parent, *(ids[shape[at]["above"] % at] for at in range(1, len(shape)))]
        nodes = [
            Node(
                job=self._job(
                    ids[at], **{name: shape[at][name] for name in ("max_attempts", "expires_after_ms", "tenant")}
                ),
                parent=above[at],
                on_failure=shape[at]["on_failure"],
                position=at,
                waits=ids[at] in above,
            )
            for at in range(len(shape))
        ]
        return nodes

    def _children(self, shape: list[dict[str, Any]], parent: str) -> list[Node]:
        return self._tree(shape, parent) if shape else []

    def _job(self, job_id: str, **options: Any) -> NewJob:
        return NewJob(id=job_id, task="demo.task", payload=b"{}", fingerprint="f", **options)

    def _id(self, *, child: bool) -> str:
        return f"00000000{'V' if child else '0'}{next(self.ids):013d}"

    def _choose(self, chosen: list[int], *states: State) -> list[str]:
        among = [one.id for one in (self.family.of(*states) if states else self.family.people.values())]
        return [among[index] for index in sorted({index % len(among) for index in chosen})] if among else []


def _texts(found: Any) -> set[str]:
    return {member.decode() for member in found}


def run_machine(client: redis.Redis, namespace: str, steps: int) -> None:
    machine: Any = lambda: FamilyMachine(client, namespace)  # noqa: E731  (a function has another type here)
    FamilyMachine.steps = 0
    while FamilyMachine.steps < steps:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=25,
                stateful_step_count=40,
                report_multiple_bugs=False,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


@pytest.mark.timeout(600)
def test_trees_do_what_the_model_does(redis_client: redis.Redis, namespace: str) -> None:
    run_machine(redis_client, namespace, STEPS_IN_CI)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_trees_do_what_the_model_does_for_long(redis_client: redis.Redis, namespace: str) -> None:
    run_machine(redis_client, namespace, STEPS_LONG)
