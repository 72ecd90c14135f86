"""The terminal: status, one job, dead letters; clear refusals; nothing secret, no control characters in the output."""

from __future__ import annotations

import io
import json
import logging
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class

from queueapp.cli import logs, startup
from queueapp.cli.command import DuctorCommand
from queueapp.cli.table import printable, table
from queueapp.codec import encode_arguments
from queueapp.store.configuration import PoolConf
from queueapp.store.ids import new_id
from queueapp.store.keys import ShardKeys
from queueapp.store.records import Completed, Failed, LeasedJob, NewJob
from queueapp.store.store import Store

pytestmark = pytest.mark.django_db

NOBODY = "aaaaaa.0.0000000000000000000000"


def ductor(*arguments: str) -> str:
    out = io.StringIO()
    call_command("ductor", *arguments, stdout=out)
    return out.getvalue()


def parsers(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    """The parser and those of its verbs."""
    yield parser
    for action in parser._actions:
        for verb in (action.choices or {}).values() if isinstance(action, _SubParsersAction) else ():
            yield from parsers(verb)


@pytest.mark.parametrize("command", ["worker", "scheduler", "stack", "bench", "ductor"])
def test_every_command_has_examples_and_every_option_says_what_it_does(command: str) -> None:
    top = load_command_class("queueapp", command).create_parser("manage.py", command)

    assert f"examples:\n  manage.py {command}" in top.format_help()
    silent = [
        f"{parser.prog} {action.metavar or action.dest}"
        for parser in parsers(top)
        for action in parser._actions
        if not action.help and not isinstance(action, _SubParsersAction)
    ]
    assert silent == []


def add(store: Store, number: int = 1, *, task: str = "shop.tasks.pay", **values: Any) -> list[str]:
    """Waiting jobs; their inner ids."""
    fields = {"tenant": "acme", "payload": encode_arguments([1], {"password": "hunter2", "rows": 3}), **values}
    batch = [NewJob(id=new_id(), task=task, fingerprint="f" * 16, **fields) for _ in range(number)]
    store.enqueue(batch)
    return [job.id for job in batch]


calls = count(1)


def lease(store: Store) -> Sequence[LeasedJob]:
    """Whatever waits."""
    return store.check_and_lease("w.1", next(calls), want=100, begin=100, lease_ms=30_000).jobs


def kill(store: Store, number: int = 1, **values: Any) -> list[str]:
    """Dead letters; their inner ids."""
    ids = add(store, number, **values)
    error = json.dumps(
        {"class": "builtins.ValueError", "message": "bad \x1b[31mrow", "traceback": "Traceback\n  line 1"}
    )
    store.fail([Failed(id=job.id, attempts=job.attempts, run_ms=1, error=error.encode()) for job in lease(store)])
    return ids


def test_status(store: Store) -> None:
    add(store, 3)
    add(store, 2, tenant="zeta")
    text = ductor("status")
    assert "default" in text
    assert "No worker serves this pool" in text
    found = json.loads(ductor("status", "default", "--json"))
    assert found[0]["waiting"] == 5
    assert found[0]["tenants"] == {"acme": 3, "zeta": 2}


@pytest.mark.parametrize(
    ("conf", "rule"),
    [
        (PoolConf(policy="edf", by="latest_start"), "edf by latest_start"),
        (PoolConf(policy="aging", step_ms=1_500, paused=True), "aging 1.5 s a step (paused)"),
        (PoolConf(policy="wfq", by="latest_start"), "wfq "),
    ],
    ids=lambda value: getattr(value, "policy", ""),
)
def test_status_tells_the_policy_with_its_parameter(store: Store, conf: PoolConf, rule: str) -> None:
    store.configure(1, pool=conf)
    assert f" {rule}" in ductor("status")
    add(store, 1)
    assert f"default ({conf.rule}), last " in ductor("tenants")
    [found] = json.loads(ductor("status", "default", "--json"))
    assert (found["policy"], found["edf_by"], found["aging_step_ms"]) == (conf.policy, conf.by, conf.step_ms)


def test_status_tells_what_waits_for_a_leader(store: Store) -> None:
    assert "in ingress" not in ductor("status")
    store.configure(1, pool=PoolConf(policy="lottery", dispatch="scheduled", window=7))
    said = ductor("status")
    assert " lottery, scheduled" in said
    assert "default: 0 in ingress, 0 ready, window 7" in said
    assert "default: No leader: nothing is dispatched." in said
    [found] = json.loads(ductor("status", "default", "--json"))
    assert (found["dispatch"], found["window"], found["ingress"], found["ready"]) == ("scheduled", 7, 0, 0)


def test_status_tells_a_forgotten_tenant(store: Store) -> None:
    add(store, 120, tenant="default")
    assert "Nearly all of this work belongs to the tenant 'default'" in ductor("status")


def test_status_of_an_unknown_pool() -> None:
    with pytest.raises(CommandError, match="'nowhere' is not a known pool; known: default"):
        ductor("status", "nowhere")


def test_job(store: Store, shard_keys: ShardKeys) -> None:
    [job_id] = kill(store)
    public = shard_keys.public_id(job_id)
    text = ductor("job", public)
    assert "shop.tasks.pay" in text
    assert "ValueError" in text
    assert "hunter2" not in text
    assert "rows" not in text, "arguments are shown only when asked for"
    text = ductor("job", public, "--payload")
    assert "rows" in text
    assert "hunter2" not in text
    assert "\x1b" not in text
    found = json.loads(ductor("job", public, "--json", "--payload"))
    assert found["kwargs"] == {"password": "********", "rows": 3}
    assert (found["state"], found["reason"]) == ("dead", "error")


def test_job_shows_results_masked(store: Store, shard_keys: ShardKeys) -> None:
    [job_id] = add(store)
    [job] = lease(store)
    store.complete([Completed(id=job.id, attempts=1, run_ms=5, result=b'{"total": 3, "api_token": "t0k3n"}')])
    text = ductor("job", shard_keys.public_id(job_id), "--payload", "--json")
    assert json.loads(text)["result"] == {"total": 3, "api_token": "********"}


@pytest.mark.parametrize("job_id", [NOBODY, "nonsense", ""])
def test_a_job_that_is_none(store: Store, job_id: str) -> None:
    with pytest.raises(CommandError, match="No job"):
        ductor("job", job_id)


def test_dlq_list_and_show(store: Store, shard_keys: ShardKeys) -> None:
    assert ductor("dlq", "list").strip() == "No dead letters."
    ids = kill(store, 3)
    text = ductor("dlq", "list", "--count", "2")
    assert "2 of 3; go on with --offset 2" in text
    assert len(json.loads(ductor("dlq", "list", "--json"))[0]["letters"]) == 3
    assert "Traceback" in ductor("dlq", "show", shard_keys.public_id(ids[0]), "--payload")


def test_dlq_retry_and_discard_by_id(store: Store, shard_keys: ShardKeys) -> None:
    first, second = (shard_keys.public_id(job_id) for job_id in kill(store, 2))
    assert ductor("dlq", "retry", first, NOBODY, "--yes").strip() == "1 retried, 1 skipped: no such job."
    assert ductor("dlq", "discard", second, "--yes").strip() == "1 discarded."
    assert ductor("dlq", "discard", second, "--yes").strip() == "1 skipped: not in that state any more."


def test_dlq_by_what_they_have_in_common(store: Store) -> None:
    kill(store, 2, task="shop.tasks.mail")
    kill(store, 3)
    assert ductor("dlq", "retry", "--task", "shop.tasks.mail", "--yes").strip() == "2 retried."
    assert ductor("dlq", "discard", "--all", "--pool", "default", "--yes").strip() == "3 discarded."
    assert ductor("dlq", "retry", "--all", "--yes").strip() == "No dead letter matches."


def test_dlq_says_which() -> None:
    with pytest.raises(CommandError, match="Say which: ids, or --tenant, --lane, --group, --task, --reason, or --all"):
        ductor("dlq", "discard", "--yes")


def test_dlq_asks_first(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    kill(store)
    asked = []

    def answer(question: str) -> str:
        asked.append(question)
        return "n"

    monkeypatch.setattr("builtins.input", answer)
    assert ductor("dlq", "discard", "--all").strip() == "Nothing was changed."
    assert asked == ["Discard 1 dead letter of default? [y/N] "]

    def nobody(question: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", nobody)
    with pytest.raises(CommandError, match="say --yes"):
        ductor("dlq", "discard", "--all")


def test_every_command_has_its_own_name_too() -> None:
    for name in ("worker", "scheduler", "stack"):
        assert issubclass(load_command_class("queueapp", f"ductor_{name}").__class__, DuctorCommand)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--slots", "0"), "no whole number from 1 to 1000"),
        (("--grace", "-1"), "no number from 0"),
        (("--fail-rate", "2"), "no number from 0 to 1"),
        (("--max-tasks", "x"), "no whole number"),
        (("--reload", "--batch"), "--reload does not go with"),
    ],
)
def test_wrong_options_are_named(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        call_command("worker", *arguments)


def test_tables_align_and_show_no_control_characters() -> None:
    assert table(("name", "n"), [("a", 1), ("long\x1b[2Jname", 22)]).splitlines() == [
        "name           n",
        "a              1",
        "long\N{REPLACEMENT CHARACTER}[2Jname  22",
    ]
    assert printable(None) == "-"
    assert table(("name",), []) == ""


def test_process_ids_are_new_each_time_and_of_their_form() -> None:
    one, two = startup.process_id("my worker/1"), startup.process_id("my worker/1")
    assert one != two
    assert one.startswith("my-worker-1.")
    assert len(startup.process_id("x" * 200)) <= 64


def test_log_lines() -> None:
    record = logging.makeLogRecord(
        {"name": "queueapp.worker.loop", "levelname": "INFO", "msg": "Leading %s", "args": ("now",), "pool": "a\nb"}
    )
    assert logs.TextLine().format(record).endswith("INFO worker: Leading now pool=a\N{REPLACEMENT CHARACTER}b")
    line = json.loads(logs.JsonLine().format(record))
    assert (line["message"], line["pool"], line["logger"]) == ("Leading now", "a\nb", "queueapp.worker.loop")
