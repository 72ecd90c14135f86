"""Signs of life: a leader whose subscription is gone loses its lease at once, a worker its leases; nobody else does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from queueapp.errors import Fenced, LeaderAbsent, LeaseHeld
from queueapp.store.records import Returned
from tests.lua.harness import LEASE_MS, Shard
from tests.lua.keyed import keyed

TTL_MS = 5_000


class Sign:
    """One process's subscription, on a connection of its own."""

    def __init__(self, client: redis.Redis, shard: Shard, name: str, sharded: bool) -> None:
        self.pubsub = client.pubsub()
        self.name = shard.keys[f"presence:{name}"]
        self.channel = f"{'s' if sharded else 'p'}{self.name}"
        self.sharded = sharded
        self.begin()

    def begin(self) -> None:
        (self.pubsub.ssubscribe if self.sharded else self.pubsub.subscribe)(self.name)
        assert self.pubsub.get_message(timeout=5)

    def end(self) -> None:
        (self.pubsub.sunsubscribe if self.sharded else self.pubsub.unsubscribe)(self.name)
        assert self.pubsub.get_message(timeout=5)


Signs = Callable[[str], Sign]


@pytest.fixture(params=["pubsub", "shard"])
def signs(request: pytest.FixtureRequest, redis_client: redis.Redis, shard: Shard) -> Iterator[Signs]:
    made: list[Sign] = []

    def make(name: str) -> Sign:
        made.append(Sign(redis_client, shard, name, request.param == "shard"))
        return made[-1]

    yield make
    for sign in made:
        sign.pubsub.close()


def acquire(shard: Shard, name: str, channel: str = "", *, watch: bool = True) -> int:
    return shard.store.lead_acquire(name, f"nonce-{name}", TTL_MS, channel=channel, watch=watch).epoch


# -- the leader ------------------------------------------------------------------------------------------------------


def test_a_leader_whose_subscription_is_gone_is_followed_after_two_looks(shard: Shard, signs: Signs) -> None:
    sign = signs("a")
    first = acquire(shard, "a", sign.channel)
    with pytest.raises(LeaseHeld) as held:
        acquire(shard, "b")
    assert (held.value.left_ms, held.value.watched) == (TTL_MS, True)
    sign.end()
    with pytest.raises(LeaderAbsent) as absent:
        acquire(shard, "b")
    assert absent.value.again_ms == 30
    shard.now_ms += 24
    with pytest.raises(LeaderAbsent):
        acquire(shard, "c")
    shard.now_ms += 1
    assert acquire(shard, "b") > first
    with pytest.raises(Fenced):
        shard.store.lead_renew("nonce-a", TTL_MS)


def test_a_socket_that_flaps_costs_a_renewal_and_not_the_lease(shard: Shard, signs: Signs) -> None:
    sign = signs("a")
    acquire(shard, "a", sign.channel)
    sign.end()
    with pytest.raises(LeaderAbsent):
        acquire(shard, "b")
    shard.store.lead_renew("nonce-a", TTL_MS)  # it knows that it is subscribed nowhere
    shard.now_ms += 100
    with pytest.raises(LeaseHeld) as held:
        acquire(shard, "b")
    assert not held.value.watched
    sign.begin()
    shard.store.lead_renew("nonce-a", TTL_MS, channel=sign.channel)
    with pytest.raises(LeaseHeld) as held:
        acquire(shard, "b")
    assert held.value.watched


def test_who_was_seen_again_between_two_looks_must_be_missed_twice_anew(shard: Shard, signs: Signs) -> None:
    sign = signs("a")
    acquire(shard, "a", sign.channel)
    sign.end()
    with pytest.raises(LeaderAbsent):
        acquire(shard, "b")
    sign.begin()
    shard.now_ms += 100
    with pytest.raises(LeaseHeld):
        acquire(shard, "b")
    sign.end()
    shard.now_ms += 100
    with pytest.raises(LeaderAbsent):
        acquire(shard, "b")


def test_only_a_subscription_that_was_seen_can_be_missed(shard: Shard, signs: Signs) -> None:
    """Its channel has no subscriber yet: an ACL refused it, or the reply is on its way. Only the lease decides."""
    sign = signs("a")
    sign.end()
    acquire(shard, "a", sign.channel)
    shard.now_ms += 1_000
    with pytest.raises(LeaseHeld) as held:
        acquire(shard, "b")
    assert not held.value.watched


