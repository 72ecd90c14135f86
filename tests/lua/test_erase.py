"""A tenant's jobs and traces are gone, whatever state they are in, and nobody else's are touched."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.store.configuration import KeyLimits, PoolConf, Rate, ScopeLimits
from queueapp.store.records import DebounceUse, KeyUse, SingletonUse
from tests.lua.damage import full_scene, recounted
from tests.lua.harness import Shard, completed, failed

KEY = KeyUse(digest="d" * 16, limit=1, pattern="p" * 16, text="customer:1")


def of_acme(shard: Shard) -> dict[str, Any]:
    """Keys, fields and members that name the tenant."""
    found = {}
    for name, value in shard.snapshot().items():
        if name.partition(":")[0] in ("served", "conf", "limits"):
            continue
        if "acme" in name or "acme" in repr(value):
            found[name] = value
    return found


def erase_traces(shard: Shard, tenant: str = "acme", limit: int = 10**6) -> tuple[int, int]:
    """All shares; how many went, in how many shares."""
    cursor, number, shares = "0", 0, 0
    while True:
        cursor, gone = shard.store.erase_traces(tenant, cursor, limit)
        number, shares = number + gone, shares + 1
        if cursor == "0":
            return number, shares


def test_jobs_of_every_state_are_gone_whole(shard: Shard) -> None:
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", max_in_flight=5)])
    ids = shard.add(shard.job(keys=(KEY,)), *(shard.job(max_attempts=2) for _ in range(5)))
    running, ended, dying, again, *_ = shard.lease(4)
    shard.store.save(running.id, 1, {"progress": b"1", "checkpoint": b"2"})
    shard.store.complete([completed(ended, result=b"secret")])
    shard.store.fail([failed(dying), failed(again, retry_ms=60_000)])
    late = shard.job(delay_ms=9_000)
    single = shard.job(singleton=SingletonUse(digest="s" * 16))
    bounced = shard.job(debounce=DebounceUse(digest="b" * 16, period_ms=500), idempotency="k" * 16)
    shard.store.enqueue([late, single, bounced])
    mine = [*ids, late.id, single.id, bounced.id]
    others = shard.add(shard.job("globex"))
    assert shard.store.erase("acme", [*mine, mine[0], *others, "f" * 22]) == ["erased"] * 10 + ["other", "gone"]
    left = shard.snapshot()
    assert not [name for name in left for job_id in mine if job_id in name]
    assert not [name for name in left if name.startswith(("slots", "single", "keysets", "held"))]
    assert shard.store.complete([completed(running)]) == ["gone"], "a late result is dropped"
    assert shard.store.save(running.id, 1, {"progress": b"3"}) == "gone"
    assert [job.id for job in shard.lease(9)] == others
    shard.now_ms += 10 * 86_400_000
    erase_traces(shard)
    assert of_acme(shard) == {}


@pytest.mark.parametrize("where", ["ingress", "ready"])
def test_under_scheduled_dispatch(shard: Shard, where: str) -> None:
    term = shard.schedule(policy="fifo")
    ids = shard.add(shard.job())
    if where == "ready":
        shard.dispatch(term)
    assert shard.store.erase("acme", ids) == ["erased"]
    shard.dispatch(term)
    assert shard.lease() == []


def test_traces_of_others_and_settings_stay(shard: Shard) -> None:
    rate = Rate(rate=1, period_ms=60_000)
    scopes = [ScopeLimits(tenant=t, rate=rate, weight=2) for t in ("acme", "acme2")]
    scopes += [ScopeLimits(tenant=t, lane="slow", rate=rate) for t in ("acme", "acme2")]
    shard.store.configure(1, scopes=scopes, keys=[KeyLimits(pattern="p" * 16, text="x", max_in_flight=3)])
    ids = shard.add(*(shard.job(t, lane="slow", idempotency="k" * 16) for t in ("acme", "acme2")))
    for job in shard.lease(2):
        shard.store.complete([completed(job)])
    shard.store.erase("acme", ids)
    for tenant in ("acme", "acme2"):
        shard.client.hset(shard.keys["est"], f"1|{tenant}", "160|20000|9")
    before = shard.snapshot()
    assert erase_traces(shard)[0] >= 3
    after = shard.snapshot()
    went = {name for name in before if name not in after}
    assert went == {f"idem:acme|{'k' * 16}", "gcra:t:acme", "gcra:l:acme|slow"}
    assert {b"1|acme", b"1|acme2"} & set(after["est"]) == {b"1|acme2"}
    assert after["limits"] == before["limits"]


def test_traces_go_in_bounded_shares(shard: Shard) -> None:
    shard.add(*(shard.job(idempotency=f"{n:016d}") for n in range(200)))
    assert erase_traces(shard, limit=50)[1] > 5
    assert not [name for name in shard.snapshot() if name.startswith("idem")]


def test_the_window_of_a_job_that_waits_stays(shard: Shard) -> None:
    """It came after the others were erased; without its window another call would make a second one."""
    first, second = (shard.job(debounce=DebounceUse(digest="b" * 16, period_ms=9_000)) for _ in range(2))
    shard.store.enqueue([first])
    erase_traces(shard)
    [answer] = shard.store.enqueue([second])
    assert (answer.outcome, answer.id) == ("debounced", first.id)


# -- beside its jobs ---------------------------------------------------------------------------------------------------


def held_back(shard: Shard) -> None:
    """Tenant and lane wait for tokens, and their ceilings, pauses and keys have held work back; of two tenants."""
    rate = Rate(rate=1, period_ms=60_000)
    scopes = []
    for tenant in ("acme", "acme2"):
        scopes += [
            ScopeLimits(tenant=tenant, dispatch_rate=rate),
            ScopeLimits(tenant=tenant, lane="slow", dispatch_rate=rate),
            ScopeLimits(tenant=tenant, lane="shut", paused=True),
        ]
    shard.store.configure(9, scopes=scopes)
    for tenant in ("acme", "acme2"):
        shard.add(*(shard.job(tenant, lane=lane) for lane in ("main", "slow", "slow", "shut") for _ in range(2)))
        shard.add(*(shard.job(tenant, lane="keyed", keys=(KEY,)) for _ in range(3)))
    for _ in range(4):
        shard.lease(4)
        shard.now_ms += 2_000


def ids_of(shard: Shard, tenant: str) -> list[str]:
    found = []
    for name in shard.snapshot():
        kind, _, job_id = name.partition(":")
        record = shard.reads.job(job_id) if kind in ("job", "run") else None
        if record is not None and record.tenant == tenant:
            found.append(job_id)
    return sorted(set(found))


def test_when_it_has_tokens_again_and_what_held_it_back_are_forgotten(shard: Shard) -> None:
    held_back(shard)
    for tenant in ("acme", "acme2"):
        shard.client.set(shard.keys[f"gcra:dl:{tenant}|slow"], "1", px=60_000)
    before = shard.snapshot()
    assert {member for member, _ in before["timers"]} >= {b"t:acme", b"t:acme2"}
    of_both = {
        t: {field for field in before["blocks"] if t in field.replace(b"|", b":").split(b":")}
        for t in (b"acme", b"acme2")
    }
    assert of_both[b"acme"]
    shard.store.erase("acme", ids_of(shard, "acme"))
    erase_traces(shard)
    after = shard.snapshot()
    rates = {name for name in before if name.startswith("gcra")}
    assert {"gcra:dt:acme", "gcra:dl:acme|slow"} <= rates
    assert {name for name in after if name.startswith("gcra")} == {name for name in rates if "acme2" in name}
    assert not [member for member, _ in after["timers"] if b"acme" in member.replace(b"|", b":").split(b":")]
    assert set(after["blocks"]) == of_both[b"acme2"], "and nothing of the other's"
    shard.store.erase("acme2", ids_of(shard, "acme2"))
    erase_traces(shard, "acme2")
    assert not {"timers", "blocks"} & set(shard.snapshot())
    assert not shard.client.hexists(shard.keys["conf"], "blocks")


def test_of_a_tenant_with_new_work_they_stay(shard: Shard) -> None:
    """It came while the others were erased: it must get its turn at its moment."""
    held_back(shard)
    gone = ids_of(shard, "acme")
    came = shard.add(shard.job("acme", lane="slow"))
    shard.store.erase("acme", gone)
    before = shard.snapshot()
    erase_traces(shard)
    after = shard.snapshot()
    assert (before["timers"], before["blocks"]) == (after["timers"], after["blocks"])
    shard.store.erase("acme2", ids_of(shard, "acme2"))
    shard.now_ms += 60_000
    shard.store.promote_due()
    assert [job.id for job in shard.lease(9)] == came


def test_a_tenant_with_new_dead_letters_stays_listed(shard: Shard) -> None:
    shard.add(shard.job())
    shard.store.fail([failed(job) for job in shard.lease()])
    erase_traces(shard)
    assert shard.snapshot()["tenants"] == [(b"acme", 0)]


def test_a_cursor_of_another_server_is_not_trusted(shard: Shard) -> None:
    shard.add(*(shard.job(idempotency=f"{n:016d}") for n in range(50)))
    phase, process, _ = shard.store.erase_traces("acme", "0", 10)[0].split(" ")
    assert (phase, process) == ("keys", shard.client.info("server")["run_id"])
    cursor = f"blocks {'0' * 40} 0"
    while cursor != "0":
        cursor, _ = shard.store.erase_traces("acme", cursor, 100)
    assert not [name for name in shard.snapshot() if name.startswith("idem")]


# -- rows that nobody can read -----------------------------------------------------------------------------------------


def spoil(shard: Shard, job_id: str, how: str) -> None:
    if how == "row":
        shard.client.set(shard.keys.job(job_id), "no row of ours")
    elif how == "type":
        shard.client.delete(shard.keys.job(job_id))
        shard.client.lpush(shard.keys.job(job_id), "x")
    elif how == "run":
        shard.client.delete(shard.keys.run(job_id))
        shard.client.lpush(shard.keys.run(job_id), "x")
    else:
        shard.client.delete(shard.keys.run(job_id))


def standing(shard: Shard, state: str) -> str:
    """A job with a run behind it, in this state."""
    dispatch = {"term": shard.schedule(policy="fifo")} if state in ("ready", "ingress") else {}
    [job_id] = shard.add(shard.job(max_attempts=3, expires_after_ms=900_000, keys=(KEY,)))
    if dispatch:
        shard.dispatch(dispatch["term"])
    [leased] = shard.lease()
    if state == "dead":
        shard.store.fail([failed(leased)])
    elif state == "ended":
        shard.store.complete([completed(leased)])
    elif state != "active":
        shard.store.fail([failed(leased, retry_ms=1_000)])
    if state not in ("dead", "ended", "active", "scheduled"):
        shard.now_ms += 1_000
        shard.store.promote_due()
    if state == "ready":
        shard.dispatch(dispatch["term"])
    if state == "moving":
        shard.store.depart([job_id], "other.0")
    return job_id


STATES = ["pending", "scheduled", "ingress", "ready", "active", "dead", "ended", "moving"]


@pytest.mark.parametrize("how", ["row", "type", "run", "no run"])
@pytest.mark.parametrize("state", STATES)
def test_a_row_that_nobody_can_read_goes_where_something_says_whose_it_is(shard: Shard, state: str, how: str) -> None:
    job_id = standing(shard, state)
    spoil(shard, job_id, how)
    known = state != "ended" or how in ("row", "type")
    words = shard.store.erase("acme", [job_id])
    if state == "moving" and how in ("row", "type"):
        assert words == ["moving other.0"]
        words = shard.store.erase("acme", [job_id], mode="barred")
    assert words == ["erased" if known else "gone" if how == "no run" else "unknown"]
    if known:
        assert [name for name in shard.snapshot() if job_id in name and not name.startswith("erased")] == []
    shard.client.delete(shard.keys.run(job_id))
    shard.client.zrem(shard.keys["ended"], job_id)
    if state == "ingress":  # its entry goes when a leader meets it
        shard.admit(shard.term())
    shard.store.promote_due()
    shard.lease(3)
    if how in ("run", "no run"):  # who held the lease, and of which group it was, nothing says any more
        recounted(shard, repair=True)


@pytest.mark.parametrize("state", STATES)
def test_what_was_set_aside_goes_and_counts_no_second_time(shard: Shard, state: str) -> None:
    job_id = standing(shard, state)
    spoil(shard, job_id, "row")
    shard.now_ms += 901_000
    if state == "ingress":
        shard.admit(shard.term())
    for _ in range(3):
        shard.store.partition_recover()
        shard.store.promote_due()
        shard.lease(3)
    aside = bool(shard.client.sismember(shard.keys["quarantine"], job_id))
    assert aside or state in ("ended", "dead", "moving", "ready")
    for mode in ("", "barred"):
        shard.store.erase("acme", [job_id], mode=mode)
    assert shard.store.erase("acme", [job_id]) == ["gone"]
    assert "quarantine" not in shard.snapshot()
    assert shard.snapshot().get("counts", {b"w": b"0"})[b"w"] == b"0"


def test_what_was_set_aside_and_can_be_read_again_counts_no_second_time(shard: Shard) -> None:
    """Somebody took away what had stood in its way."""
    [job_id] = shard.add(shard.job(keys=(KEY,)))
    shard.client.lpush(shard.keys.run(job_id), "x")
    assert shard.lease() == []
    assert shard.client.sismember(shard.keys["quarantine"], job_id)
    shard.client.delete(shard.keys.run(job_id))
    assert shard.store.erase("acme", [job_id]) == ["erased"]
    assert not [name for name in shard.snapshot() if job_id in name or name in ("quarantine", "keyusers")]


def test_one_that_is_named_twice_goes_once(shard: Shard) -> None:
    first, second = shard.add(shard.job(), shard.job())
    assert shard.store.erase("acme", [first, second, first, second]) == ["erased"] * 4
    assert shard.snapshot()["stats"][b"erased"] == b"2"


def test_of_whom_nobody_knows_whose_it_is_is_told_and_stays(shard: Shard) -> None:
    [job_id] = shard.add(shard.job())
    spoil(shard, job_id, "row")
    shard.lease()
    assert shard.client.sismember(shard.keys["quarantine"], job_id)
    for mode in ("look", "", "bar", "barred"):
        assert shard.store.erase("acme", [job_id], mode=mode) == ["unknown"]
    shard.client.delete(shard.keys.job(job_id))
    shard.client.srem(shard.keys["quarantine"], job_id)


# -- looked at first, and done in a busy shard -------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["tiered", "wfq", "edf", "drr"])
def test_tenant_by_tenant_a_shard_in_which_everything_occurs_is_emptied(shard: Shard, policy: str) -> None:
    """After each one the shard is whole, and nothing of it is left but what is configured, and its service."""
    full_scene(shard, policy, scheduled=policy == "drr")
    if policy == "wfq":  # two orders stand side by side
        shard.versions += 1
        shard.store.configure(shard.versions, pool=PoolConf(policy="aging", max_in_flight=12))
    tenants = sorted({record.tenant for name in shard.snapshot() if name.startswith(("job:", "run:"))
                      if (record := shard.reads.job(name.partition(":")[2])) is not None})  # fmt: skip
    assert len(tenants) > 8
    for tenant in tenants:
        ids = ids_of(shard, tenant)
        before = shard.snapshot()
        assert shard.store.erase(tenant, ids, mode="look") == ["erased"] * len(ids)
        assert shard.snapshot() == before
        assert shard.store.erase(tenant, ids) == ["erased"] * len(ids)
        erase_traces(shard, tenant)
        assert shard.store.verify() == [], tenant
        assert ids_of(shard, tenant) == []
        assert not [name for name in shard.snapshot() for job_id in ids if job_id in name]
    left = {name.partition(":")[0] for name in shard.snapshot()}
    of_jobs = (
        "job run q qc once single deb idem slots held dead ended timers blocks tenants gcra keysets keynames waiters"
    )
    assert not left & set(of_jobs.split())
