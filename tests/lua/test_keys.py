"""Concurrency keys in the store: never over a limit, nobody else is held up, nothing stays behind."""

from __future__ import annotations

import random
from typing import Any

import pytest

from queueapp.codec import digest
from queueapp.store import scripts
from queueapp.store.calls import packed_keys
from queueapp.store.records import PoolConf, Returned, ScopeLimits
from tests.lua.harness import LEASE_MS, START_MS, Shard, completed, failed
from tests.lua.keyed import Crew, configure_key, keyed, use, used, waiters
from tests.lua.test_replay import scene

OF_KEYS = ("keysets", "keynames", "keyusers", "parked", "sublanes", "waitkeys", "blocked:", "slots:k:")


def left(shard: Shard) -> list[str]:
    """Keys of the shard that only jobs with concurrency keys need."""
    names = [name for name in shard.snapshot() if name.startswith(OF_KEYS) or "|@" in name]
    return names + ["conf keyed"] * bool(shard.client.hexists(shard.keys["conf"], "keyed"))


# -- what is written -----------------------------------------------------------------------------------------------


def test_a_job_with_keys_writes_exactly_this(shard: Shard) -> None:
    shard.add(shard.job())
    plain = set(shard.snapshot())
    job = keyed(shard, "b", "a", limit=2)
    shard.add(job)
    packed = packed_keys(job.keys)
    ks = packed.partition("\n")[0]
    found = shard.snapshot()
    first, second = sorted(job.keys, key=lambda key: key.digest)
    assert {name: found[name] for name in set(found) - plain - {f"job:{job.id}"}} == {
        f"q:acme|main|@{ks}": [(job.id.encode(), 2.0)],
        "sublanes": [(f"q:acme|main|@{ks}".encode(), 0.0)],
        "keysets": {
            ks.encode(): f"{first.digest} 2 {first.pattern}\n{second.digest} 2 {second.pattern}".encode(),
        },
        "keynames": {key.digest.encode(): key.text.encode() for key in job.keys},
        "keyusers": {f"s:{ks}".encode(): b"1", **{f"k:{key.digest}".encode(): b"1" for key in job.keys}},
    }
    assert found["q:acme|main"][1] == (f"@{ks}".encode(), 2.0)
    assert found[f"job:{job.id}"].startswith(f"p100000000000{2}{START_MS}|1|acme|||||||||{ks}|f00d\n".encode())
    assert len(ks) == 16


def test_all_that_keys_need_goes_with_the_last_job(shard: Shard) -> None:
    shard.add(keyed(shard, "a", "b"), keyed(shard, "a", "b"), keyed(shard, "a"), keyed(shard, "a", delay_ms=5_000))
    (one,) = shard.lease(9)
    shard.store.fail([failed(one)])
    (two,) = shard.lease(9)
    shard.store.complete([completed(two)])
    shard.store.cancel([f"{4:022d}"])
    (three,) = shard.lease(9)
    shard.store.complete([completed(three)])
    assert "keysets" in left(shard), "the dead letter can be redriven"
    shard.store.discard([one.id])
    assert left(shard) == []


def test_a_dead_letter_that_is_trimmed_takes_its_keys_along(shard: Shard) -> None:
    shard.add(keyed(shard, "a"), keyed(shard, "b"))
    one, two = shard.lease(2)
    shard.store.fail([failed(one)])
    shard.store.move_to_dlq(shard.add(keyed(shard, "c")), "by hand")
    shard.now_ms += 10_000
    shard.store.trim(result_ttl_ms=0, result_max=0, dead_ttl_ms=1, dead_max=0, replay_window_ms=1)
    assert shard.client.hgetall(shard.keys["keynames"]) == {digest("b").encode(): b"b"}
    shard.store.complete([completed(two)])
    assert left(shard) == []


