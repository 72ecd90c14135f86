"""Whatever an operator does to many jobs, or to a pool, stands in the log: who asked, for what, and what came of it,
from whichever surface, and also where it was ended in the middle."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from queueapp.cli.console import Console
from queueapp.errors import StillRunning
from queueapp.inspection.bulk import cancel_many, discard_many, move_many, retry_many
from queueapp.inspection.draining import drain
from queueapp.inspection.erasure import erase
from queueapp.inspection.obliteration import obliterate
from queueapp.inspection.selection import WAITING
from queueapp.store import shards
from queueapp.store.store import Store
from tests.unit.inspection.conftest import Scene
from tests.unit.inspection.selecting import FAST, dead, live

pytestmark = pytest.mark.django_db(transaction=True)

OPERATE = "/admin/queueapp/operations/default/operate/"


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], list[Any]]:
    caplog.set_level(logging.INFO, "queueapp")
    words = ("jobs", "Retried", "Discarded", "Paused", "Resumed", "bliterated", "rained", "Erased")

    def lines() -> list[Any]:
        found = [one for one in caplog.records if any(word in one.getMessage() for word in words)]
        caplog.clear()
        return found

    return lines


def test_a_bulk_says_who_what_where_and_how_many(scene: Scene, logged: Callable[[], list[Any]]) -> None:
    scene.bury(3)
    scene.add(2, tenant="globex")
    retry_many(dead(tenant="acme"), by="ann", note="again", redrive=FAST)
    [line] = logged()
    assert (line.getMessage(), line.levelname) == ("Retried dead letters: 3 retried.", "INFO")
    assert (line.by, line.note, line.pool, line.counts) == ("ann", "again", "default", {"retried": 3})
    assert line.filter.startswith("state=dead tenant=acme as_of_ms=")
    shards.store("other")
    move_many(live(*WAITING, tenant="globex"), to="other", by="bob")
    [line] = logged()
    assert (line.getMessage(), line.to, line.by) == ("Moved jobs: 2 moved.", "other", "bob")
    ids = scene.add(2)
    cancel_many(ids, by="bob")
    [line] = logged()
    assert (line.ids, line.counts, line.by) == (2, {"cancelled": 2}, "bob")


def test_what_was_ended_in_the_middle_is_told_with_what_was_done(
    scene: Scene, logged: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.bury(300)
    discard, calls = Store.discard, []

    def interrupted(self: Store, inner: Sequence[str]) -> list[str]:
        calls.append(inner)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return discard(self, inner)

    monkeypatch.setattr(Store, "discard", interrupted)
    with pytest.raises(KeyboardInterrupt):
        discard_many(dead(), by="ann")
    [line] = logged()
    assert line.getMessage() == "Discarded dead letters: 250 discarded. Ended by KeyboardInterrupt."
    assert line.counts == {"discarded": 250}


def test_drain_obliterate_and_erase_are_told(scene: Scene, logged: Callable[[], list[Any]]) -> None:
    scene.add(2)
    drain("default", by="ann")
    paused, drained = logged()
    assert (paused.getMessage(), paused.by) == ("Paused", "ann")
    assert (drained.getMessage(), drained.by, drained.pool) == ("Drained", "ann", "default")
    assert drained.counts == {"running": 0, "waiting": 2}
    erase("acme", by="bob")
    [line] = [one for one in logged() if "Erased" in one.getMessage()]
    assert (line.getMessage(), line.tenant, line.by) == ("Erased a tenant's work", "acme", "bob")
    assert line.counts["pool default"] == 2
    scene.add(1, tenant="globex")
    obliterate("default", by="bob", force=True)
    [line] = logged()
    assert (line.getMessage(), line.pool, line.by, line.counts["jobs"]) == ("Obliterated", "default", "bob", 1)


def test_an_obliteration_that_was_refused_is_told(scene: Scene, logged: Callable[[], list[Any]]) -> None:
    scene.add(1)
    scene.lease()
    with pytest.raises(StillRunning):
        obliterate("default", by="ann")
    [line] = logged()
    assert (line.getMessage(), line.by, line.counts["jobs"]) == ("Not obliterated", "ann", 0)


def test_each_surface_says_who_asked(
    scene: Scene, logged: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch, admin_client: Client
) -> None:
    """The terminal who sits there, the admin who is signed in; REST in tests/unit/api/test_operating.py."""
    monkeypatch.setattr(Console, "user", "kim")
    scene.add(1)
    for arguments in (["pause"], ["resume"], ["drain"], ["obliterate", "--yes-delete", "default"]):
        call_command("ductor", arguments[0], "default", *arguments[1:], stdout=io.StringIO(), stderr=io.StringIO())
    call_command("ductor", "erase", "acme", "--yes-erase", "acme", stdout=io.StringIO(), stderr=io.StringIO())
    terminal = logged()
    assert {one.by for one in terminal} == {"kim"}
    assert [one.getMessage().split()[0] for one in terminal] == [
        *("Paused", "Resumed", "Paused", "Drained", "Obliterated", "Erased"),
    ]
    for verb in ("resume", "pause", "drain", "obliterate"):
        admin_client.post(OPERATE, {"verb": verb, "confirmed": "yes", "typed": "default"})
    admin = logged()
    assert {one.by for one in admin} == {"admin"}
    assert [one.getMessage() for one in admin] == ["Resumed", "Paused", "Paused", "Obliterated"]
