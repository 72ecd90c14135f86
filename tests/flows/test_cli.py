"""`manage.py ductor flow`, `flows` and `start-flow`: what they show of a run, what they do to it, what they refuse."""

from __future__ import annotations

import importlib
import io
import json
import logging
import re
import shlex
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from flows import flow, map_step, models, step, wait_for
from flows.handle import RunHandle
from queueapp import extensions, task
from queueapp.inspection.jobs import find_job
from queueapp.management.commands.ductor import Command
from tests.flows import host
from tests.working import work

pytestmark = pytest.mark.django_db(transaction=True)


@task(max_attempts=1, sensitive=["card"])
def pay(card: str, amount: int) -> dict[str, Any]:
    if amount > 100:
        raise ValueError(f"the card {card} was refused")
    return {"paid": amount, "token": "t0ps3cret"}


@task(max_attempts=1, sensitive=True)
def whisper(text: str) -> str:
    return text


@flow(name="cli_order")
def order(card: str, amount: int, text: str = "psst") -> object:
    paid = step(pay, card, amount)
    step(whisper, text, after=paid)
    approved = wait_for("approved", after=paid)
    return step(host.add, paid["paid"], approved["more"])


@flow(name="cli_squares")
def squares(count: int) -> object:
    return map_step(host.double, step(host.numbers, count))


@flow(name="cli_outer")
def outer(card: str) -> object:
    return step(order, card, 1, name="inner")


@pytest.fixture(autouse=True)
def _fresh(redis_url: str) -> None:
    host.RAN.clear()
    host.FAIL.clear()