def test_jobs_without_keys_cost_no_command_more(shard: Shard) -> None:
    """The same work in a pool where keys are in use and in one where they are not: the same commands, one by one, but
    for the look of `cycle` at keys with waiters."""

    def commands() -> dict[str, int]:
        stats: Any = shard.client.info("commandstats")
        return {name: int(values["calls"]) for name, values in stats.items() if name != "cmdstat_info"}

    def work() -> dict[str, int]:
        before = commands()
        shard.add(shard.job(), shard.job(), shard.job("bee"))
        jobs = shard.lease(2)
        shard.store.complete([completed(jobs[0])])
        shard.store.fail([failed(jobs[1])])
        shard.store.cancel([job_id for _, _, job_id in shard.store.peek(5)])
        return {name: n - before.get(name, 0) for name, n in commands().items() if n != before.get(name, 0)}

    work()
    without = work()
    shard.add(keyed(shard, "a", tenant="keyed"), keyed(shard, "a", tenant="keyed"))
    shard.lease(1, worker="another")
    assert work() == without


# -- stepping aside ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "rounds"), [("fifo", 125), ("tiered", 125), ("ring", 15), ("wfq", 15), ("edf", 15)])
def test_a_full_key_lets_one_run_and_holds_up_nobody_else(shard: Shard, policy: str, rounds: int) -> None:
    """500 jobs under one key of limit 1 over 16 slots, beside 500 others: never two at once, and as long as there are
    others no slot is idle."""
    shard.store.configure(1, pool=PoolConf(policy=policy))
    of_key: list[str] = []
    others: set[str] = set()
    for _ in range(rounds):
        ids = shard.add(*(keyed(shard, "one", tenant=tenant, cost=1) for tenant in ("acme", "bee", "acme", "bee")))
        of_key += ids
        others.update(shard.add(*(shard.job(tenant, cost=1) for tenant in ("acme", "cat", "acme", "cat"))))
    crew = Crew(shard, 16)
    crew.fill()
    most = idle = 0
    while crew.running:
        mine = sum(job.id not in others for job in crew.running)
        assert mine == used(shard, "one")
        most = max(most, mine)
        begun_of_key = sum(job_id not in others for job_id in crew.order)
        if len(crew.order) - begun_of_key < len(others):
            assert len(crew.running) == 16, "a slot stands idle beside jobs that could run"
        idle += mine == 0 and begun_of_key < len(of_key)
        crew.end()
        crew.fill()
    assert most == 1
    assert idle == 0 or policy in ("tiered", "ring"), "the key is free while jobs wait for it, and are first in line"
    assert sorted(crew.order) == sorted([*of_key, *others])
    for tenant in (0, 1):
        mine_in_order = of_key[tenant::2]
        assert [job_id for job_id in crew.order if job_id in set(mine_in_order)] == mine_in_order
    assert left(shard) == []


def test_jobs_keep_their_place_in_the_lane(shard: Shard) -> None:
    ids = [shard.add(keyed(shard, "a", limit=9) if number % 3 else shard.job())[0] for number in range(12)]
    assert [job.id for job in shard.lease(12)] == ids


def test_priorities_sort_a_lane_across_its_sub_lanes(shard: Shard) -> None:
    low = shard.add(keyed(shard, "a", limit=9))[0]
    high = shard.add(keyed(shard, "a", limit=9, priority=5))[0]
    plain = shard.add(shard.job(priority=3))[0]
    other = shard.add(keyed(shard, "b", limit=9, priority=1))[0]
    assert [job.id for job in shard.lease(4)] == [high, plain, other, low]


def test_what_continues_has_a_sub_lane_of_its_own(shard: Shard) -> None:
    fresh = shard.add(keyed(shard, "a"))[0]
    continued = shard.add(keyed(shard, "a", tier="continue"))[0]
    (one,) = shard.lease(9)
    assert one.id == continued
    shard.store.complete([completed(one)])
    (two,) = shard.lease(9)
    assert two.id == fresh


def test_all_keys_are_taken_or_none(shard: Shard) -> None:
    first, both, second = shard.add(keyed(shard, "a"), keyed(shard, "a", "b"), keyed(shard, "b"))
    one, two = shard.lease(9)
    assert [one.id, two.id] == [first, second], "the one with both does not sit on b while it waits for a"
    shard.store.complete([completed(two)])
    assert shard.lease(9) == []
    assert used(shard, "b") == 0
    shard.store.complete([completed(one)])
    (three,) = shard.lease(9)
    assert three.id == both
    assert (used(shard, "a"), used(shard, "b")) == (1, 1)


