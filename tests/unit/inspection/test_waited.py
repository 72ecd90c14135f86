"""What a job waited for, in every skin: its view, the terminal, the admin, exports, and a tenant's sums."""

from __future__ import annotations

import json
import re
from io import StringIO

import pytest
from django.core.management import call_command

from queueapp.admin.showing import facts
from queueapp.cli.tenants import text
from queueapp.inspection.facts import as_mapping
from queueapp.inspection.fairness import certificate, certify
from queueapp.inspection.jobs import JobView, find_job
from queueapp.store.configuration import ScopeLimits
from queueapp.store.service import read_service
from queueapp.store.waits import Waits, waits_of_job, waits_of_lease
from tests.lua.harness import Shard, completed, failed

pytestmark = pytest.mark.django_db

WAITED = {"schedule": 3.0, "backoff": 2.0, "limits": 0.5, "line": 0.04}


def parts(schedule: int, backoff: int, limits: int, line: int) -> Waits:
    return Waits(schedule_ms=schedule, backoff_ms=backoff, limits_ms=limits, line_ms=line)


@pytest.fixture
def job(shard: Shard) -> JobView:
    """One that waited for all there is."""
    (job_id,) = shard.add(shard.job(delay_ms=3_000, max_attempts=2))
    shard.now_ms += 3_010
    shard.store.promote_due()
    (leased,) = shard.lease()
    shard.now_ms += 10_000
    shard.store.fail([failed(leased, retry_ms=2_000)])
    shard.now_ms += 2_000
    shard.store.promote_due()
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", paused=True)])
    shard.now_ms += 500
    shard.store.configure(2, scopes=[ScopeLimits(tenant="acme", clear=True)])
    shard.now_ms += 30
    (leased,) = shard.lease()
    shard.store.complete([completed(leased)])
    found = find_job(shard.keys.public_id(job_id))
    assert found is not None
    return found


def test_a_job_tells_its_parts(job: JobView) -> None:
    assert job.waits == Waits(schedule_ms=3_000, backoff_ms=2_000, limits_ms=500, line_ms=40)
    record = job.record
    assert job.waits.total_ms == record.leased_ms - record.submitted_ms - 10_000
    assert as_mapping(job, payload=False)["waits_s"] == WAITED
    assert json.loads(ductor("job", job.id, "--json"))["waits_s"] == WAITED
    assert re.search(r"waited_for +schedule 3 s, backoff 2 s, limits 0.5 s, line 0.04 s\n", ductor("job", job.id))


def test_the_admin_names_those_that_are_not_nothing(job: JobView) -> None:
    told = "its time 3.0 s · backoff 2.0 s · its own limits 500 ms · in line 40 ms"
    assert dict(facts(job))["Waited for"] == told


def test_one_that_was_never_leased_tells_none(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    found = find_job(shard.keys.public_id(job_id))
    assert found is not None
    assert found.waits is None
    assert as_mapping(found, payload=False)["waits_s"] is None
    assert "waited_for" not in ductor("job", found.id)
    assert "Waited for" not in dict(facts(found))


def test_one_that_was_leased_at_once_waited_for_nothing(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    shard.lease()
    found = find_job(shard.keys.public_id(job_id))
    assert found is not None
    assert found.waits == Waits()
    assert "Waited for" not in dict(facts(found))


@pytest.mark.usefixtures("job")
def test_the_sums_of_a_tenant(shard: Shard) -> None:
    share = certificate("default", now_ms=shard.now_ms).of("acme")
    assert share is None or share.waits_s == WAITED  # it has no demand any more
    service = read_service(shard.client, shard.keys, window_s=300, tenants=["acme"], now_ms=shard.now_ms)
    found = certify("default", service, asked=["acme"])
    [told] = found.tenants
    assert (told.jobs, told.waits_s) == (2, WAITED)
    assert "own limits" in (shown := text(found, [told], 0))
    assert "0.2 s" in shown, "of each of the two leases"


def test_without_any_wait_the_table_has_no_columns_for_it(shard: Shard) -> None:
    shard.add(shard.job(), shard.job())
    shard.lease()
    found = certificate("default", now_ms=shard.now_ms)
    assert "own limits" not in text(found, list(found.tenants), 0)


@pytest.mark.parametrize(
    ("total_ms", "run", "want"),
    [
        (100, {}, Waits(line_ms=100)),
        (100, {"ws": "30", "wb": "20", "wl": "10", "wa": "5"}, parts(30, 20, 10, 35)),
        (100, {"ws": "30", "wl": "90"}, parts(30, 0, 70, 0)),
        (-5, {"ws": "30"}, Waits()),
        (10, {"wl": "-3"}, Waits(line_ms=10)),
    ],
)
def test_the_parts_of_a_job_add_up_whatever_its_clocks_did(total_ms: int, run: dict[str, str], want: Waits) -> None:
    assert waits_of_job(1_000, 1_000 + total_ms, run) == want


def test_the_parts_of_a_lease() -> None:
    assert waits_of_lease("", 1_000, 1_700) == Waits(line_ms=700)
    assert waits_of_lease("30|20|100", 1_000, 1_700) == parts(30, 20, 100, 600)
    assert waits_of_lease("0|0|900", 1_000, 1_700) == Waits(limits_ms=700)


def ductor(*arguments: str) -> str:
    out = StringIO()
    call_command("ductor", *arguments, stdout=out)
    return out.getvalue()
