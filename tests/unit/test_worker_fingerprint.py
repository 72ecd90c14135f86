"""Fingerprints of failures: the same for the same error at one place of the host's code, wherever it is deployed."""

from __future__ import annotations

import json
import re
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import queueapp
from queueapp.worker.fingerprint import fingerprint
from queueapp.worker.outcome import failed
from tests.unit.fake_store import leased

HOST = "/srv/releases/7/shop/tasks.py"
LIBRARY = f"{sysconfig.get_paths()['purelib']}/requests/api.py"
STANDARD = f"{sysconfig.get_paths()['stdlib']}/json/decoder.py"
OURS = str(Path(queueapp.__file__).parent / "worker" / "loop.py")


def define(source: str, file: str, **names: Any) -> dict[str, Any]:
    """Functions whose code says that it stands in `file`."""
    exec(compile(source, file, "exec"), names)
    return names


def error_of(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("it did not raise")


def of(call: Callable[[], object], task: str = "shop.tasks.pay") -> str:
    error = error_of(call)
    return fingerprint(task, type(error).__qualname__, error)


def raising(file: str = HOST, name: str = "pay", what: str = "ValueError('x')", lines: int = 0) -> Callable[[], object]:
    source = "\n" * lines + f"def {name}():\n    raise {what}\n"
    function: Callable[[], object] = define(source, file)[name]
    return function


def test_twelve_hex_characters() -> None:
    assert re.fullmatch("[0-9a-f]{12}", of(raising()))


@pytest.mark.parametrize(
    "same",
    [
        raising(what="ValueError('another message')"),
        raising(lines=40),
        raising(file="/srv/releases/8/shop/tasks.py"),
    ],
    ids=["message", "line", "directory of the deploy"],
)
def test_what_does_not_matter(same: Callable[[], object]) -> None:
    assert of(same) == of(raising())


@pytest.mark.parametrize(
    "other",
    [raising(what="KeyError('x')"), raising(name="refund"), raising(file="/srv/releases/7/shop/mail.py")],
    ids=["class", "function", "file"],
)
def test_what_does_matter(other: Callable[[], object]) -> None:
    assert of(other) != of(raising())


def test_the_task_matters() -> None:
    assert of(raising(), "shop.tasks.pay") != of(raising(), "shop.tasks.mail")


@pytest.mark.parametrize(
    "library", [LIBRARY, STANDARD, OURS, "<frozen importlib>", "/x/lib/python3/dist-packages/y/z.py"]
)
def test_the_innermost_frame_of_the_host_counts_not_that_of_a_library(library: str) -> None:
    """Called from two functions of the host, one place of a library makes two groups; two places of it make one."""

    def through(function: str, inner: str) -> Callable[[], object]:
        deep = define(f"def {inner}():\n    raise ValueError\n", library)[inner]
        made: Callable[[], object] = define(f"def {function}():\n    deep()\n", HOST, deep=deep)[function]
        return made

    assert of(through("pay", "get")) == of(through("pay", "post"))
    assert of(through("pay", "get")) != of(through("refund", "get"))


def test_where_no_frame_is_the_hosts_the_innermost_one_counts() -> None:
    """A task that an installed package brings along."""

    def only(name: str) -> str:
        error = error_of(raising(file=LIBRARY, name=name))
        assert error.__traceback__ is not None
        error.__traceback__ = error.__traceback__.tb_next  # without the test's own frame
        return fingerprint("t", "ValueError", error)

    assert only("get") == only("get")
    assert only("get") != only("post")


def test_an_error_without_a_traceback_and_one_of_odd_names() -> None:
    assert re.fullmatch("[0-9a-f]{12}", fingerprint("t", "ValueError", ValueError()))
    assert re.fullmatch("[0-9a-f]{12}", of(raising(file="/srv/\udcff/t\udcffsks.py")))


def test_a_deep_recursion_is_one_group() -> None:
    loop = define("def loop(n):\n    if n: loop(n - 1)\n    raise RuntimeError\n", HOST)["loop"]
    assert of(lambda: loop(5)) == of(lambda: loop(200))


def test_what_a_worker_reports_carries_it() -> None:
    from ductor_project.demo.tasks import import_chunk

    error = error_of(raising())
    report = failed(import_chunk, leased(task="shop.tasks.pay"), error, "text", 1, 0)
    assert report.fingerprint == fingerprint("shop.tasks.pay", "builtins.ValueError", error)
    assert report.fingerprint not in json.loads(report.error).values()