def test_a_slot_goes_to_the_first_that_waits_wherever_it_is(shard: Shard) -> None:
    shard.add(keyed(shard, "a"))
    (one,) = shard.lease(1)
    for tenant in ("cat", "ant", "bee"):
        shard.add(keyed(shard, "a", tenant=tenant))
    assert waiters(shard, "a") == ["cat", "ant", "bee"]
    shard.store.complete([completed(one)])
    assert waiters(shard, "a") == ["ant", "bee"]
    (two,) = shard.lease(9)
    assert two.tenant == "cat"
    assert waiters(shard, "a") == ["ant", "bee"]


def test_a_job_joins_a_sub_lane_that_waits(shard: Shard) -> None:
    """It is only added; one with a higher priority changes the place of its sub-lane among those that wait."""
    shard.add(keyed(shard, "a"))
    (one,) = shard.lease(1)
    shard.add(keyed(shard, "a", tenant="ant"), keyed(shard, "a", tenant="bee"))
    shard.add(keyed(shard, "a", tenant="bee", priority=5))
    assert waiters(shard, "a") == ["bee", "ant"]
    assert shard.client.zcard(shard.keys["walk"]) == 0
    shard.store.complete([completed(one)])
    (two,) = shard.lease(9)
    assert (two.tenant, two.priority) == ("bee", 5)


def test_a_sub_lane_that_is_emptied_while_it_waits_waits_no_more(shard: Shard) -> None:
    shard.add(keyed(shard, "a"))
    (one,) = shard.lease(1)
    shard.add(keyed(shard, "a", tenant="ant", expires_after_ms=500), keyed(shard, "a", tenant="bee"))
    shard.now_ms += 500
    shard.store.promote_due()
    shard.store.cancel([f"{3:022d}"])
    assert waiters(shard, "a") == []
    assert shard.client.exists(shard.keys["waitkeys"], shard.keys["parked"]) == 0
    shard.store.complete([completed(one)])
    assert left(shard) == []


@pytest.mark.parametrize("how", ["cancel", "expire", "move_to_dlq", "met"])
def test_an_offer_that_nobody_takes_goes_to_the_next(shard: Shard, how: str) -> None:
    shard.add(keyed(shard, "a"))
    (one,) = shard.lease(1)
    first, second = shard.add(
        keyed(shard, "a", tenant="ant", expires_after_ms=500), keyed(shard, "a", tenant="bee", max_attempts=1)
    )
    shard.store.complete([completed(one)])
    assert waiters(shard, "a") == ["bee"]
    shard.now_ms += 500
    if how == "cancel":
        shard.store.cancel([first])
    elif how == "move_to_dlq":
        shard.store.move_to_dlq([first], "why")
    elif how == "expire":
        shard.store.promote_due()
    elif how == "met":
        assert shard.lease(9) == []  # the walk drops it
    (two,) = shard.lease(9)
    assert two.id == second


def test_a_waiter_whose_other_key_is_full_waits_for_that_one(shard: Shard) -> None:
    shard.add(keyed(shard, "a"), keyed(shard, "b"))
    of_a, of_b = shard.lease(2)
    shard.add(keyed(shard, "a", "b", tenant="ant"), keyed(shard, "a", tenant="bee"), keyed(shard, "b", tenant="cat"))
    order = sorted("ab", key=digest)
    assert waiters(shard, order[0])[0] == "ant"
    first = of_a if order[0] == "a" else of_b
    shard.store.complete([completed(first)])
    assert waiters(shard, order[1])[0] == "ant"
    (next_one,) = shard.lease(9)
    assert next_one.tenant == ("bee" if order[0] == "a" else "cat"), "the one behind it is not held up"


def test_a_waiter_that_may_not_run_lets_the_next_one_pass(shard: Shard) -> None:
    shard.add(keyed(shard, "a"))
    (one,) = shard.lease(1)
    shard.add(*(keyed(shard, "a", tenant=tenant) for tenant in ("ant", "bee", "cat")))
    shard.store.configure(
        1, scopes=[ScopeLimits(tenant="ant", paused=True), ScopeLimits(tenant="bee", max_in_flight=0)]
    )
    shard.store.complete([completed(one)])
    (two,) = shard.lease(9)
    assert two.tenant == "cat"
    shard.store.configure(2, scopes=[ScopeLimits(tenant="ant"), ScopeLimits(tenant="bee")])
    assert shard.lease(9) == []
    shard.store.complete([completed(two)])
    (three,) = shard.lease(9)
    assert three.tenant == "ant"


