"""The Sentinels of the settings, asked: would they find a new primary? For `doctor`; changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import redis
from redis.exceptions import ResponseError

from queueapp.store import connection
from queueapp.store.fitness import Remark

LEAST = 3
"""Two cannot tell which of them is cut off."""


def of_sentinels(info: Mapping[str, Any]) -> Iterator[Remark]:
    """`info` is what the primary tells of itself, {} = nothing. Nothing to say where no Sentinels are named."""
    name, watchers = connection.sentinels()
    if not watchers:
        return
    well = True
    for address, client in watchers:
        try:
            with client:
                client.execute_command("SENTINEL", "CKQUORUM", name)
        except ResponseError as error:
            well = False
            yield Remark(
                check="sentinels",
                level="warning",
                text=f"The Sentinel at {address} would not find a new primary: {error}.",
                remedy="Start the others, and let each monitor the same primary under the same name.",
            )
        except redis.RedisError as error:
            well = False
            yield Remark(
                check="sentinels",
                level="warning",
                text=f"The Sentinel at {address} cannot be asked ({str(error).rstrip('.')}).",
                remedy="Start it, or take it out of DUCTOR['REDIS_URL'].",
            )
    if len(watchers) < LEAST:
        well = False
        yield Remark(
            check="sentinels",
            level="note",
            text=f"DUCTOR['REDIS_URL'] names {len(watchers)} of the Sentinels: who starts while they are away finds no "
            "primary.",
            remedy="Name all of them, three or more.",
        )
    if info and not int(info.get("connected_slaves", 0) or 0):
        well = False
        yield Remark(
            check="sentinels",
            level="warning",
            text=f"The primary {name!r} has no replica: there is nothing that could take its place.",
            remedy="Start one, with an append-only file of its own.",
        )
    if well:
        yield Remark(
            check="sentinels", level="well", text=f"{len(watchers)} Sentinels watch {name!r} and would replace it."
        )
