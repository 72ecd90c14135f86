"""Whose work a job is: what stands for a tenant, and which of several answers holds."""

from __future__ import annotations

import asyncio
import threading
from uuid import UUID

import pytest
from django.contrib.auth.models import Group, User
from django.test.utils import override_settings

from queueapp import tenant
from queueapp.errors import InvalidOption
from queueapp.producer.tenancy import current_tenant, resolve_tenant, tenant_id

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