def test_a_wake_that_was_lost_is_repaired_by_the_sweep(shard: Shard) -> None:
    """The one that was woken is paused before it runs; a second later the next is woken, by worker or scheduler."""
    shard.add(keyed(shard, "a"))
    (one,) = shard.lease(1)
    shard.add(*(keyed(shard, "a", tenant=tenant) for tenant in ("ant", "bee", "cat")))
    shard.store.complete([completed(one)])
    shard.store.configure(1, scopes=[ScopeLimits(tenant="ant", paused=True)])
    assert shard.lease(9) == []
    shard.now_ms += 999
    shard.store.promote_due()
    assert shard.lease(9) == []
    shard.now_ms += 1
    cycle = shard.store.cycle("w2", 1, want=9, begin=0, lease_ms=LEASE_MS)
    assert [job.tenant for job in cycle.jobs] == ["bee"]
    shard.store.configure(2, scopes=[ScopeLimits(tenant="bee", paused=True)])
    shard.store.complete([completed(cycle.jobs[0])])
    assert shard.client.zrange(shard.keys["walk"], 0, -1) == [b"cat"]


def test_a_slot_that_is_given_back_is_offered_once(shard: Shard) -> None:
    """Who was woken before counts although it has not run yet, and a call wakes no more than there is room for."""
    shard.add(*(keyed(shard, "a", limit=2) for _ in range(2)))
    one, two = shard.lease(9)
    shard.add(*(keyed(shard, "a", limit=2, tenant=tenant) for tenant in ("ant", "bee", "cat")))
    shard.store.complete([completed(one)])
    assert waiters(shard, "a") == ["bee", "cat"]
    shard.store.complete([completed(two)])
    assert waiters(shard, "a") == ["cat"]


def test_a_call_wakes_no_more_than_there_is_room_for(shard: Shard) -> None:
    """Two slots are given back where a lower limit leaves room for one."""
    shard.add(*(keyed(shard, "a", limit=3) for _ in range(3)))
    running = shard.lease(9)
    shard.add(*(keyed(shard, "a", limit=3, tenant=tenant) for tenant in ("ant", "bee", "cat")))
    configure_key(shard, 1, "a", 2)
    shard.store.complete([completed(job) for job in running[:2]])
    assert waiters(shard, "a") == ["bee", "cat"]


def test_a_wake_moves_eight_and_leaves_the_others_to_the_sweep_at_once(shard: Shard) -> None:
    shard.add(keyed(shard, "a"))
    shard.lease(1)
    shard.add(*(keyed(shard, "a", tenant=f"t{number:02d}") for number in range(12)))
    configure_key(shard, 1, "a", None)
    assert len(shard.lease(20)) == 8
    shard.store.promote_due()
    assert len(shard.lease(20)) == 4


def test_a_sweep_finds_nothing_to_do_while_the_key_is_full(shard: Shard) -> None:
    shard.add(keyed(shard, "a"))
    shard.lease(1)
    shard.add(keyed(shard, "a", tenant="ant"))
    shard.now_ms += 1_000
    shard.store.promote_due()
    assert waiters(shard, "a") == ["ant"]
    assert shard.client.zscore(shard.keys["waitkeys"], digest("a")) == shard.now_ms + 1_000


def test_sixteen_step_aside_in_a_call_and_nobody_waits_for_the_others(shard: Shard) -> None:
    """Many sub-lanes that share a key, put in line while it was free: the rest of their lane is passed over in that
    call, the other tenants' jobs are leased, and the reply says that the next call should come at once."""
    shard.add(*(keyed(shard, "shared", f"own {number}") for number in range(40)))
    plain = shard.add(shard.job())[0]
    shard.add(*(shard.job("bee") for _ in range(5)))
    found = shard.store.check_and_lease("w1", 1, want=16, begin=0, lease_ms=LEASE_MS)
    assert [job.tenant for job in found.jobs] == ["acme"] + ["bee"] * 5
    assert (found.runnable, found.more) == (True, True)
    assert len(waiters(shard, "shared")) == 16
    found = shard.store.check_and_lease("w1", 2, want=16, begin=0, lease_ms=LEASE_MS)
    assert (list(found.jobs), found.more) == ([], True)
    found = shard.store.check_and_lease("w1", 3, want=16, begin=0, lease_ms=LEASE_MS)
    assert [job.id for job in found.jobs] == [plain]
    assert (found.runnable, found.more) == (False, False)
    assert len(waiters(shard, "shared")) == 39


