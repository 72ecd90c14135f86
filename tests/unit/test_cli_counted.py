"""What the terminal acts on is counted first: more than that are asked about anew, fewer are what happens meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import CommandError

from queueapp.inspection.selection import Count
from queueapp.states import State
from queueapp.store.store import Store
from tests.lua.harness import Shard
from tests.unit.inspection.conftest import Scene
from tests.unit.test_cli_acting import ductor, states

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def scene(store: Store, shard_keys: Any) -> Scene:
    return Scene(store, shard_keys)


@pytest.fixture
def shard(store: Store, shard_keys: Any) -> Shard:
    """The same pool under a clock that the test moves."""
    return Shard(store.client, shard_keys)


def came_due(scene: Scene, shard: Shard) -> None:
    """What was scheduled is pending now."""
    shard.now_ms = scene.store.client.time()[0] * 1000 + 60_000
    shard.store.promote_due()


def test_more_than_were_counted_are_asked_for_anew(scene: Scene, shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, asked = [*scene.add(2), *scene.add(1, delay_ms=30_000)], []

    def answer(question: str) -> str:
        asked.append(question)
        if len(asked) == 1:
            came_due(scene, shard)
        return "y"

    monkeypatch.setattr("builtins.input", answer)
    assert ductor("cancel", "--state", "pending") == "3 cancelled."
    assert asked[1].startswith("3 jobs match now, more than the 2 of before; nothing was changed. Cancel these 3 of ")
    assert states(ids) == ["cancelled"] * 3


def test_fewer_than_were_counted_are_done_without_another_question(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, asked = scene.bury(3), []

    def answer(question: str) -> str:
        asked.append(question)
        scene.store.discard(scene.inner(ids[:1]))
        return "y"

    monkeypatch.setattr("builtins.input", answer)
    assert ductor("dlq", "discard", "--all") == "2 discarded."
    assert len(asked) == 1


def test_with_yes_more_than_were_counted_end_the_command(
    scene: Scene, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, browse = [*scene.add(2), *scene.add(1, delay_ms=30_000)], Store.browse
    calls: list[str] = []

    def later(self: Store, index: str, **how: Any) -> Any:
        calls.append(index)
        if len(calls) == 2:  # between the count and the recount
            came_due(scene, shard)
        return browse(self, index, **how)

    monkeypatch.setattr(Store, "browse", later)
    with pytest.raises(CommandError, match="3 jobs match now, more than the 2 of before; nothing was changed"):
        ductor("cancel", "--state", "pending", "--pool", "default", "--yes")
    assert states(ids) == ["pending"] * 3


def test_who_said_yes_to_at_least_so_many_said_yes_to_more(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queueapp.cli.acting.count", lambda _: Count(by_state={State.DEAD: 1}, exact=False))
    ids = scene.bury(3)
    assert ductor("dlq", "discard", "--all", "--pool", "default", "--yes") == "3 discarded."
    assert set(states(ids)) == {"discarded"}
