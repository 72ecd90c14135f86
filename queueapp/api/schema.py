"""What each operation of the API takes, and every answer that it may give: said by `operation` at the method of a view.

`openapi` makes the OpenAPI description of it where drf-spectacular is installed. Without it the API works, and only
describes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from inspect import unwrap
from typing import Any, TypeVar

from django.utils.functional import Promise
from rest_framework.schemas.inspectors import DefaultSchema, ViewInspector
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView

from queueapp.api.requests import Query, Strict

F = TypeVar("F", bound=Callable[..., Any])
Shape = type[BaseSerializer[Any]]
Text = str | Promise


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What one method of a view takes, and every answer that it may give."""

    name: str
    """The id of the operation."""
    summary: Text
    description: Text = ""
    request: type[Strict] | None = None
    """The fields of its body; None: it takes no body."""
    query: type[Query] | None = None
    """Its parameters; None: it takes none."""
    headers: Mapping[str, Text] = field(default_factory=dict)
    """Name of a header of the request → its meaning."""
    path: Mapping[str, Text] = field(default_factory=dict)
    """Part of the path → its meaning."""
    answers: Mapping[int, Shape]
    located: Mapping[int, Mapping[str, Text]] = field(default_factory=dict)
    """Status → headers of that answer with their meanings."""
    faults: Sequence[int] = ()
    """Statuses out of SOMETIMES."""
    conflict: Shape | None = None
    """The body of its 409, where that is not about a job."""
    needs: str = ""
    """The permission of ours that whoever asks must have, besides speaking for the tenant."""
    operator_needs: str = ""
    """The one that is needed by who speaks for every tenant."""


_said: dict[Callable[..., Any], Operation] = {}


def operation(name: str, summary: Text, **said: Any) -> Callable[[F], F]:
    """Describes a method of a view; the arguments are the fields of `Operation`."""
    made = Operation(name=name, summary=summary, **said)

    def decorate(method: F) -> F:
        _said[method] = made
        return method

    return decorate


def operation_of(view: type[APIView], method: str) -> Operation:
    """What was said of this method. Also when a host has wrapped it by `extend_schema_view`."""
    return _said[unwrap(getattr(view, method.lower()))]


def handled(view: type[APIView], method: str) -> Operation | None:
    """What a request of this method does; None: nothing, it is answered 405."""
    name = "GET" if method == "HEAD" else method
    return operation_of(view, name) if name != "OPTIONS" and hasattr(view, name.lower()) else None


def needed(view: type[APIView], method: str, *, operator: bool) -> str:
    """The permission of ours without which this method is refused; "" for none. `operator`: speaks for every tenant."""
    said = handled(view, method)
    if said is None:
        return ""
    return said.needs or (said.operator_needs if operator else "")


def inspector() -> ViewInspector:
    """What describes our views: ours, whatever class the host has for its own. Without drf-spectacular the host's."""
    if find_spec("drf_spectacular") is None:
        return DefaultSchema()
    from queueapp.api.openapi import OperationSchema

    return OperationSchema()
