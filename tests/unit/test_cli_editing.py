"""`ductor dlq retry ID --args JSON --kwargs JSON`: shows what would change, asks, edits, retries."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from queueapp.cli import editing
from queueapp.cli.console import Console
from queueapp.inspection.masking import HIDDEN
from queueapp.models import DeadLetterInspection
from queueapp.store.records import Failed
from queueapp.store.store import Store
from tests.unit.inspection.conftest import Scene
from tests.unit.inspection.test_editing import dead, nightly, pay, payload, seen

pytestmark = pytest.mark.django_db


@pytest.fixture
def scene(store: Store, shard_keys: Any) -> Scene:
    return Scene(store, shard_keys)


def retry(*arguments: str) -> str:
    out = io.StringIO()
    call_command("ductor", "dlq", "retry", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue().strip()


def test_a_dry_run_shows_the_difference_and_changes_nothing(scene: Scene) -> None:
    job = dead(scene, pay, 7, amount=5, token="t0p")
    given = ("--kwargs", f'{{"amount": 6, "token": "{HIDDEN}", "card": "\u009b31m"}}', "--args", "[8]")
    shown = retry(job.id, *given, "--dry-run").splitlines()
    assert shown == [
        f"{pay.module_path} of acme, {job.id}:",
        "  args[0]: 7 → 8",
        "  kwargs.amount: 5 → 6",
        '  kwargs.card: nothing → "\N{REPLACEMENT CHARACTER}31m"',
        "Would edit and retry it. Nothing was changed.",
    ]
    assert payload(job)[:2] == ([7], {"amount": 5, "token": "t0p"})
    assert seen(job.id).state == "dead"


def test_it_is_edited_and_retried_and_both_are_written_down(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Console, "user", "eve")
    job = dead(scene, pay, 7, token="t0p")
    said = retry(job.id, "--kwargs", f'{{"amount": 6, "token": "{HIDDEN}"}}', "--yes", "--note", "typo")
    assert said == "Edited (kwargs.amount); 1 retried."
    assert payload(job)[:2] == ([7], {"amount": 6, "token": "t0p"})
    assert seen(job.id).state == "pending"
    rows = [(row.action, row.by, row.note) for row in DeadLetterInspection.objects.order_by("id")]
    assert rows == [("edited", "eve", "edited: kwargs.amount; typo"), ("retried", "eve", "typo")]


@pytest.mark.parametrize("answer", ["n", "y"])
def test_it_asks_once_the_difference_is_on_the_terminal(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    job = dead(scene, pay, 7)
    asked: list[str] = []

    def typed(question: str) -> str:
        asked.append(question)
        return answer

    monkeypatch.setattr("builtins.input", typed)
    said = retry(job.id, "--args", "[8]")
    assert asked == ["Edit and retry it? [y/N] "]
    assert "  args[0]: 7 → 8" in said
    assert said.splitlines()[-1] == ("Nothing was changed." if answer == "n" else "Edited (args[0]); 1 retried.")
    assert seen(job.id).state == ("dead" if answer == "n" else "pending")


def test_nobody_to_ask_changes_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    job = dead(scene, pay, 7)

    def nobody(question: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", nobody)
    with pytest.raises(CommandError, match="say --yes"):
        retry(job.id, "--args", "[8]")
    assert payload(job)[0] == [7]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("--args", "8"), "--args must be a list"),
        (("--args", "[8"), "--args is no JSON"),
        (("--kwargs", "[8]"), "--kwargs must be a mapping"),
        (("--kwargs", '{"amount": 1, "amount": 2}'), "a name stands there twice"),
        (("--kwargs", '{"amount": NaN}'), "JSON has no nan"),
        (("--args", "[" * 100_000 + "]" * 100_000), "--args is no JSON"),
        (("--args", "[7, 1]", "--tenant", "acme"), "--tenant exclude each other"),
        (("--args", "[7]"), "has these arguments already"),
        (("--args", "[]"), "do not fit"),
        (("--kwargs", f'{{"card": "{HIDDEN}"}}'), "write the value"),
    ],
    ids=range(10),
)
def test_what_is_wrong_is_told_and_changes_nothing(scene: Scene, given: tuple[str, ...], why: str) -> None:
    job = dead(scene, pay, 7)
    with pytest.raises(CommandError, match=why):
        retry(job.id, *given, "--yes")
    assert (payload(job)[:2], seen(job.id).state) == (([7], {}), "dead")


def test_it_is_about_one_dead_letter(scene: Scene) -> None:
    one, other = dead(scene, pay, 7), dead(scene, pay, 7)
    for ids in ((), (one.id, other.id)):
        with pytest.raises(CommandError, match="about one dead letter"):
            retry(*ids, "--args", "[8]", "--yes")
    with pytest.raises(CommandError, match="No job is called 'nobody'"):
        retry("nobody", "--args", "[8]", "--yes")


def test_a_retry_that_is_refused_is_no_success(scene: Scene) -> None:
    job = dead(scene, nightly, "mo")
    nightly.using(tenant="acme", on_commit=False).enqueue("mo")
    with pytest.raises(CommandError, match=r"Edited \(args\); 1 skipped.* It keeps its new arguments"):
        retry(job.id, "--args", '["mo", 2]', "--yes")


def test_what_a_run_saved_goes_and_that_is_said(scene: Scene) -> None:
    job_id = pay.using(tenant="acme", on_commit=False).enqueue(7).id
    (leased,) = scene.lease()
    scene.store.save(leased.id, 1, {"checkpoint": b"1"})
    scene.store.fail([Failed(id=leased.id, attempts=1, run_ms=1, error=b"{}")])
    assert "it begins anew" in retry(job_id, "--args", "[8]", "--dry-run")


def test_the_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call_command("ductor", "dlq", "retry", "--help")
    shown = capsys.readouterr().out
    assert "--kwargs '{\"amount\": 5}' --dry-run" in shown
    assert editing.EXAMPLES.splitlines()[2] in shown
