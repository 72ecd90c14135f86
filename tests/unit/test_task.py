"""The decorator, its options and `.using()`: each is honoured or refused by name; and how tasks are found by name."""

from __future__ import annotations

import math
import pickle
import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test.utils import override_settings

import queueapp
from queueapp import Retry, backoff, task
from queueapp.compat import InvalidTask, Task, task_backends
from queueapp.errors import InvalidOption, NotYet, UnknownPool, UnknownTask
from queueapp.producer import discovery, options
from queueapp.producer.backoff import Fixed
from queueapp.producer.discovery import find, load_tasks, registry
from queueapp.producer.task import DuctorTask, adopt, unchecked
from tests import producing
from tests.producing import add, chosen

DUMMY = {"BACKEND": f"{Task.__module__.rpartition('.')[0]}.backends.dummy.DummyBackend"}


def function() -> None: ...


def parameters(value: object, *rest: object) -> None: ...


def keywords(**more: object) -> None: ...


class TestDecorator:
    def test_with_and_without_parentheses(self) -> None:
        assert isinstance(add, DuctorTask)
        assert isinstance(task()(function), DuctorTask)
        assert add.module_path == "tests.producing.add"
        assert add.func(1, 2) == add.call(1, 2) == 3

    def test_the_options_arrive(self) -> None:
        assert (chosen.lane, chosen.cost, chosen.max_attempts) == ("mail", 3.0, 4)
        assert chosen.backoff == Fixed(delay_s=7)
        assert add.backend == "default"

    def test_none_leaves_an_option_at_its_default(self) -> None:
        made = task(lane=None, cost=None, api=None, typed=None, sensitive=None)(function)

        assert (made.lane, made.typed, made.sensitive) == ("main", False, ())

    def test_a_task_cannot_be_changed(self) -> None:
        with pytest.raises(FrozenInstanceError):
            add.lane = "x"  # type: ignore[misc]  # wrong on purpose

    def test_without_backend_it_takes_the_alias_that_is_ours(self) -> None:
        with override_settings(TASKS={"default": DUMMY, "ours": {"BACKEND": "queueapp.backend.DuctorBackend"}}):
            assert task(function).backend == "ours"

    def test_it_is_ours_on_any_backend(self) -> None:
        with override_settings(TASKS={"default": DUMMY}):
            made = task(max_attempts=5)(function)
            result = add.using(tenant="acme", lane="x").enqueue(1)

        assert isinstance(made, DuctorTask)
        assert result.status == "READY"
        assert result.task == add.using(tenant="acme", lane="x")

    @pytest.mark.parametrize("name", sorted(options.NOT_YET))
    def test_an_option_of_a_later_release_is_refused_by_name(self, name: str) -> None:
        given: dict[str, Any] = {name: 1}
        with pytest.raises(NotYet, match=rf"{name}=.* not there yet"):
            task(**given)(function)
        with pytest.raises(NotYet, match=rf"{name}=.* not there yet"):
            add.using(**given)

    def test_an_unknown_option_names_the_nearest(self) -> None:
        with pytest.raises(
            InvalidOption, match=r"@task\(max_atempts=\.\.\.\) is not an option; did you mean max_attempts"
        ):
            task(max_atempts=3)  # type: ignore[call-overload]  # wrong on purpose
        with pytest.raises(InvalidOption, match=r"using\(zzz=\.\.\.\) is not an option; known: backend"):
            add.using(zzz=3)  # type: ignore[call-arg]  # wrong on purpose

    @pytest.mark.parametrize(("name", "ours"), [("countdown", "delay"), ("retries", "max_attempts")])
    def test_what_others_call_an_option_names_ours(self, name: str, ours: str) -> None:
        given: dict[str, Any] = {name: 3}
        with pytest.raises(InvalidOption, match=rf"using\({name}=\.\.\.\) is not an option; did you mean {ours}"):
            add.using(**given)
        assert set(options.ELSEWHERE.values()) <= {*options.TASK, *options.USING}
        assert options.ELSEWHERE.keys().isdisjoint({*options.TASK, *options.USING})

    def test_a_schedule_is_refused_as_what_it_is(self) -> None:
        with pytest.raises(InvalidOption, match="give it to @schedule above @task"):
            task(cron="0 3 * * *")  # type: ignore[call-overload]  # wrong on purpose

    def test_run_after_belongs_to_using(self) -> None:
        with pytest.raises(InvalidOption, match=r"run_after.*using"):
            task(run_after=datetime.now(UTC))  # type: ignore[call-overload]  # wrong on purpose

    @pytest.mark.parametrize("name", ["api", "aliases", "takes_context", "sensitive"])
    def test_what_belongs_to_the_task_is_refused_by_using(self, name: str) -> None:
        given: dict[str, Any] = {name: True}
        with pytest.raises(InvalidOption, match=rf"{name}.*belongs to the task"):
            add.using(**given)

    def test_a_lambda_and_an_inner_function_are_refused(self) -> None:
        def inner() -> None: ...

        with pytest.raises(InvalidTask, match="lambda"):
            task(lambda: None)
        with pytest.raises(InvalidTask, match="module level"):
            task(inner)

    def test_takes_context_needs_an_argument_of_that_name(self) -> None:
        with pytest.raises(InvalidTask, match="context"):
            task(takes_context=True)(function)