def test_a_suspect_with_keys_is_leased_alone(shard: Shard) -> None:
    ids = shard.add(keyed(shard, "a", max_crashes=5))
    for _ in range(2):
        (job,) = shard.lease(1)
        shard.now_ms += LEASE_MS
        shard.store.partition_recover()
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", paused=True)])
    shard.add(shard.job("bee"))
    assert len(shard.lease(1, worker="busy")) == 1
    shard.store.configure(2, scopes=[ScopeLimits(tenant="acme")])
    assert shard.lease(9, worker="busy") == []
    assert used(shard, "a") == 0
    (job,) = shard.lease(9, worker="idle")
    assert job.id == ids[0]


def test_two_tasks_may_give_one_key_two_limits(shard: Shard) -> None:
    wide, narrow = keyed(shard, "a", limit=2), keyed(shard, "a", limit=1, tenant="bee")
    shard.add(wide, keyed(shard, "a", limit=2))
    first, second = shard.lease(9)
    shard.add(narrow, keyed(shard, "a", limit=2, tenant="cat"))
    shard.store.complete([completed(first)])
    (third,) = shard.lease(9)
    assert third.tenant == "cat"
    shard.store.complete([completed(second), completed(third)])
    (fourth,) = shard.lease(9)
    assert fourth.tenant == "bee"


# -- endings -------------------------------------------------------------------------------------------------------

ENDINGS = ["complete", "fail", "retry", "lost", "lost_for_good", "given_back", "given_back_later", "unknown_task"]
ENDINGS += ["cycle", "cancelled", "moved", "expired", "redriven", "broken"]


def end(shard: Shard, ending: str, version: int) -> None:
    """A job with two keys comes, and goes in this way."""
    job = keyed(shard, "a", "b", limit=3, max_attempts=2, max_crashes=1 if ending == "lost_for_good" else 3)
    (job_id,) = shard.add(job)
    if ending == "cancelled":
        shard.store.cancel([job_id])
        return
    if ending == "expired":
        shard.store.cancel([job_id])
        shard.add(keyed(shard, "a", "b", limit=3, expires_after_ms=10))
        shard.now_ms += 10
        assert shard.store.promote_due(1000).expired == 1
        return
    if ending == "moved":
        shard.store.move_to_dlq([job_id], "why")
        shard.store.discard([job_id])
        return
    leased = next(job for job in shard.lease(50) if job.id == job_id)
    assert used(shard, "a") == used(shard, "b") == 1
    finish = completed(leased)
    if ending == "complete":
        shard.store.complete([finish])
    elif ending == "cycle":
        shard.store.cycle("w1", 10**6 + version, want=0, begin=0, lease_ms=LEASE_MS, finished=[finish])
        shard.seqs["w1"] = 10**6 + version
    elif ending == "fail":
        shard.store.fail([failed(leased)])
    elif ending == "redriven":
        shard.store.fail([failed(leased)])
        shard.store.retry_from_dlq([job_id])
    elif ending == "retry":
        shard.store.fail([failed(leased, retry_ms=10)])
    elif ending in ("lost", "lost_for_good"):
        shard.now_ms += LEASE_MS
        shard.store.partition_recover()
    elif ending == "given_back":
        shard.store.partition_requeue([Returned(id=job_id, attempts=leased.attempts)])
    elif ending == "given_back_later":
        shard.store.partition_requeue([Returned(id=job_id, attempts=leased.attempts, delay_ms=10)])
    elif ending == "unknown_task":
        gone = Returned(id=job_id, attempts=leased.attempts, unknown_task=True, grace_ms=0)
        shard.store.partition_requeue([gone])
    elif ending == "broken":
        shard.client.set(shard.keys.job(job_id), b"no row of ours")
        shard.now_ms += LEASE_MS
        shard.store.partition_recover()
    assert used(shard, "a") == used(shard, "b") == 0
    assert [word for word in shard.store.complete([finish]) if word == "retry"] == []
    assert used(shard, "a") == 0
    shard.store.cancel([job_id])
    shard.store.discard([job_id])


