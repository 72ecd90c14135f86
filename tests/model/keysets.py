"""Concurrency keys as the store and as the reference are told of them."""

from __future__ import annotations

from collections.abc import Sequence

from queueapp.codec import digest
from queueapp.policies.keyed import KeySet
from queueapp.policies.waiting import Key
from queueapp.store.calls import packed_keys
from queueapp.store.records import KeyUse

KEYS = ("a", "b", "c", "d")


def key_use(name: str, limit: int) -> KeyUse:
    """The key `name`, which is its own pattern."""
    return KeyUse(digest=digest(name), text=name, limit=limit, pattern=digest(name))


def key_set(uses: Sequence[KeyUse]) -> KeySet | None:
    """The same for the reference."""
    if not uses:
        return None
    ordered = sorted(uses, key=lambda use: use.digest)
    return KeySet(
        id=packed_keys(uses).partition("\n")[0],
        keys=tuple(Key(digest=use.digest, limit=use.limit, pattern=use.pattern) for use in ordered),
    )
