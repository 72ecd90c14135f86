"""How a call reaches the server: as a function, again with the same token when the reply was lost.

`Store` inherits it. Errors come out as Ductor's own; a key of a wrong type is named. Safe to use from several threads.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from time import monotonic
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import redis
from redis.exceptions import ConnectionError as ServerGone
from redis.exceptions import NoPermissionError, NoScriptError, OutOfMemoryError, ReadOnlyError, ResponseError
from redis.exceptions import TimeoutError as ServerSilent

from queueapp.errors import StoreError
from queueapp.store import calls, connection
from queueapp.store.calls import Call, Reply
from queueapp.store.connection import translate_errors
from queueapp.store.keys import GLOSSARY, ShardKeys
from queueapp.store.records import Word
from queueapp.store.scripts import Argument

T = TypeVar("T")


SCRIPTS_S = 60.0
"""So long calls go as scripts where the server took no function: not permitted to this user, or it is full. What makes
room it must still run, and scripts it takes then."""


def knows_no_function(error: ResponseError) -> bool:
    """The server has not this function, has none at all, or does not permit them to this user."""
    text = str(error).lower()
    return isinstance(error, NoPermissionError) or text.startswith(("function not found", "unknown command"))


_scripts_until: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
"""Client → until when, on the monotonic clock, its calls go as scripts."""


def go_as_scripts(client: Any) -> bool:
    """Whether this client's server took no function a moment ago."""
    return monotonic() < _scripts_until.get(client, 0.0)


def take_scripts(client: Any) -> None:
    """For a while calls of this client go as scripts."""
    _scripts_until[client] = monotonic() + SCRIPTS_S


Step = tuple[Callable[..., Any], tuple[Any, ...]]
"""A method of the client, of whichever kind it is, and its arguments."""


def ways(client: Any, prefix: str, call: Call[Any]) -> Generator[Step, Reply, Reply]:
    """What is to be sent for a call, step by step: as a function, which is loaded where it is not, else as a script.

    Whoever goes through the steps sends in the reply of each, or throws in the server's error; the call's reply is what
    is returned. `Sender` does so, and `AsyncStore`, which awaits each.
    """
    arguments = (1, prefix, *call.argv)
    function = (client.fcall, (call.script.function, *arguments))
    if not go_as_scripts(client):
        try:
            return (yield function)
        except ResponseError as error:
            if not knows_no_function(error):
                raise
        try:
            yield client.function_load, (call.script.library.decode(), True)
            return (yield function)
        except ResponseError as error:
            if not (knows_no_function(error) or isinstance(error, OutOfMemoryError)):
                raise
            take_scripts(client)
    try:
        return (yield client.evalsha, (call.script.sha, *arguments))
    except NoScriptError:
        return (yield client.eval, (call.script.text, *arguments))


def server_clock() -> int:
    """The clock override that means: use the server's TIME."""
    return 0


class Sender:
    """Sends calls to one shard. `client` must not decode replies; `clock_ms` replaces the server's clock in tests."""

    def __init__(self, client: redis.Redis, keys: ShardKeys, *, clock_ms: Callable[[], int] | None = None) -> None:
        self.client = client
        self.keys = keys
        self._clock_ms = clock_ms or server_clock
        self.resent = 0
        """Calls that were sent again because their reply was lost: it may have told what is told once."""

    def _call(
        self,
        name: str,
        groups: calls.Groups | None = None,
        read: Callable[[Reply], Any] = lambda reply: reply,
        **arguments: Argument,
    ) -> Call[Any]:
        return calls.call(name, self._clock_ms(), read, groups, **arguments)

    def _words(self, name: str, **groups: Sequence[Sequence[Argument]]) -> list[Word]:
        return self._run(self._call(name, groups, calls.words))

    def _by_id(self, name: str, ids: Sequence[str], **arguments: Argument) -> list[str]:
        answers: list[str] = []
        for first in range(0, len(ids), calls.MAX_IDS_PER_CALL):
            page = ids[first : first + calls.MAX_IDS_PER_CALL]
            answers += self._run(self._call(name, calls.ids(page), calls.words, **arguments))
        return answers

    def _run(self, call: Call[T]) -> T:
        with translate_errors():
            try:
                reply = self._send(call)
            except (ServerGone, ServerSilent):
                self.resent += 1
                connection.drop_idle(self.client)
                reply = self._send(call)  # replay-safe: the script recognises a repeat
            except ReadOnlyError:
                # It was the primary once. Where a proxy or a moved address leads to the new one, new connections do.
                connection.drop_idle(self.client)
                raise
            except ResponseError as error:
                if "WRONGTYPE" in str(error):
                    raise self._wrong_type() from error
                raise
        return call.result(reply)

    def _wrong_type(self) -> StoreError:
        """Names the key that another program (or an older release) made under our prefix."""
        for name, (kind, _) in GLOSSARY.items():
            if "<" not in name:
                found = cast("bytes", self.client.type(self.keys[name])).decode()
                if found not in ("none", kind):
                    return StoreError(
                        f"The key {self.keys[name]} is a {found}, and Ductor keeps a {kind} there: another program "
                        f"uses the same names. Give one of them another NAMESPACE or database, or delete the key."
                    )
        return StoreError(
            f"A key under {self.keys.prefix} has a type that Ductor does not write; see `queueapp.store.keys`."
        )

    def _send(self, call: Call[Any]) -> Reply:
        steps = ways(self.client, self.keys.prefix, call)
        try:
            method, arguments = next(steps)
            while True:
                try:
                    reply = method(*arguments)
                except ResponseError as error:
                    method, arguments = steps.throw(error)
                else:
                    method, arguments = steps.send(reply)
        except StopIteration as end:
            answer: Reply = end.value
            return answer

    def _run_all(self, batch: Sequence[Call[T]]) -> list[T]:
        """Several calls in one round trip. What the server did not know or did not answer is sent again by itself."""
        if len(batch) < 2 or go_as_scripts(self.client):
            return [self._run(call) for call in batch]
        with translate_errors():
            try:
                pipeline = self.client.pipeline(transaction=False)
                for call in batch:
                    pipeline.fcall(call.script.function, 1, self.keys.prefix, *call.argv)
                replies: list[Any] = pipeline.execute(raise_on_error=False)
            except (ServerGone, ServerSilent):
                connection.drop_idle(self.client)
                replies = [ServerGone()] * len(batch)
        return [
            self._run(call) if isinstance(reply, Exception) else call.result(reply)
            for call, reply in zip(batch, replies, strict=True)
        ]