@pytest.mark.parametrize("ending", ENDINGS)
def test_c074_every_ending_frees_the_slots_of_its_keys(shard: Shard, ending: str) -> None:
    for number in range(3):
        end(shard, ending, number)
    if ending != "broken":
        assert [name for name in left(shard) if not name.startswith("keyname")] == []


def test_c074_all_endings_in_random_order_leave_no_slot_behind(shard: Shard) -> None:
    """50 of each, beside jobs of the same keys that run and wait, with ceilings on pool, tenant and key."""
    chance = random.Random(74)
    shard.store.configure(1, pool=PoolConf(max_in_flight=60), scopes=[ScopeLimits(tenant="acme", max_in_flight=50)])
    configure_key(shard, 2, "a", 40)
    endings = [ending for ending in ENDINGS for _ in range(50)]
    chance.shuffle(endings)
    for number, ending in enumerate(endings):
        end(shard, ending, number)
    assert shard.store.verify() == []
    for scope in ("p", "t:acme"):
        assert shard.client.zcard(shard.keys[f"slots:{scope}"]) == 0
    assert [name for name in left(shard) if name not in ("keysets", "keynames", "keyusers", "conf keyed")] == []


# -- limits --------------------------------------------------------------------------------------------------------


def test_c077_a_key_without_a_configured_limit_has_the_tasks_own(shard: Shard) -> None:
    shard.add(*(keyed(shard, "a", limit=2) for _ in range(5)))
    assert len(shard.lease(9)) == 2


@pytest.mark.parametrize(("limit", "more"), [(5, 3), (None, 8), (2, 0), (1, 0), (0, 0)])
def test_c077_a_limit_changes_while_jobs_run(shard: Shard, limit: int | None, more: int) -> None:
    """Lowering waits for those that run; raising, and taking the limit away, act at once."""
    shard.add(*(keyed(shard, "a", limit=2, tenant=f"t{number}") for number in range(10)))
    running = shard.lease(20)
    assert len(running) == 2
    configure_key(shard, 1, "a", limit)
    assert len(shard.lease(20)) == more
    if more == 0:
        shard.store.complete([completed(job) for job in running])
        assert len(shard.lease(20)) == limit


@pytest.mark.parametrize("limit", [0, 7, None])
def test_c077_a_limit_that_goes_away_leaves_the_tasks_own(shard: Shard, limit: int | None) -> None:
    configure_key(shard, 1, "a", limit)
    shard.add(*(keyed(shard, "a", limit=2) for _ in range(9)))
    running = shard.lease(1)
    configure_key(shard, 2, "a", None, clear=True)
    running += shard.lease(9)
    assert len(running) == 2
    assert not shard.client.exists(shard.keys["limits"])


def test_a_limit_acts_on_every_key_of_its_pattern(shard: Shard) -> None:
    for customer in ("1", "2"):
        keys = (use(f"customer {customer}", limit=1, pattern="customer"),)
        shard.add(*(shard.job(keys=keys) for _ in range(5)))
    assert len(shard.lease(9)) == 2
    configure_key(shard, 1, "customer", 3)
    assert len(shard.lease(9)) == 4


def test_more_keys_than_a_change_looks_at_are_found_by_the_sweep(shard: Shard) -> None:
    for number in range(70):
        keys = (use(f"customer {number}", limit=1, pattern="customer"),)
        shard.add(shard.job(f"t{number}", keys=keys), shard.job(f"t{number}", keys=keys))
    assert len(shard.lease(100)) == 70
    configure_key(shard, 1, "customer", 2)
    assert len(shard.lease(100)) == 64
    shard.now_ms += 1_000
    assert shard.store.promote_due().more is False
    assert len(shard.lease(100)) == 6


# -- repeats -------------------------------------------------------------------------------------------------------


def test_repeats_take_and_give_back_no_slot_twice(shard: Shard) -> None:
    job = keyed(shard, "a", limit=2)
    shard.add(job)
    shard.add(job)
    shard.add(keyed(shard, "a", limit=2))
    (users,) = [count for field, count in shard.snapshot()["keyusers"].items() if field.startswith(b"s:")]
    assert users == b"2"
    one, two = shard.lease(5)
    again = shard.store.check_and_lease("w1", shard.seqs["w1"], want=5, begin=5, lease_ms=LEASE_MS)
    assert sorted(leased.id for leased in again.jobs) == sorted([one.id, two.id])
    assert used(shard, "a") == 2
    shard.add(keyed(shard, "a", limit=2, tenant="ant"), keyed(shard, "a", limit=2, tenant="bee"))
    for _ in range(2):
        shard.store.complete([completed(one)])
    assert waiters(shard, "a") == ["bee"]
    assert used(shard, "a") == 1


