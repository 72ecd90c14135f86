"""A lane that a call passes over still gets what comes into it during that call: the place of its tenant is by that."""

from __future__ import annotations

from queueapp.store.configuration import PoolConf
from tests.lua.harness import Shard, completed
from tests.lua.keyed import keyed, waiters
from tests.lua.test_corners_suspects import AGES_MS, busy
from tests.lua.test_recover import lose


def test_a_key_set_that_is_woken_in_a_lane_passed_over_is_at_its_own_place(shard: Shard) -> None:
    """bee's first key set steps aside in the call that passes bee's suspect over. What it was offered goes to bee's
    second one, which stands before the suspect, and before whatever others submit after it."""
    shard.store.configure(1, pool=PoolConf(policy="priority"))
    busy(shard, "w3")
    shard.add(keyed(shard, "k", tenant="ant"))
    (holder,) = shard.lease(1, "w1")
    shard.store.extend_lease([(holder.id, 1)], AGES_MS)
    _, second = shard.add(keyed(shard, "k", "m", tenant="bee"), keyed(shard, "k", tenant="bee"))
    (suspect,) = shard.add(shard.job("bee", priority=-5, max_crashes=9))
    assert [lose(shard, worker, 1) for worker in ("crashed1", "crashed2")] == [[suspect]] * 2
    shard.store.complete([completed(holder)])
    (other,) = shard.add(keyed(shard, "m", tenant="dog", priority=9))
    assert [job.id for job in shard.lease(1, "w4")] == [other]
    assert waiters(shard, "k") == ["bee"]

    assert shard.lease(5, "w3") == []

    assert (waiters(shard, "k"), waiters(shard, "m")) == ([], ["bee"])
    assert shard.store.verify() == []
    (third,) = shard.add(shard.job("cat"))
    assert [job.id for worker in ("w5", "w6") for job in shard.lease(1, worker)] == [second, third]
