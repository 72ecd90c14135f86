"""Pause and resume: by several at once, without a row, and with nothing else that stays."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import override_settings

from queueapp import sync
from queueapp.errors import InvalidOption
from queueapp.models import Pool, Tenant, TenantLimits
from queueapp.store import shards
from queueapp.store.configuration import ScopeLimits
from queueapp.sync import comparison, pausing
from tests.unit.sync.looking import scopes

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_url")]


@pytest.mark.parametrize("scope", [{}, {"tenant": "acme"}, {"tenant": "acme", "lane": "slow"}], ids=str)
def test_two_who_pause_at_once_are_both_answered(monkeypatch: pytest.MonkeyPatch, scope: dict[str, str]) -> None:
    """The other one is through between this one's look and its save."""
    check = pausing._check
    others: list[sync.Paused | None] = []

    def overtaken(row: Any) -> None:
        check(row)
        if not others:
            others.append(None)
            others.append(sync.pause("mail", **scope))

    monkeypatch.setattr(pausing, "_check", overtaken)
    mine = sync.pause("mail", **scope)
    [_, theirs] = others
    assert theirs is not None
    assert (mine.paused, mine.in_force, theirs.changed, mine.changed) == (True, True, True, False)
    assert (Pool.objects.count(), TenantLimits.objects.count()) == (1, 1 if scope else 0)


def test_a_tenant_that_was_paused_keeps_to_the_pool_s_default_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_turn", comparison.Turn())
    Pool.objects.create(name="mail", default_weight=7)
    sync.pause("mail", tenant="acme")
    assert scopes() == {("acme", ""): ScopeLimits(tenant="acme", weight=7, paused=True)}
    sync.resume("mail", tenant="acme")
    pool = Pool.objects.get()
    pool.default_weight = 3
    pool.save()
    comparison.repair()
    assert scopes() == {("acme", ""): ScopeLimits(tenant="acme", weight=3)}
    sync.pause("mail", tenant="acme", lane="slow")
    assert scopes()["acme", "slow"] == ScopeLimits(tenant="acme", lane="slow", weight=1, paused=True)


def test_a_pool_that_only_the_settings_pause_is_resumed() -> None:
    ours = {**django_settings.DUCTOR, "POOLS": {"mail": {"PAUSED": True}}}
    with override_settings(DUCTOR=ours):
        assert not sync.pause("mail").changed
        assert not Pool.objects.exists()
        found = sync.resume("mail")
        assert (found.changed, found.in_force) == (True, True)
        assert not Pool.objects.get(name="mail").paused
        assert not sync.resume("mail").changed


def test_a_resume_of_what_was_never_paused_makes_no_row() -> None:
    for scope in ({}, {"tenant": "acme"}, {"tenant": "acme", "lane": "slow"}):
        found = sync.resume("mail", **scope)
        assert (found.changed, found.in_force) == (False, True)
    assert [model.objects.count() for model in (Pool, Tenant, TenantLimits)] == [0, 0, 0]


@pytest.mark.parametrize("scope", [{"tenant": "no tenant"}, {"tenant": "acme", "lane": "no lane"}], ids=str)
def test_what_is_no_name_makes_no_row_at_all(scope: dict[str, str]) -> None:
    with pytest.raises(InvalidOption):
        sync.pause("mail", **scope)
    assert [model.objects.count() for model in (Pool, Tenant, TenantLimits)] == [0, 0, 0]


def test_it_is_logged_with_who_asked(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "queueapp.sync.pausing"):
        sync.pause("mail", tenant="acme", by="ann")
        sync.resume("mail", tenant="acme", by="bob")
    told: list[Any] = [record for record in caplog.records if record.name == "queueapp.sync.pausing"]
    assert [(one.getMessage(), one.pool, one.tenant, one.by, one.changed) for one in told] == [
        ("Paused", "mail", "acme", "ann", True),
        ("Resumed", "mail", "acme", "bob", True),
    ]
    assert not shards.reads("mail").is_paused("acme")