# -- what readers see ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fifo", "tiered", "aging", "wfq"])
def test_the_oldest_job_is_found_wherever_it_stands(shard: Shard, policy: str) -> None:
    """In a sub-lane at the head of its lane, and in one that waits for its key, whose lane stands in no walk."""
    shard.store.configure(1, pool=PoolConf(policy=policy))
    shard.add(keyed(shard, "a", tenant="cat"))
    standing = shard.store.oldest()
    assert [job.id for job in standing.jobs] == [f"{1:022d}"]
    shard.lease(1)
    shard.now_ms += 5
    (parked,) = shard.add(keyed(shard, "a", tenant="bee"))
    shard.now_ms += 5
    shard.add(shard.job())
    standing = shard.store.oldest()
    assert (standing.first, standing.cursor) == (-1, "-1")
    assert (standing.jobs[0].id, standing.jobs[0].since_ms) == (parked, START_MS + 5)
    assert len(standing.jobs) == 2


def test_peek_shows_what_would_be_leased_and_writes_nothing(shard: Shard) -> None:
    shard.add(*(keyed(shard, "a") for _ in range(3)), keyed(shard, "a", "b"), keyed(shard, "b"), shard.job())
    before = shard.snapshot()
    peeked = [job_id for _, _, job_id in shard.store.peek(9)]
    assert shard.snapshot() == before
    assert [job.id for job in shard.lease(9)] == peeked
    assert len(peeked) == 3


@pytest.mark.parametrize("name", [name for name in scripts.names() if name != "explain"])
def test_a_repeat_with_keys_changes_nothing(shard: Shard, name: str) -> None:
    """Every script once more, with keys on all the jobs; one key is full, so that some wait for it."""
    plain = shard.job
    shard.job = lambda tenant="acme", **options: plain(  # type: ignore[method-assign]
        tenant, keys=(use("all", 4), use(f"of {tenant}", 2)), **options
    )
    act = scene(shard, name)
    first = act()
    before = shard.snapshot()
    assert act() == first or name in ("cancel", "move_to_dlq", "retry_from_dlq", "discard", "fail")
    after = shard.snapshot()
    for key in before.keys() | after.keys():
        if key.startswith(OF_KEYS) or "|@" in key:
            assert after.get(key) == before.get(key), key


def test_a_list_of_a_queue_shows_jobs_only(shard: Shard) -> None:
    shard.add(keyed(shard, "a"))
    (plain,) = shard.add(shard.job())
    page = shard.store.browse("q:acme|main", count=1)
    assert list(page.ids) == [plain]
    assert page.cursor is None


def test_a_pool_without_keys_never_looks_for_them(shard: Shard) -> None:
    touched: list[str] = []
    with shard.client.monitor() as monitor:
        shard.add(shard.job(), shard.job())
        (one, two) = shard.lease(2)
        shard.store.cycle("w2", 1, want=1, begin=0, lease_ms=LEASE_MS, finished=[completed(one)])
        shard.store.fail([failed(two)])
        shard.store.promote_due()
        shard.store.partition_recover()
        shard.client.echo("that was all")
        for event in monitor.listen():
            if event["command"].startswith("ECHO"):
                break
            if event["client_type"] == "lua":
                touched.append(event["command"].replace(shard.keys.prefix, ""))
    assert touched
    assert [command for command in touched if any(f" {name}" in command for name in OF_KEYS)] == []


@pytest.mark.parametrize("policy", ["tiered", "fifo", "wfq"])
def test_a_tenant_whose_last_sub_lanes_park_leaves_the_walk(shard: Shard, policy: str) -> None:
    """More park than a call lets step aside: its lane is passed over, and then empty."""
    shard.store.configure(1, pool=PoolConf(policy=policy))
    for _ in range(2):
        shard.add(*(keyed(shard, f"k{number}") for number in range(17)))
    assert len(shard.lease(40)) == 17
    assert "walk" not in shard.snapshot()
    assert shard.lease(5) == []
    assert shard.store.verify() == []
