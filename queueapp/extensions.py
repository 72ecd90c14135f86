"""What a package that builds on the queue puts into it, from its AppConfig's `ready`. `flows` is one.

The queue imports none of them: it looks here for what surrounds a body, for what a scheduler does beside its duties,
for verbs of `manage.py ductor`, and for what is to be erased with a tenant. Jobs of such a package are handed over by
`queueapp.producer.handover`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from queueapp.errors import UnknownWrapper

Json = Any
OPTION = "wrapped"
"""Of a payload: the name of the wrapper, and what it is to know of the job."""

Ending = Literal["failed", "cancelled"]


class Wrapper(Protocol):
    """Surrounds the bodies of jobs that were handed over with its name. `facts` are those that came with the job.

    What it raises fails the job as what the body raises does. It is called where the body runs, after the tenant was
    entered; `aaround` on the event loop.
    """

    def around(self, facts: Json, body: Callable[[], Any], local: Any) -> Any:
        """Calls `body` or not; the result is that of the job. `local` is that of the order (`handover.Order`) where the
        body begins in the process that handed it over, before the store has heard of it; else None."""

    async def aaround(self, facts: Json, body: Callable[[], Any], local: Any) -> Any:
        """See `around`; what `body` gives is to be awaited."""

    def ended(self, facts: Json, ending: Ending, error: str) -> None:
        """The job was cancelled while it ran, or has failed for good, with this text. Never on the event loop."""


class Duty(Protocol):
    """Something that a scheduler does again and again (`queueapp.scheduler.duties`)."""

    def run(self) -> float:
        """Does a share; returns the seconds until it wants to be called again, 0 for at once."""


class Owned(Protocol):
    """What such a package keeps of a tenant's work: a query set, or what does the same in shares."""

    def count(self) -> int: ...

    def delete(self) -> tuple[int, Any]:
        """How many went, and whatever else."""


_wrappers: dict[str, Wrapper] = {}
duties: dict[str, Callable[[], Duty]] = {}
"""What every scheduler does beside its own duties, by a name: `ready` may be called again, as tests do."""
verbs: dict[str, str] = {}
"""Verb of `manage.py ductor` → the module that has `add_parser` and `run` for it."""
owned: dict[str, Callable[[str], Owned]] = {}
"""Kind of rows, in words → those of a tenant, which go when it is erased."""
labels: set[str] = set()
"""Of the apps of such packages, whose migrations and checks count as the queue's own."""


def our_labels() -> list[str]:
    """Of the queue's app, and of those on top of it."""
    return ["queueapp", *sorted(labels)]


def wrap(name: str, wrapper: Wrapper) -> None:
    """Jobs handed over with this name are surrounded by it."""
    _wrappers[name] = wrapper


def wrapper_of(name: str) -> Wrapper:
    """Raises UnknownWrapper."""
    try:
        return _wrappers[name]
    except KeyError:
        raise UnknownWrapper(
            f"This job belongs to {name!r}, of which this process knows nothing: add it to INSTALLED_APPS wherever "
            "workers run."
        ) from None