class TestValues:
    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("priority", 101),
            ("priority", -101),
            ("priority", 1.5),
            ("priority", True),
            ("run_after", datetime(2030, 1, 1)),
            ("run_after", timedelta(1)),
            ("tenant", "_system"),
            ("tenant", "a b"),
            ("lane", ""),
            ("lane", "a|b"),
            ("lane", 5),
            ("cost", 0),
            ("cost", 0.99),
            ("cost", float("nan")),
            ("cost", float("inf")),
            ("cost", True),
            ("expires_after", 0),
            ("expires_after", -1),
            ("expires_after", "1h"),
            ("idempotency_key", ""),
            ("idempotency_key", 5),
            ("idempotency_key", "x" * 1025),
            ("max_attempts", 0),
            ("max_attempts", 1.5),
            ("max_crashes", 0),
            ("backoff", -1),
            ("backoff", "soon"),
            ("on_commit", 1),
            ("database", "nowhere"),
            ("database", 5),
            ("metadata", ["a"]),
            ("metadata", {1: 2}),
            ("typed", 1),
        ],
    )
    def test_a_wrong_value_names_option_and_value(self, option: str, value: Any) -> None:
        with pytest.raises(InvalidOption, match=option) as caught:
            add.using(**{option: value})

        assert "must be" in str(caught.value) or "has 1 to 64" in str(caught.value)
        assert isinstance(caught.value, ValueError)

    @pytest.mark.parametrize("pool", ["Emails", "", "-x", "a b", "x" * 65])
    def test_a_pool_name_out_of_form(self, pool: str) -> None:
        with pytest.raises(UnknownPool, match=r"queue_name.*known: default"):
            add.using(queue_name=pool)

    def test_django_code_may_catch_invalid_task(self) -> None:
        with pytest.raises(InvalidTask):
            add.using(priority=101)
        with pytest.raises(InvalidTask):
            add.using(cost=0)

    def test_what_is_given_is_brought_to_one_form(self) -> None:
        made = add.using(tenant=5, cost=2, expires_after=timedelta(minutes=1), backoff=3)

        assert (made.tenant, made.cost, made.expires_after) == ("5", 2.0, 60.0)
        assert made.backoff == Fixed(delay_s=3)

    def test_the_bounds_of_priority_pass(self) -> None:
        assert add.using(priority=-100).using(priority=100).priority == 100

    def test_using_keeps_what_is_not_named(self) -> None:
        changed = chosen.using(tenant="a").using(priority=5)

        assert (changed.tenant, changed.priority, changed.lane, changed.cost) == ("a", 5, "mail", 3.0)
        assert add.using() == add
        assert add.using() is not add, "as django.tasks has it"

    def test_a_naive_moment_passes_where_moments_are_naive(self) -> None:
        with override_settings(USE_TZ=False):
            assert add.using(run_after=datetime(2030, 1, 1)).run_after == datetime(2030, 1, 1)

    def test_a_backoff_of_ones_own_belongs_to_the_task(self) -> None:
        made = task(backoff=lambda exception, errors: 1.0)(function)

        assert made.retry_delay(ValueError(), 1) == 1.0
        with pytest.raises(InvalidOption, match="@task"):
            add.using(backoff=lambda exception, errors: 1.0)

    @pytest.mark.parametrize("wrong", ["a.b", ["nodots"], [5], 7])
    def test_aliases_must_be_dotted_names(self, wrong: Any) -> None:
        with pytest.raises(InvalidOption, match="aliases"):
            task(aliases=wrong)(function)

    def test_an_unknown_database_lists_the_known(self) -> None:
        with pytest.raises(InvalidOption, match=r"database is 'nowhere': it must be an alias of DATABASES; known: def"):
            add.using(database="nowhere")
        assert add.using(database="default").database == "default"

    def test_metadata_is_a_copy_that_does_not_hinder_hashing(self) -> None:
        given = {"tags": ["a"]}
        made = add.using(metadata=given)
        given["tags"].append("b")

        assert made.metadata == {"tags": ["a"]}
        assert (hash(made), made == add) == (hash(add), False)
        assert made.using(metadata={}).metadata == {}

    def test_sensitive_takes_names_and_paths(self) -> None:
        assert task(sensitive=["value.number"])(parameters).sensitive == ("value.number",)
        assert task(sensitive={"value", "rest"})(parameters).sensitive == ("rest", "value")
        assert task(sensitive=["anything"])(keywords).sensitive == ("anything",)
        assert task(sensitive=True)(parameters).sensitive is True

    def test_bind_holds_a_task_and_its_arguments(self) -> None:
        bound = add.using(tenant="a").bind(1, b=2)

        assert (bound.task.tenant, bound.args, bound.kwargs) == ("a", (1,), {"b": 2})