def test_who_is_told_not_to_watch_waits_for_the_end_of_the_lease(shard: Shard, signs: Signs) -> None:
    sign = signs("a")
    acquire(shard, "a", sign.channel)
    sign.end()
    for _ in range(3):
        shard.now_ms += 100
        with pytest.raises(LeaseHeld):
            acquire(shard, "b", watch=False)
    shard.now_ms += TTL_MS
    acquire(shard, "b", watch=False)


def test_who_tells_a_channel_hears_whether_anybody_is_seen_there(shard: Shard, signs: Signs) -> None:
    """One that is subscribed elsewhere, such as on the primary of before, is not, and has to know."""
    sign = signs("one")
    assert shard.store.register("w1", {}, 60_000, sign.channel) is True
    assert shard.store.register("w1", {}, 60_000, f"{sign.channel}x") is False
    assert shard.store.register("w1", {}, 60_000) is False
    term = shard.store.lead_acquire("one", "n1", TTL_MS, channel=sign.channel, watch=True)
    assert term.seen
    assert not shard.store.lead_renew("n1", TTL_MS, channel=f"{sign.channel}x").seen
    sign.end()
    assert not shard.store.lead_renew("n1", TTL_MS, channel=sign.channel).seen


def test_a_grant_takes_the_token_of_the_good_bye_away(shard: Shard) -> None:
    acquire(shard, "a")
    shard.store.lead_release("nonce-a")
    assert shard.snapshot()["wake:standby"] == [(b"r", 0.0)]
    acquire(shard, "b")
    assert "wake:standby" not in shard.snapshot()


def test_a_server_that_does_not_answer_makes_nobody_absent(shard: Shard, redis_client: redis.Redis) -> None:
    """A name that NUMSUB does not know, or an ACL without PUBSUB: the count is unknown, which is not none."""
    acquire(shard, "a", "")
    redis_client.hset(shard.keys["leader"], mapping={"armed": "1", "channel": "qunheard-of"})
    shard.now_ms += 100
    with pytest.raises(LeaseHeld):
        acquire(shard, "b")


# -- workers ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def witness(signs: Signs) -> str:
    return signs("witness").channel


def start(shard: Shard, sign: Sign, worker: str, jobs: int, *, begun: bool = True) -> list[str]:
    shard.store.register(worker, {"pid": "1"}, 90_000, sign.channel)
    shard.add(*[shard.job() for _ in range(jobs)])
    return [job.id for job in shard.lease(jobs, worker, jobs if begun else 0)]


def crashes(shard: Shard, job_id: str) -> int:
    record = shard.reads.job(job_id)
    assert record is not None
    assert record.state == "pending"
    return record.crashes


def test_a_worker_whose_subscription_is_gone_loses_its_leases_after_two_looks(
    shard: Shard, signs: Signs, witness: str
) -> None:
    sign = signs("w")
    ids = start(shard, sign, "w", 3)
    assert shard.store.partition_recover(100, witness).pending == 0
    sign.end()
    assert shard.store.partition_recover(100, witness).pending == 0
    shard.now_ms += 249
    assert shard.store.partition_recover(100, witness).pending == 0
    shard.now_ms += 1
    found = shard.store.partition_recover(100, witness)
    assert (found.pending, found.workers, found.more) == (3, 1, False)
    assert [crashes(shard, job_id) for job_id in ids] == [1] * 3
    state = shard.snapshot()
    assert "watched" not in state
    assert "workers" not in state


@pytest.mark.dirty_store
@pytest.mark.parametrize("readable", [True, False])
def test_one_whose_deadline_is_over_too_is_met_once(shard: Shard, signs: Signs, witness: str, readable: bool) -> None:
    """By one call, as a lease that ran out and as one of a worker that is gone."""
    sign = signs("w")
    shard.store.register("w", {"pid": "1"}, 10**9, sign.channel)
    first, _ = shard.add(keyed(shard, "k", limit=2), keyed(shard, "k", limit=2))
    shard.lease(2, "w")
    if not readable:
        shard.client.set(shard.keys.job(first), "nonsense")
    sign.end()
    shard.store.partition_recover(100, witness)
    shard.now_ms += LEASE_MS + 1
    found = shard.store.partition_recover(100, witness)
    assert (found.pending, found.workers, found.more) == (2 if readable else 1, 1, False)
    state = shard.snapshot()
    assert state["keyusers"][b"s:" + state["keysets"].popitem()[0]] == (b"2" if readable else b"1")
    assert (shard.reads.jobs([first])[0] is None) is not readable
    assert state["stats"][b"lost"] == (b"2" if readable else b"1")


