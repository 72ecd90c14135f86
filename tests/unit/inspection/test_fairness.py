"""The certificate from the store to the terminal: what it says of tenants that stand in all ways, and what it costs."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from queueapp.cli.tenants import text
from queueapp.inspection.fairness import certify
from queueapp.inspection.shares import Standing
from queueapp.store import service as service_reads
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import Returned
from queueapp.store.served import Minute, Part
from queueapp.store.service import MINUTE_MS, Service, TenantService
from tests.lua.harness import Shard, completed
from tests.unit.conftest import RoundTrips
from tests.unit.inspection.seen import of, seen

ROOT = Path(__file__).resolve().parents[3]


def test_an_empty_pool(shard: Shard) -> None:
    found = seen(shard)
    assert found.tenants == ()
    assert (found.units, found.jobs, found.whole, found.left_out) == (0, 0, True, 0)
    assert found.jain_service == found.jain_count == found.jain_entitled == 1
    assert set(found.states) == {word.value for word in Standing}
    asked = seen(shard, tenants=["acme"])
    assert (of(asked, "acme").state, of(asked, "acme").share) == (Standing.IDLE, 0)


def test_how_tenants_stand(shard: Shard) -> None:
    shard.store.configure(
        1,
        pool=PoolConf(cost_unit="pages"),
        scopes=[
            ScopeLimits(tenant="full", max_in_flight=1),
            ScopeLimits(tenant="closed", max_in_flight=0),
            ScopeLimits(tenant="held", paused=True),
            ScopeLimits(tenant="heavy", weight=3),
        ],
    )
    for tenant in ("full", "closed", "held", "heavy", "light"):
        shard.add(*(shard.job(tenant) for _ in range(40)))
    shard.add(shard.job("done"), shard.job("later", delay_ms=3_600_000))
    shard.add(*(shard.job("done", delay_ms=3_600_000) for _ in range(30)))
    jobs = shard.lease(60)
    shard.store.complete([completed(job) for job in jobs if job.tenant != "full"])
    found = seen(shard)
    assert {one.tenant: one.state.value for one in found.tenants} == {
        "full": "capped",
        "closed": "capped",
        "held": "paused",
        "heavy": "borrowing",
        "light": "borrowing",
        "done": "fair",
        "later": "idle",
    }
    assert (of(found, "full").active, of(found, "closed").active, of(found, "light").active) == (1, 0, None)
    assert (of(found, "full").waiting, of(found, "held").jobs) == (39, 0)
    assert of(found, "heavy").units == 40
    assert of(found, "held").entitled_units == of(found, "later").entitled_units == 0
    assert of(found, "done").entitled_units == 1, "what waits for its time asks for nothing"
    assert found.jobs == found.units == sum(one.units for one in found.tenants) == 60
    assert [one.state for one in found.tenants] == sorted(
        (one.state for one in found.tenants), key=list(Standing).index
    )
    assert sum(found.states.values()) == len(found.tenants)
    shard.store.configure(2, pool=PoolConf(cost_unit="pages", paused=True))
    assert {one.state for one in seen(shard).tenants} == {Standing.PAUSED}


def test_a_ceiling_is_what_binds_it_also_while_a_slot_is_free(shard: Shard) -> None:
    """At this moment it could run another; over the window it could not have had more."""
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", max_in_flight=1)])
    shard.now_ms -= shard.now_ms % MINUTE_MS
    shard.add(*(shard.job() for _ in range(50)), *(shard.job("globex") for _ in range(400)))
    for _ in range(6):
        jobs = shard.lease(5)
        shard.now_ms += 10_000
        shard.store.complete([completed(job, 10_000) for job in jobs])
    found = seen(shard, 60)
    acme = of(found, "acme")
    assert acme.units <= 60_000
    assert acme.entitled_units <= found.window_s * 1000
    assert acme.state is not Standing.STARVED


def test_whoever_came_a_moment_ago_is_entitled_to_a_moment(shard: Shard) -> None:
    shard.add(*(shard.job(cost=100) for _ in range(100)))
    shard.now_ms += MINUTE_MS - shard.now_ms % MINUTE_MS
    for _ in range(50):
        shard.now_ms += 2_000
        shard.lease()
    shard.add(*(shard.job("new", cost=100) for _ in range(100)))
    shard.now_ms += 1_000
    found = seen(shard)
    assert of(found, "new").entitled_share < 0.02
    assert of(found, "new").state is Standing.FAIR
    assert of(found, "acme").ratio == pytest.approx(1, abs=0.02)


def test_windows_are_whole_minutes_and_bounded(shard: Shard) -> None:
    shard.now_ms += MINUTE_MS - shard.now_ms % MINUTE_MS + 30_000
    shard.add(*(shard.job(cost=1) for _ in range(4)))
    for _ in range(3):
        shard.lease()
        shard.now_ms += MINUTE_MS
    assert seen(shard, 60).window_s == 90
    assert seen(shard, 60).jobs == 1
    assert seen(shard, 120).jobs == 2
    assert seen(shard, 1).window_s == 90, "no less than a minute"
    assert seen(shard, 10**9).window_s <= 3_660
    assert seen(shard, 10**9).jobs == 3


def test_a_refund_of_an_earlier_minute_makes_no_negative_service(shard: Shard) -> None:
    shard.add(shard.job(cost=100), shard.job("globex", cost=1))
    jobs = {job.tenant: job for job in shard.lease(2)}
    shard.now_ms += 10 * MINUTE_MS
    shard.store.partition_requeue([Returned(id=jobs["acme"].id, attempts=1)])
    found = seen(shard)
    assert (of(found, "acme").units, of(found, "acme").jobs) == (0, 0)
    shard.add(shard.job("initech", cost=3))
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", paused=True)])
    shard.lease()
    shard.store.configure(2, scopes=[ScopeLimits(tenant="acme", clear=True)])
    found = seen(shard)
    assert found.jain_service == pytest.approx(1 / 2), "of nothing and three"
    assert of(found, "initech").share == 1


@pytest.mark.parametrize("policy", ["fifo", "priority", "edf", "aging", "wfq", "tiered", "ring"])
def test_places_in_line_are_found_under_every_policy(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    shard.add(shard.job(cost=2), shard.job(cost=2), shard.job("globex", cost=2), shard.job("later", delay_ms=10**6))
    shard.now_ms += 7_000
    shard.lease()
    found = seen(shard)
    assert {one.tenant: one.wait_s for one in found.tenants} == {"acme": 7, "globex": 7, "later": None}
    bounded = policy in {"wfq", "tiered", "ring"}
    assert {one.tenant for one in found.tenants if one.lag is not None} == ({"acme", "globex"} if bounded else set())
    assert not [one for one in found.tenants if one.beyond_bound]


@pytest.mark.parametrize("policy", ["drr", "lottery", "shop.policies.mine"])
def test_places_in_line_are_found_where_only_a_leader_knows_the_policy(shard: Shard, policy: str) -> None:
    """Its walk has ties: without the numbers of submission nobody would seem to be in line."""
    term = shard.schedule(policy=policy)
    shard.add(shard.job(cost=2), shard.job(cost=2), shard.job("globex", cost=2), shard.job("later", delay_ms=10**6))
    shard.admit(term)
    shard.now_ms += 7_000
    found = seen(shard)
    assert {one.tenant: one.wait_s for one in found.tenants} == {"acme": 7, "globex": 7, "later": None}
    assert {one.tenant for one in found.tenants if one.lag is not None} == set()


@pytest.mark.parametrize("seed", range(3))
def test_tiered_keeps_its_bound_whatever_happens(shard: Shard, seed: int) -> None:
    """Estimates that are wrong up to a hundredfold, eight slots, work given back, tenants that come and go."""
    chance = random.Random(seed)
    shard.store.configure(
        1, scopes=[ScopeLimits(tenant=tenant, weight=weight) for tenant, weight in (("bee", 2.0), ("cat", 4.0))]
    )
    slow = {"ant": (1, 20), "bee": (100, 900), "cat": (5, 2_000)}
    running: list[Any] = []
    lags = 0
    for _ in range(150):
        if chance.random() < 0.5:
            tenant = chance.choice(["ant", "bee", "cat"])
            shard.add(*(shard.job(tenant, task=f"demo.{tenant}") for _ in range(chance.randint(1, 20))))
        running += shard.lease(8 - len(running))
        if running:
            job = running.pop(chance.randrange(len(running)))
            run_ms = chance.randint(*slow[job.tenant])
            shard.now_ms += run_ms
            if chance.random() < 0.1:
                shard.store.partition_requeue([Returned(id=job.id, attempts=job.attempts)])
            else:
                shard.store.complete([completed(job, run_ms)])
        found = seen(shard)
        lags += sum(1 for one in found.tenants if one.lag)
        assert [one for one in found.tenants if one.beyond_bound] == []
    assert lags > 50


def test_a_tag_that_was_moved_by_a_fault_is_beyond_the_bound(shard: Shard) -> None:
    """What the alert is for: no service accounts for it."""
    shard.add(*(shard.job(tenant, cost=5) for tenant in ("acme", "globex") for _ in range(9)))
    shard.lease(4)
    assert not any(one.beyond_bound for one in seen(shard).tenants)
    shard.client.zincrby(shard.keys["walk"], 1_000, "globex")
    assert [one.tenant for one in seen(shard).tenants if one.beyond_bound] == ["acme"]


def test_what_it_costs_does_not_grow_with_the_tenants(shard: Shard, round_trips: RoundTrips) -> None:
    shard.add(shard.job(), shard.job())
    shard.lease()
    seen(shard)
    round_trips.since_last()
    seen(shard)
    assert round_trips.since_last() <= 9
    for first in range(0, 300, 100):
        shard.add(*(shard.job(f"t{number}") for number in range(first, first + 100)))
    shard.lease(50)
    round_trips.since_last()
    assert len(seen(shard).tenants) == 301
    assert round_trips.since_last() <= 9


def test_of_a_large_pool_a_share_is_read_and_everybody_in_turn(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_reads, "TENANTS_READ", 20)
    monkeypatch.setattr(service_reads, "FIELDS_READ", 30)
    names = [f"t{number:02d}" for number in range(60)]
    shard.add(*(shard.job(name, cost=1) for name in names for _ in range(2)))
    shard.add(*(shard.job("most", cost=1) for _ in range(30)))
    shard.lease(61)
    met: set[str] = set()
    for _ in range(6):
        found = seen(shard, tenants=["t59"])
        assert not found.whole
        assert found.jobs == found.units == 61, "totals of the pool are exact"
        assert len(found.tenants) <= 21
        assert found.left_out >= 40
        assert of(found, "most").waiting == 29
        assert of(found, "t59").jobs == 1
        assert sum(one.share for one in found.tenants) == pytest.approx(1)
        met |= {one.tenant for one in found.tenants}
        shard.now_ms += service_reads.SHARE_S * 1000
    assert met == {*names, "most"}


@pytest.mark.dirty_store
def test_wrong_rows_and_lanes_that_are_gone_do_not_matter(shard: Shard) -> None:
    (first, _) = shard.add(shard.job(), shard.job("globex"))
    shard.client.set(shard.keys.job(first), "not a row")
    found = seen(shard)
    assert of(found, "acme").wait_s is None
    shard.client.zadd(shard.keys["q:globex|main"], {"@1": -(2.0**52)})  # stands for jobs that are not there
    assert of(seen(shard), "globex").wait_s is None
    shard.client.delete(shard.keys["lanes:globex"])
    assert of(seen(shard), "globex").wait_s is None


def each_minute(units: int, jobs: int) -> dict[int, Part]:
    """So much in six minutes, most of it in the last."""
    early = {minute: Part(units=50, jobs=1, largest=50) for minute in range(5)}
    return {**early, 5: Part(units=units - 250, jobs=jobs - 5, largest=50)}


def by_hand() -> Service:
    """The example of docs/fairness.md."""
    now_ms = 1_800_000_000_000 + 330_000
    tenants = {
        "big": TenantService(tenant="big", parts=each_minute(5_500, 110), waiting=999_000, pointer=5_500.0),
        "mid": TenantService(tenant="mid", parts=each_minute(2_500, 50), waiting=999_000, pointer=5_450.0),
        "small": TenantService(tenant="small", parts=each_minute(1_000, 20)),
    }
    tenants["big"].since_ms, tenants["mid"].since_ms = now_ms - 3_200, now_ms - 41_000
    return Service(
        now_ms=now_ms,
        start_ms=now_ms - 330_000,
        policy="tiered",
        unit="ms",
        default_cost=50,
        paused=False,
        clock=5_450,
        clock_moved_ms=0,
        in_line=2,
        waiting_tenants=2,
        minutes=[
            Minute(start_ms=now_ms - 330_000 + n * MINUTE_MS, units=1_500, jobs=30, most_in_flight=4) for n in range(6)
        ],
        tenants=tenants,
        whole=True,
    )


def test_the_example_of_the_docs_is_what_the_terminal_shows() -> None:
    page = (ROOT / "docs/fairness.md").read_text()
    (shown,) = re.findall(r"```\n\$ manage\.py ductor tenants\n(.*?)```", page, re.DOTALL)
    found = certify("default", by_hand())
    assert text(found, list(found.tenants), 0).strip() == shown.strip()


def test_a_tenant_far_ahead_by_an_earlier_job_is_no_measure_of_the_others() -> None:
    service = by_hand()
    ahead = TenantService(tenant="ahead", waiting=5, pointer=1e9)
    found = certify("default", replace(service, tenants={**service.tenants, "ahead": ahead}))
    assert (of(found, "mid").lag, of(found, "mid").lag_bound) == (50, 100)


def test_a_ceiling_that_does_not_apply_yet_caps_nobody() -> None:
    """It was set while jobs ran, which are still being counted."""
    service = by_hand()
    service.tenants["mid"].ceiling, service.tenants["mid"].active = 3, 3
    assert of(certify("default", service), "mid").state is Standing.BEHIND
    service.tenants["mid"].pointer = None
    assert of(certify("default", service), "mid").state is Standing.CAPPED


def test_a_difference_that_one_job_of_a_minimum_makes_is_nobody_s_fault() -> None:
    """It was one job, whoever gave it: nothing deals out less than a whole one."""
    service = by_hand()
    assert of(certify("default", service), "mid").state is Standing.BEHIND
    parts = service.tenants["big"].parts
    parts[5] = replace(parts[5], minimum_largest=1_500, minimum_jobs=1)
    assert of(certify("default", service), "mid").state is Standing.FAIR


def test_every_word_is_explained_in_the_docs() -> None:
    page = (ROOT / "docs/fairness.md").read_text()
    assert set(re.findall(r"^\| (\w+) \| ", page.split("## Words")[1].split("## Lag")[0], re.MULTILINE)) - {"word"} == {
        word.value for word in Standing
    }


def test_what_is_beyond_is_no_rounding() -> None:
    found = certify("default", by_hand())
    one = of(found, "mid")
    assert not one.beyond_bound
    assert not replace(one, lag=one.lag_bound).beyond_bound
    assert replace(one, lag=(one.lag_bound or 0) * 1.01).beyond_bound
    assert not replace(one, lag=None).beyond_bound


@pytest.mark.django_db
class TestTerminal:
    def test_as_text_and_as_json(self, shard: Shard, capsys: pytest.CaptureFixture[str]) -> None:
        shard = Shard(shard.client, shard.keys, now_ms=0)  # the store's own clock
        shard.add(*(shard.job(tenant, cost=1) for tenant in ("acme", "globex") for _ in range(3)))
        shard.lease(4)
        call_command("ductor", "tenants")
        shown = capsys.readouterr().out
        assert re.search(r"^acme +fair +1 +1 +- +2 +2 +50\.0% +50\.0% +100\.0%", shown, re.MULTILINE)
        assert "2 fair" in shown
        call_command("ductor", "tenants", "default", "--json", "--window", "60", "--tenant", "acme,nobody")
        told = json.loads(capsys.readouterr().out)
        assert [one["tenant"] for one in told["tenants"]] == ["acme", "nobody"]
        assert (told["jobs"], told["states"]["fair"], told["tenants"][0]["share"]) == (4, 2, 0.5)
        call_command("ductor", "tenants", "--count", "1")
        assert "1 more" in capsys.readouterr().out

    def test_nobody_and_nowhere(self, shard: Shard, capsys: pytest.CaptureFixture[str]) -> None:
        call_command("ductor", "tenants")
        assert "Nobody had work" in capsys.readouterr().out
        with pytest.raises(CommandError, match="not a known pool"):
            call_command("ductor", "tenants", "nowhere")
        for window in ("59", "3601", "x"):
            with pytest.raises(CommandError, match="window"):
                call_command("ductor", "tenants", "--window", window)
