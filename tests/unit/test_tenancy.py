"""Whose work a job is: what stands for a tenant, and which of several answers holds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Group, User
from django.test.utils import override_settings

from queueapp import tenant
from queueapp.errors import InvalidOption, TenantContextError
from queueapp.producer import tenancy
from queueapp.producer.tenancy import current_tenant, entered, resolve_tenant, tenant_id

UUID_TEXT = "12345678-1234-5678-1234-567812345678"


class Named(Group):
    class Meta:
        proxy = True
        app_label = "auth"

    @property
    def ductor_tenant(self) -> str:
        return f"group:{self.pk}"


class Asked(Group):
    class Meta:
        proxy = True
        app_label = "auth"

    def ductor_tenant(self) -> int:
        return 77


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("acme", "acme"),
        ("a.b:c@d-e_F9", "a.b:c@d-e_F9"),
        ("x" * 64, "x" * 64),
        (42, "42"),
        (UUID(UUID_TEXT), UUID_TEXT),
        (User(pk=7), "7"),
        (Named(pk=3), "group:3"),
        (Asked(pk=3), "77"),
    ],
)
def test_what_stands_for_a_tenant(value: object, name: str) -> None:
    assert tenant_id(value) == name


@pytest.mark.parametrize("value", ["", "_ductor", "a b", "a|b", "é", "x" * 65, "a\n", -1.5, None, True, b"a", User()])
def test_what_does_not_is_refused_with_the_field_and_a_remedy(value: object) -> None:
    with pytest.raises(InvalidOption, match=r"^tenant is .*: "):
        tenant_id(value)


def test_the_inner_tenant_holds_and_the_outer_comes_back() -> None:
    assert current_tenant() is None
    with tenant("outer") as entered:
        assert entered == "outer"
        with tenant(5):
            assert current_tenant() == "5"
        assert current_tenant() == "outer"
        with pytest.raises(RuntimeError), tenant("broken"):
            raise RuntimeError
        assert current_tenant() == "outer"
    assert current_tenant() is None


def test_named_before_current_before_default() -> None:
    assert resolve_tenant(None) == "default"
    with override_settings(DUCTOR={"TENANT_DEFAULT": "house"}):
        assert resolve_tenant(None) == "house"
    with tenant("current"):
        assert resolve_tenant(None) == "current"
        assert resolve_tenant("named") == "named"


def test_each_thread_has_its_own() -> None:
    seen: list[str | None] = []
    with tenant("mine"):
        thread = threading.Thread(target=lambda: seen.append(current_tenant()))
        thread.start()
        thread.join()

    assert seen == [None]


def test_each_asyncio_task_has_its_own() -> None:
    async def enter(name: str) -> str | None:
        with tenant(name):
            await asyncio.sleep(0.001)
            return current_tenant()

    async def both() -> list[str | None]:
        return list(await asyncio.gather(enter("a"), enter("b")))

    assert asyncio.run(both()) == ["a", "b"]


entries: list[str] = []


@contextmanager
def schema(name: str) -> Iterator[None]:
    entries.append(f"enter {name}")
    try:
        yield
    finally:
        entries.append(f"leave {name}")


class Swallows:
    """A context manager that lets no exception through."""

    def __init__(self, name: str) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> bool:
        return True


class BreaksOnLeaving(Swallows):
    def __exit__(self, *_: object) -> bool:
        raise OSError("no way back")


@contextmanager
def cannot_enter(name: str) -> Iterator[None]:
    if name:
        raise OSError("no such schema")
    yield


def in_context(source: Any) -> Any:
    return override_settings(DUCTOR={"TENANT_CONTEXT": source})


class TestEntered:
    """What surrounds a body."""

    @pytest.fixture(autouse=True)
    def _afresh(self) -> None:
        entries.clear()

    def test_without_a_context_only_the_current_tenant_is_set(self) -> None:
        with entered("acme"):
            assert current_tenant() == "acme"
        assert current_tenant() is None

    def test_an_id_of_ours_may_be_entered(self) -> None:
        with entered("_ductor"):
            assert current_tenant() == "_ductor"

    @pytest.mark.parametrize("source", [schema, f"{__name__}.schema"])
    def test_the_hosts_context_is_entered_with_the_id(self, source: object) -> None:
        with in_context(source), entered("acme"):
            assert (entries, current_tenant()) == (["enter acme"], "acme")
        assert entries == ["enter acme", "leave acme"]

    def test_it_is_left_when_the_body_raises_what_the_body_raised(self) -> None:
        with in_context(schema), pytest.raises(LookupError), entered("acme"):
            raise LookupError
        assert (entries, current_tenant()) == (["enter acme", "leave acme"], None)

    def test_it_cannot_swallow_a_failure(self) -> None:
        with in_context(Swallows), pytest.raises(LookupError), entered("acme"):
            raise LookupError

    @pytest.mark.parametrize(
        ("source", "words"),
        [
            (cannot_enter, r"TENANT_CONTEXT.*cannot_enter.*'acme'.*no such schema"),
            (BreaksOnLeaving, r"TENANT_CONTEXT.*BreaksOnLeaving.*leaving.*no way back"),
            (lambda name: None, r"TENANT_CONTEXT.*could not enter"),
            ("shop.nowhere.at_all", r"TENANT_CONTEXT.*shop\.nowhere"),
        ],
    )
    def test_its_own_failures_name_it(self, source: object, words: str) -> None:
        with in_context(source), pytest.raises(TenantContextError, match=words), entered("acme"):
            pass
        assert current_tenant() is None


def test_that_nobody_named_a_tenant_is_told_once_a_minute_for_each_task(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(tenancy, "monotonic", lambda: now[0])
    monkeypatch.setattr(tenancy, "_warned", {})
    with override_settings(DUCTOR={"TENANT_RESOLVERS": [print]}):
        for task in ("a", "a", "b"):
            resolve_tenant(None, task)
        now[0] += 61
        resolve_tenant(None, "a")
        resolve_tenant("default", "c")

    assert [record.task for record in caplog.records] == ["a", "b", "a"]  # type: ignore[attr-defined]  # what `extra` gave it