def ductor(*arguments: str) -> str:
    out = io.StringIO()
    call_command("ductor", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def as_json(*arguments: str) -> Any:
    return json.loads(ductor(*arguments, "--json"))


def begun(amount: int = 5) -> RunHandle:
    """A run of `order` that waits for its event, or has failed."""
    run: RunHandle = order.using(tenant="acme").start("4111-1111", amount)
    work(slots=2)
    return run


# -- looking -----------------------------------------------------------------------------------------------------------


def test_a_run_says_of_each_step_how_it_stands() -> None:
    run = begun()
    text = ductor("flow", run.id)
    assert re.search(r"^state +running$", text, re.M)
    assert re.search(r"^pay +completed +1 +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +\d\.\d\d s$", text, re.M)
    assert re.search(r"^approved +running .* waits for the event 'approved'$", text, re.M)
    assert re.search(r"^add +waiting +0$", text, re.M)
    facts = as_json("flow", run.id)
    assert [each["step"] for each in facts["steps"]] == ["pay", "whisper", "approved", "add"]
    assert (facts["tenant"], facts["flow"], facts["state"], facts["took_s"]) == ("acme", "cli_order", "running", None)
    assert facts["steps"][3]["after"] == ["pay", "approved"]


def test_a_step_with_the_queue_leads_to_its_job() -> None:
    run = order.start("4111", 5)
    [pay_step, *_] = as_json("flow", run.id)["steps"]
    job = find_job(pay_step["job"])
    assert job is not None
    assert job.record.task == f"{__name__}.pay"
    assert f"job {pay_step['job']}" in ductor("flow", run.id)


def test_it_is_drawn_in_plain_characters() -> None:
    run = begun()
    text = ductor("flow", run.id, "--ascii")
    drawn = [line.rstrip() for line in text.partition("\n\n")[2].splitlines()]
    assert [re.sub(r"\d\.\d\d s", "S", line) for line in drawn] == [
        "*      pay: completed, S",
        "+-.-.",
        "* | |  whisper: completed, S",
        "  | |",
        "  > |  approved: running, S, waits for the event 'approved'",
        "  '-+",
        "    o  add: waiting",
    ]
    assert text.isascii()


def test_contents_show_only_when_asked_for_and_never_what_is_secret() -> None:
    run = begun(500)
    assert run.refresh().state == "failed"
    for shown in (ductor("flow", run.id), json.dumps(as_json("flow", run.id))):
        assert "ValueError" in shown
        assert "refused" not in shown, "an error's message may quote an argument"
        assert "4111" not in shown
        assert "psst" not in shown
    facts = as_json("flow", run.id)
    assert not {"input", "output"} & {*facts, *facts["steps"][0]}
    facts = as_json("flow", run.id, "--contents")
    assert facts["input"] == {"card": "********", "amount": 500, "text": "********"}
    assert "was refused" in facts["steps"][0]["error"]


def test_outputs_are_masked_too() -> None:
    run = begun()
    run.send_event("approved", {"more": 1, "password": "hunter2"})
    work()
    text = ductor("flow", run.id, "--contents")
    facts = as_json("flow", run.id, "--contents")
    assert (facts["output"], facts["events"][0]["payload"]) == (6, {"more": 1, "password": "********"})
    outputs = {each["step"]: each.get("output") for each in facts["steps"]}
    assert (outputs["pay"], outputs["whisper"]) == ({"paid": 5, "token": "********"}, "********")
    for secret in ("hunter2", "t0ps3cret", "psst", "4111-1111"):
        assert secret not in text + json.dumps(facts)


def test_a_map_counts_its_items_and_a_step_that_runs_a_flow_names_its_run() -> None:
    host.FAIL.add("double")
    failed = squares.start(3)
    work(slots=2)
    assert re.search(r"\d of 3 items, \d failed; item \d: ValueError", ductor("flow", failed.id))
    run = outer.start("4111")
    work(slots=2)
    sub = models.Run.objects.get(parent_run=run.id)
    assert f"run {sub.id}" in ductor("flow", run.id)
    assert as_json("flow", sub.id)["parent"] == {"run": run.id, "step": "inner", "index": None}
    assert f"step inner of run {run.id}" in ductor("flow", sub.id)


def test_what_was_undone_stands_beneath() -> None:
    @flow(name="cli_undone", on_failure="compensate")
    def undone(number: int) -> object:
        first = step(host.add, number, 1, undo=host.undo, name="first")
        return step(host.add, first, 1, name="second")

    host.FAIL.add("second")
    run = undone.start(1)
    work(slots=2)
    lines = ductor("flow", run.id, "--ascii").splitlines()
    assert lines[-1].startswith("*  undo:first: completed")
    assert re.search(r"^undo:first +completed", ductor("flow", run.id), re.M)


def test_a_run_whose_definition_is_gone_still_shows() -> None:
    run = begun()
    models.Run.objects.filter(pk=run.id).update(definition="000000000000")
    assert [each["step"] for each in as_json("flow", run.id, "--contents")["steps"]] == ["pay", "whisper", "approved"]
    assert "approved" in ductor("flow", run.id, "--ascii")


# -- lists -------------------------------------------------------------------------------------------------------------


def test_lists_by_each_condition_the_newest_first() -> None:
    assert ductor("flows").strip() == "No runs."
    first, second = begun(), begun(500)
    other = host.chain.using(tenant="zeta").start(1)
    assert [each["id"] for each in as_json("flows")["runs"]] == [other.id, second.id, first.id]
    for option, value, expected in (
        ("--state", "failed", [second.id]),
        ("--flow", "chain", [other.id]),
        ("--tenant", "acme", [second.id, first.id]),
    ):
        assert [each["id"] for each in as_json("flows", option, value)["runs"]] == expected, option
    assert re.search(rf"^{second.id} +cli_order +acme +failed .* pay$", ductor("flows"), re.M)


def test_a_list_goes_on_where_it_stopped_also_between_runs_of_one_moment() -> None:
    runs = [host.chain.start(number).id for number in range(5)]
    models.Run.objects.update(started_ms=1_000)
    seen: list[str] = []
    pages = [as_json("flows", "--count", "2")]
    for _ in range(2):
        pages.append(as_json("flows", "--count", "2", f"--cursor={pages[-1]['next_cursor']}"))
    for page in pages:
        seen += [each["id"] for each in page["runs"]]
    assert sorted(seen) == sorted(runs)
    assert pages[-1]["next_cursor"] is None
    assert "There are more; go on with --cursor=" in ductor("flows", "--count", "2")
    with pytest.raises(CommandError, match="--cursor is 'x'"):
        ductor("flows", "--cursor", "x")


# -- acting ------------------------------------------------------------------------------------------------------------


def test_nothing_is_done_without_a_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    run = begun()
    asked: list[str] = []

    def no(question: str) -> str:
        asked.append(question)
        return "n"

    monkeypatch.setattr("builtins.input", no)
    for act in (["--cancel"], ["--resume"], ["--retry", "pay"], ["--event", "approved"]):
        assert ductor("flow", run.id, *act).strip() == "Nothing was changed."
    assert len(asked) == 4
    assert "of the tenant acme, is running: cancel it? [y/N]" in asked[0]
    assert (run.refresh().state, models.Event.objects.count()) == ("running", 0)


def test_cancel_says_why_and_is_written_down(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "kim")
    monkeypatch.setattr("builtins.input", lambda question: "y")
    run = begun()
    with caplog.at_level(logging.INFO, logger="flows"):
        assert ductor("flow", run.id, "--cancel", "--note", "wrong file").strip() == "Cancelled. It is cancelled."
    [record] = [each for each in caplog.records if each.name == "flows.cli.flow"]
    assert (vars(record)["by"], vars(record)["run"]) == ("kim", run.id)
    assert "wrong file" in ductor("flow", run.id)
    assert ductor("flow", run.id, "--cancel", "--yes").strip() == "It had ended already."


def test_resume_and_retry_run_what_failed() -> None:
    host.FAIL.add("second")
    runs = [host.chain.start(1), host.chain.start(2)]
    work(slots=2)
    host.FAIL.clear()
    assert as_json("flow", runs[0].id, "--resume", "--yes") == {"run": runs[0].id, "acted": True, "state": "running"}
    assert ductor("flow", runs[1].id, "--retry", "second", "--yes").strip() == "It runs again. It is running."
    work(slots=2)
    assert [run.refresh().state for run in runs] == ["completed", "completed"]


def test_an_event_goes_to_who_waits_for_it() -> None:
    run = begun()
    sent = ("flow", run.id, "--event", "approved", "--payload", '{"more": 2}', "--event-id", "e1", "--yes")
    assert ductor(*sent).strip() == "Sent. It is running."
    assert ductor(*sent).strip() == "It was sent before."
    work()
    assert run.refresh().output == 7


def test_what_cannot_be_done_is_refused_in_a_line_and_changes_nothing() -> None:
    run = begun()
    for arguments, said in (
        (["rNoSuchRun0123456789ab"], "There is no run 'rNoSuchRun0123456789ab'"),
        ([run.id, "--resume", "--yes"], "is running: only a run that failed"),
        ([run.id, "--retry", "nothing", "--yes"], "has no step 'nothing'; its steps: pay"),
        ([run.id, "--event", "approved", "--payload", "{", "--yes"], "--payload is no JSON"),
        ([run.id, "--payload", "1"], "--payload belongs to --event"),
        ([run.id, "--note", "x", "--resume"], "--note belongs to --cancel"),
        ([run.id, "--cancel", "--resume"], "not allowed with argument --cancel"),
    ):
        with pytest.raises(CommandError, match=re.escape(said)):
            ductor("flow", *arguments)
    assert run.refresh().row.lock == models.Run.objects.get(pk=run.id).lock
    assert run.state == "running"


def test_an_id_is_no_option() -> None:
    """A terminal takes what begins with a dash for an option; ids of jobs stand behind the code of their pool."""
    assert re.fullmatch(r"r[\w-]{21}", begun().id)


# -- starting ----------------------------------------------------------------------------------------------------------


def test_a_run_starts_with_arguments_by_place_or_by_name() -> None:
    said = ductor("start-flow", "chain", "--input", "[5]", "--tenant", "acme", "--key", "a")
    facts = as_json("start-flow", "chain", "--input", '{"number": 5}', "--tenant", "acme", "--key", "a")
    assert said == f"Run {facts['id']} of chain is running.\n"
    again = ductor("start-flow", "chain", "--input", "[5]", "--tenant", "acme", "--key", "a")
    assert again == f"Run {facts['id']} of chain is there already, and running.\n"
    assert (models.Run.objects.get().tenant, models.Run.objects.get().input) == ("acme", {"number": 5})
    assert "output" not in facts


def test_the_end_of_a_run_is_waited_for_and_told_by_the_exit_code() -> None:
    ductor("start-flow", "chain", "--input", "[5]", "--key", "a")
    with pytest.raises(CommandError, match="has not ended within 0 s"):
        ductor("start-flow", "chain", "--input", "[5]", "--key", "a", "--wait", "0")
    work(slots=2)
    assert "completed" in ductor("start-flow", "chain", "--input", "[5]", "--key", "a", "--wait", "0", "--contents")
    host.FAIL.add("second")
    ductor("start-flow", "chain", "--input", "[6]", "--key", "b")
    work(slots=2)
    with pytest.raises(CommandError, match="is failed, by its step second: ValueError"):
        ductor("start-flow", "chain", "--input", "[6]", "--key", "b", "--wait", "0")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "No flow 'nowhere' is declared here"),
        (["chain", "--input", "{"], "--input is no JSON"),
        (["chain", "--input", "5"], "--input is 5: it must be a list of arguments, or an object"),
        (["chain", "--input", "[1, 2]"], "flow chain was given 2 arguments; it takes number"),
        (["chain", "--input", "[1]", "--tenant", "a b"], "'a b'"),
    ],
)
def test_what_is_no_start_is_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=re.escape(said)):
        ductor("start-flow", *arguments)
    assert not models.Run.objects.exists()


# -- help --------------------------------------------------------------------------------------------------------------


def test_the_examples_of_the_help_are_commands() -> None:
    parser = Command().create_parser("manage.py", "ductor")
    shown = 0
    for verb, path in extensions.verbs.items():
        for line in importlib.import_module(path).EXAMPLES.splitlines():
            if "{command}" in line:
                words = shlex.split(re.split(r" {3,}", line.strip())[0].removeprefix("{command}"))
                assert parser.parse_args([verb, *words]).verb == verb
                shown += 1
    assert shown == 13