@pytest.mark.skipif(not hasattr(Task, "_reconstruct"), reason="tasks can be pickled from Django 6.1 on")
def test_a_task_can_be_pickled_with_its_options() -> None:
    made = chosen.using(tenant="acme", priority=3, metadata={"a": [1]}, database="default", typed=True)

    assert pickle.loads(pickle.dumps(made)) == made


class TestFinding:
    def test_by_name_and_by_alias(self) -> None:
        assert find("tests.producing.add") is add
        assert find("tests.producing.old_name") is chosen

    @pytest.mark.parametrize("name", ["tests.producing.run_waiting", "os.system", "nowhere.at_all", "nodots", ""])
    def test_what_is_no_task_is_unknown(self, name: str) -> None:
        with pytest.raises(UnknownTask, match="No task is called"):
            find(name)

    def test_a_task_of_django_tasks_outside_of_tasks_modules(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            producing,
            "plain",
            Task(func=function, priority=3, backend="default", queue_name="default", run_after=None),
            raising=False,
        )
        monkeypatch.delitem(registry, "tests.producing.plain", raising=False)

        found = find("tests.producing.plain")

        assert isinstance(found, DuctorTask)
        assert (found.func, found.priority) == (function, 3)
        monkeypatch.delitem(registry, "tests.producing.plain")

    def test_adopting_one_of_ours_changes_nothing(self) -> None:
        assert adopt(chosen) is chosen

    def test_unchecked_tasks_may_have_left_the_settings(self) -> None:
        assert unchecked(add, queue_name="NOT A POOL").queue_name == "NOT A POOL"
        assert unchecked(add).func is add.func


class TestDiscovery:
    @pytest.fixture
    def host_app(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        package = tmp_path / "ductor_test_host"
        package.mkdir()
        (package / "__init__.py").write_text("")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(discovery, "_broken", None)
        yield package
        for name in [name for name in sys.modules if name.startswith("ductor_test_host")]:
            del sys.modules[name]
        for name in [name for name in registry if name.startswith("ductor_test_host")]:
            del registry[name]

    def test_tasks_modules_are_imported_when_a_name_is_first_needed(self, host_app: Path) -> None:
        (host_app / "tasks.py").write_text("from queueapp import task\n@task\ndef hello(): return 'hello'\n")
        from django.conf import settings

        with override_settings(INSTALLED_APPS=[*settings.INSTALLED_APPS, "ductor_test_host"]):
            assert "ductor_test_host.tasks" not in sys.modules
            assert find("ductor_test_host.tasks.hello").call() == "hello"

    def test_a_broken_module_is_reported_with_its_app(self, host_app: Path, caplog: pytest.LogCaptureFixture) -> None:
        (host_app / "tasks.py").write_text("raise RuntimeError('half written')\n")
        from django.conf import settings

        with override_settings(INSTALLED_APPS=[*settings.INSTALLED_APPS, "ductor_test_host"]):
            [broken] = load_tasks()
            with pytest.raises(UnknownTask, match=r"ductor_test_host\.tasks .*half written"):
                find("ductor_test_host.tasks.hello")

        assert (broken.app, str(broken.error)) == ("ductor_test_host", "half written")
        assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


def test_the_public_names_are_there() -> None:
    for name in queueapp.__all__:
        assert getattr(queueapp, name) is not None
    assert set(queueapp.__all__) <= set(dir(queueapp))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = queueapp.nothing
    assert task_backends["default"].task_class is DuctorTask


@pytest.mark.parametrize(
    "wrong",
    [
        {"expires_after": 1e300},
        {"expires_after": math.inf},
        {"backoff": 1e306},
        {"backoff": -1},
        {"tenant": "a b"},
        {"idempotency_key": "\ud800"},
    ],
)
def test_what_the_store_could_not_hold_is_an_invalid_task(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidTask, match=next(iter(wrong))) as caught:
        add.using(**wrong)
    assert isinstance(caught.value, InvalidOption)


def test_a_delay_that_no_clock_reaches_is_refused() -> None:
    """A worker tells its task's backoff from its store's by this: what is refused here never reaches `round`."""
    with pytest.raises(InvalidOption, match="ten years"):
        backoff.delay_s(lambda error, errors: 1e306, ValueError(), 1)
    with pytest.raises(InvalidOption, match="ten years"):
        Retry(delay=1e306)
