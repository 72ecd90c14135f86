"""Who gets a handler, and that an event is one line, whatever it says."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from queueapp.cli import logs
from queueapp.compat import TASKS_LOGGER


@pytest.fixture
def ours() -> Iterator[logging.Logger]:
    """Our logger as a process has it whose host configured nothing; afterwards as it was."""
    root, tasks, logger = logging.getLogger(), logging.getLogger(TASKS_LOGGER), logging.getLogger("queueapp")
    kept = [(each, each.handlers, each.level, each.propagate) for each in (root, tasks, logger)]
    for each in (root, tasks, logger):
        each.handlers, each.level, each.propagate = [], logging.NOTSET, True
    yield logger
    for each, handlers, level, propagate in kept:
        each.handlers, each.propagate = handlers, propagate
        each.setLevel(level)


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_where_the_host_configured_nothing_we_log_to_stderr(
    ours: logging.Logger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own
    logs.set_up(None, 1)
    logging.getLogger("queueapp.worker.loop").info("Leading", extra={"pool": "mail"})
    logging.getLogger("queueapp.worker.loop").debug("too fine")
    [line] = said(capsys)
    assert line.endswith("INFO worker: Leading pool=mail")


def test_where_the_host_has_a_handler_its_own_is_left_alone(
    ours: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[assignment, method-assign]  # stands in for it in this test
    logging.getLogger().addHandler(handler)
    logs.set_up(None, 1)
    ours.warning("Leading")
    assert [record.getMessage() for record in records] == ["Leading"]
    assert said(capsys) == []


def test_a_form_that_was_asked_for_is_used_beside_the_hosts(
    ours: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger().addHandler(logging.NullHandler())
    logs.set_up("json", 1)
    ours.warning("Leading")
    assert json.loads(said(capsys)[0])["message"] == "Leading"


def test_an_event_with_a_traceback_is_one_json_line(ours: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("json", 1)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        ours.exception("A duty failed: %s", "a\nb", extra={"pool": "mail", "odd": object()})
    [line] = said(capsys)
    event: dict[str, Any] = json.loads(line)
    assert event["message"] == "A duty failed: a\nb"
    assert (event["level"], event["logger"], event["pool"]) == ("ERROR", "queueapp", "mail")
    assert "ValueError: two" in event["traceback"]


def test_what_others_wrote_cannot_make_a_second_line_of_text(
    ours: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.set_up("text", 1)
    ours.warning("Unknown task %s", "shop.tasks\n12:00:00 INFO worker: all well", extra={"tenant": "a\rb"})
    assert len(said(capsys)) == 1


@pytest.mark.parametrize(("verbosity", "level"), [(0, "WARNING"), (1, "INFO"), (2, "INFO"), (3, "DEBUG")])
def test_verbosity_is_the_level(ours: logging.Logger, verbosity: int, level: str) -> None:
    logs.set_up("text", verbosity)
    assert logging.getLevelName(ours.level) == level


def test_a_level_that_the_host_set_stays(ours: logging.Logger) -> None:
    ours.setLevel(logging.ERROR)
    logs.set_up("text", 3)
    assert ours.level == logging.ERROR


def test_a_form_that_was_asked_for_holds_for_failed_jobs_too(
    ours: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    """django.tasks logs each with its traceback, which Django's handler writes as many lines."""
    host = logging.StreamHandler(sys.stderr)
    logging.getLogger("django").addHandler(host)
    try:
        logs.set_up("json", 1)
        for _ in range(3):
            fail_at_one_place(logging.getLogger(TASKS_LOGGER))
    finally:
        logging.getLogger("django").removeHandler(host)
    events = [json.loads(line) for line in said(capsys)]
    assert [event["message"] for event in events] == ["Task id=7 state=FAILED"] * 3
    assert ["traceback" in event for event in events] == [True, False, False]


def fail_at_one_place(logger: logging.Logger) -> None:
    try:
        raise ValueError("each time")
    except ValueError:
        logger.exception("Task id=7 state=FAILED")


def test_a_traceback_of_another_place_is_told(ours: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("text", 1)
    fail_at_one_place(ours)
    fail_at_one_place(ours)
    try:
        raise ValueError("elsewhere")
    except ValueError:
        ours.exception("A duty failed")
    ours.error("none under way", exc_info=True)
    text = "\n".join(said(capsys))
    assert (text.count("Traceback"), text.count("ERROR")) == (2, 4)
