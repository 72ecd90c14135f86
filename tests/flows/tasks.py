"""Tasks as a flow sees them, without Django; and definitions that tests share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from queueapp.errors import InvalidOption


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeTask:
    func: Callable[..., Any]
    takes_context: bool = False
    tenant: str | None = None

    @property
    def module_path(self) -> str:
        return f"shop.tasks.{self.func.__name__}"

    def using(self, **options: object) -> FakeTask:
        if options.get("queue_name") == "nowhere":
            raise InvalidOption("queue_name 'nowhere' is not a known pool; known: default.")
        return replace(self, tenant=str(options["tenant"]) if "tenant" in options else None)


def fake(function: Callable[..., Any]) -> FakeTask:
    return FakeTask(func=function)


@fake
def read_file(upload_id: int) -> None: ...


@fake
def validate(text: str, *, strict: bool = False) -> None: ...


@fake
def import_chunk(chunk: dict[str, Any], upload_id: int) -> None: ...


@fake
def report(upload_id: int, counts: dict[str, int]) -> None: ...


@fake
def nothing() -> None: ...


@fake
def take_back(done: object) -> None: ...
