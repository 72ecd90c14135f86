"""A change of policy under scheduled dispatch, as the leader's own calls meet it."""

from __future__ import annotations

from queueapp.store.configuration import PoolConf, ScopeLimits
from tests.lua.harness import Shard


def change(shard: Shard, policy: str, *, paused: bool = False) -> None:
    shard.versions += 1
    shard.store.configure(shard.versions, pool=PoolConf(policy=policy, dispatch="scheduled", paused=paused))


def armed(shard: Shard) -> bool:
    return bool(shard.client.exists(shard.keys["wake:leader"]))


def test_a_leader_hears_that_more_comes_over_until_all_has(shard: Shard) -> None:
    term = shard.schedule(policy="fifo")
    shard.add(*(shard.job() for _ in range(120)))
    shard.admit(term)
    change(shard, "priority")
    answers = [shard.dispatch(term)]
    while answers[-1].more:
        assert armed(shard), "a leader that dies now leaves a token for the next one"
        answers.append(shard.dispatch(term))
    assert sum(answer.jobs for answer in answers) == 120
    assert len(answers) > 1
    assert not answers[-1].runnable


def test_what_may_run_is_found_behind_others_that_may_not(shard: Shard) -> None:
    term = shard.schedule(policy="fifo")
    shard.add(*(shard.job("still") for _ in range(200)), *(shard.job("acme") for _ in range(5)))
    shard.admit(term)
    change(shard, "priority")
    shard.versions += 1
    shard.store.configure(shard.versions, scopes=[ScopeLimits(tenant="still", paused=True)])
    answers = [shard.dispatch(term)]
    while answers[-1].more:
        answers.append(shard.dispatch(term))
    assert sum(answer.jobs for answer in answers) == 5


def test_a_paused_pool_does_not_ask_for_more_calls(shard: Shard) -> None:
    term = shard.schedule(policy="fifo")
    shard.add(*(shard.job() for _ in range(120)))
    shard.admit(term)
    change(shard, "priority", paused=True)
    answer = shard.dispatch(term)
    assert not answer.runnable
    assert not armed(shard)