def test_without_a_witness_only_deadlines_count(shard: Shard, signs: Signs) -> None:
    """After an outage of the store nobody is subscribed for a moment; who has only just come back must not judge."""
    sign = signs("w")
    start(shard, sign, "w", 1)
    sign.end()
    for _ in range(3):
        shard.now_ms += 1_000
        assert shard.store.partition_recover(100).pending == 0
    gone = signs("gone")
    gone.end()
    for _ in range(3):
        shard.now_ms += 1_000
        assert shard.store.partition_recover(100, gone.channel).pending == 0, "a witness whom nobody hears is none"


@pytest.mark.parametrize("sign_of_life", ["cycle", "check_and_lease", "register"])
def test_whoever_calls_is_there(shard: Shard, signs: Signs, witness: str, sign_of_life: str) -> None:
    sign = signs("w")
    start(shard, sign, "w", 1)
    sign.end()
    shard.store.partition_recover(100, witness)
    shard.now_ms += 200
    if sign_of_life == "register":
        shard.store.register("w", {}, 90_000, "")
    else:
        getattr(shard.store, sign_of_life)("w", 2, want=0, begin=0, lease_ms=30_000)
    shard.now_ms += 100
    assert shard.store.partition_recover(100, witness).pending == 0
    shard.now_ms += 250
    found = shard.store.partition_recover(100, witness)
    assert found.pending == (0 if sign_of_life == "register" else 1), "who registers without a channel is not watched"


def test_jobs_that_had_not_begun_are_forgiven(shard: Shard, signs: Signs, witness: str) -> None:
    sign = signs("w")
    [job_id] = start(shard, sign, "w", 1, begun=False)
    sign.end()
    shard.store.partition_recover(100, witness)
    shard.now_ms += 250
    assert shard.store.partition_recover(100, witness).pending == 1
    assert crashes(shard, job_id) == 0


def test_a_worker_that_lives_after_all_is_refused_by_its_fences(shard: Shard, signs: Signs, witness: str) -> None:
    sign = signs("w")
    [job_id] = start(shard, sign, "w", 1)
    sign.end()
    shard.store.partition_recover(100, witness)
    shard.now_ms += 250
    shard.store.partition_recover(100, witness)
    assert shard.store.extend_lease([(job_id, 1)], 30_000) == [job_id]
    assert shard.store.partition_requeue([Returned(id=job_id, attempts=1)]) == ["stale"]
    assert shard.store.save(job_id, 1, {"checkpoint": b"{}"}) == "stale"


def test_a_share_is_bounded_and_the_next_goes_on(shard: Shard, signs: Signs, witness: str) -> None:
    first, second = signs("w1"), signs("w2")
    start(shard, first, "w1", 5)
    start(shard, second, "w2", 4)
    first.end()
    second.end()
    shard.store.partition_recover(100, witness)
    shard.now_ms += 250
    shares, after = [], ""
    while True:
        found = shard.store.partition_recover(4, witness, after)
        shares.append(found.pending)
        after = found.after
        if not found.more:
            break
    assert sum(shares) == 9
    assert max(shares) <= 4
    assert "workers" not in shard.snapshot()


def test_a_hundred_workers_are_looked_at_in_pages(shard: Shard, signs: Signs, witness: str) -> None:
    sign = signs("all")
    for number in range(100):
        shard.store.register(f"w{number:03}", {}, 90_000, sign.channel)
    start(shard, sign, "w099", 1)
    sign.end()

    def look() -> int:
        after, recovered, calls = "", 0, 0
        while True:
            found = shard.store.partition_recover(100, witness, after)
            recovered, after, calls = recovered + found.pending, found.after, calls + 1
            if not found.more:
                assert calls >= 2
                return recovered

    assert look() == 0
    shard.now_ms += 250
    assert look() == 1


def test_a_lease_that_ran_out_and_whose_worker_is_gone_is_recovered_once(
    shard: Shard, signs: Signs, witness: str
) -> None:
    sign = signs("w")
    [job_id] = start(shard, sign, "w", 1)
    shard.store.cancel([job_id])
    sign.end()
    shard.now_ms += 29_900
    shard.store.partition_recover(100, witness)
    shard.now_ms += 300
    found = shard.store.partition_recover(100, witness)
    assert (found.cancelled, found.pending, found.dead) == (1, 0, 0)


def test_who_says_good_bye_is_not_watched(shard: Shard, signs: Signs, witness: str) -> None:
    shard.store.register("w", {}, 90_000, signs("w").channel)
    assert shard.snapshot()["watched"] == [(b"w", 0.0)]
    shard.store.forget("w")
    assert "watched" not in shard.snapshot()
