"""`ductor sync`: everything that differs is brought into force at once, or only shown."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from queueapp.models import Pool, Tenant, TenantLimits
from queueapp.store import shards
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import NewJob
from queueapp.sync import comparison, enforcement, intent
from tests.unit.sync.looking import scopes

pytestmark = pytest.mark.django_db


def ductor(*arguments: str) -> str:
    out = io.StringIO()
    call_command("ductor", "sync", *arguments, stdout=out)
    return out.getvalue()


@pytest.fixture
def changed(redis_url: str, pool: Pool, tenant: Tenant) -> None:
    """Rows that no signal has told of, and limits in force that no row asks for."""
    intent.write("mail", intent.versions.next(), PoolConf(), [ScopeLimits(tenant="gone", weight=3)])
    Pool.objects.update(paused=True, max_in_flight=4)
    rows = [TenantLimits(pool=pool, tenant=tenant, weight=5), TenantLimits(pool=pool, tenant=tenant, lane="bulk")]
    TenantLimits.objects.bulk_create(rows)


def test_what_differs_is_brought_into_force_and_named(changed: None) -> None:
    said = ductor("mail")
    assert said.splitlines() == [
        "mail: 4 records brought into force",
        "  pool settings: paused False, max_in_flight - → paused True, max_in_flight 4",
        "  acme: defaults → weight 5.0, max_in_flight -, min_share 0, paused False",
        "  acme / bulk: defaults → weight 1.0, max_in_flight -, min_share 0, paused False",
        "  gone: weight 3.0, max_in_flight -, min_share 0, paused False → defaults",
    ]
    assert shards.reads("mail").configured() == PoolConf(paused=True, max_in_flight=4)
    assert set(scopes()) == {("acme", ""), ("acme", "bulk")}
    assert ductor("mail") == "mail: as the rows say\n"


def test_a_dry_run_changes_nothing(changed: None) -> None:
    assert "mail: 4 records not as the rows say (nothing was changed)" in ductor("mail", "--dry-run")
    assert shards.reads("mail").configured() == PoolConf()
    assert set(scopes()) == {("gone", "")}


def test_json(changed: None) -> None:
    [found] = json.loads(ductor("mail", "--json"))
    assert (found["pool"], found["dry_run"], found["policy_waits"]) == ("mail", False, False)
    assert found["differences"][1] == {
        "tenant": "acme",
        "lane": "",
        "key": "",
        "in_force": {},
        "wanted": {"weight": 5.0, "max_in_flight": None, "min_share": 0, "paused": False},
    }


def test_without_names_every_pool(changed: None) -> None:
    Pool.objects.create(name="post", paused=True)
    said = ductor()
    assert {line.split(":")[0] for line in said.splitlines() if not line.startswith(" ")} == {"default", "mail", "post"}
    assert shards.reads("post").configured().paused


def test_an_unknown_pool_is_refused(redis_url: str) -> None:
    with pytest.raises(CommandError, match="'nowhere' is not a known pool"):
        ductor("nowhere")


def test_many_differences_in_pages_and_the_text_stays_short(
    redis_url: str, pool: Pool, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enforcement, "PAGE", 20)
    intent.write("mail", intent.versions.next(), None, [ScopeLimits(tenant=f"x{n}", weight=2) for n in range(30)])
    TenantLimits.objects.bulk_create(
        [TenantLimits(pool=pool, tenant=tenant, lane=f"l{n}", weight=2) for n in range(50)]
    )
    said = ductor("mail")
    assert "mail: 80 records brought into force" in said
    assert "  … and 60 more; --json has all" in said
    assert set(scopes()) == {("acme", f"l{n}") for n in range(50)}


def test_a_policy_that_has_to_wait_is_said(redis_url: str, pool: Pool) -> None:
    job = NewJob(id="0" * 22, task="t", tenant="acme", payload=b"{}", fingerprint="0" * 16)
    shards.store("mail").enqueue([job])
    Pool.objects.update(policy="fifo")
    assert "The policy changes" not in ductor("mail")
    Pool.objects.update(policy="ring", paused=True)
    assert "The policy changes once the change before it is through" in ductor("mail")
    assert shards.reads("mail").configured() == PoolConf(policy="fifo", paused=True)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_policy_that_is_none_holds_back_nothing_else(redis_url: str, pool: Pool, dry_run: bool) -> None:
    Pool.objects.update(policy="gone", dispatch="scheduled", paused=True)
    Pool.objects.create(name="zulu")
    Pool.objects.update(paused=True)
    with pytest.raises(CommandError, match="'gone' of the pool 'mail' is none"):
        ductor("mail", "zulu", *["--dry-run"] * dry_run)
    for name in ("mail", "zulu"):
        assert shards.reads(name).configured().paused is not dry_run


def test_somebody_who_saves_meanwhile_does_not_stop_it(changed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    overtaken = 0

    def write(*arguments: Any) -> bool:
        nonlocal overtaken
        if not overtaken:
            overtaken += 1
            intent.write("mail", intent.versions.next(), PoolConf(), [])
        return intent.write(*arguments)

    monkeypatch.setattr(comparison, "write", write)
    ductor("mail")
    assert overtaken
    assert shards.reads("mail").configured() == PoolConf(paused=True, max_in_flight=4)
