"""`manage.py ductor why ID`: the sentence, its parts and when; JSON for programs; 1 for a job that is not there."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class

from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.ids import new_id
from tests.unit.inspection.conftest import Scene

pytestmark = pytest.mark.django_db


@pytest.fixture
def scene(store: Any, shard_keys: Any) -> Scene:
    return Scene(store, shard_keys)


def ductor(*arguments: str) -> str:
    out = io.StringIO()
    call_command("ductor", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_the_sentence_comes_first_then_who_holds_its_place_and_when(scene: Scene) -> None:
    scene.store.configure(1, scopes=[ScopeLimits(tenant="acme", max_in_flight=2)])
    *_, job_id = scene.add(3)
    first, second = (scene.keys.public_id(job.id) for job in scene.lease(2))
    lines = ductor("why", job_id).splitlines()
    assert lines[0] == f"Its tenant acme is at its ceiling: 2 of 2 running, held by {first}, {second}."
    assert lines[1].startswith("  - its tenant acme is at its ceiling")
    assert lines[2] == "    it is 1st in its lane"
    assert lines[3] == f"held by: {first} {second}"
    assert lines[-2].startswith("Starts about ") or lines[-2].startswith("When it starts is unknown: it depends on")
    assert lines[-1].startswith("as of 2")


def test_as_json(scene: Scene) -> None:
    scene.store.configure(1, pool=PoolConf(paused=True))
    [job_id] = scene.add()
    said = json.loads(ductor("why", job_id, "--json"))
    assert (said["id"], said["state"], said["sentence"]) == (
        job_id,
        "pending",
        "The pool default is paused; besides, no live worker serves the pool default, nor any other.",
    )
    assert [reason["kind"] for reason in said["reasons"]] == ["pool_paused", "no_worker", "turn"]
    assert said["estimate"]["of"] == "start"
    assert said["as_of"].startswith("2")


def test_a_dead_letter_says_what_to_do(scene: Scene) -> None:
    [job_id] = scene.kill()
    assert f"to do: manage.py ductor dlq retry {job_id}, or discard it" in ductor("why", job_id)


def test_a_job_that_is_not_there_ends_with_1(scene: Scene) -> None:
    for unknown in (scene.keys.public_id(new_id()), "no-id"):
        with pytest.raises(CommandError, match=r"No job '.*': the store knows no job of this id") as raised:
            ductor("why", unknown)
        assert raised.value.returncode == 1


def test_the_help_shows_how(capsys: pytest.CaptureFixture[str]) -> None:
    parser = load_command_class("queueapp", "ductor").create_parser("manage.py", "ductor")
    with pytest.raises(SystemExit):
        parser.parse_args(["why", "--help"])
    text = capsys.readouterr().out
    assert "examples:\n  manage.py ductor why 3gk2xw" in text
    assert "--json" in text
