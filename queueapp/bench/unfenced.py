"""A leader's writes without the fence: what `bench ceiling` measures the fence against. Nothing else may use it.

The scripts are the product's own texts with one statement taken out, the question whether the term is over. They are
functions of their own on the benchmark's server, as their digests differ.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from queueapp.store import calls
from queueapp.store.calls import Call, Reply
from queueapp.store.scripts import Argument, Script, assemble, source
from queueapp.store.store import Store

CHECK = """if is_over(ARGV[3], ARGV[4]) then
  return {0, 'fenced'}
end
"""
FENCED = frozenset({"admit", "dispatch", "flush_policy"})
"""What a leader writes; `tests/unit/test_bench_ceiling.py` compares it with the scripts."""


@functools.cache
def unfenced(name: str) -> Script:
    """The transition `name` without the question. RuntimeError when its text does not ask it in these words, once."""
    text = source(f"{name}.lua")
    if text.count(CHECK) != 1:
        raise RuntimeError(f"{name}.lua does not ask for the fence in the words that are known here.")
    return assemble(name, text.replace(CHECK, ""))


class UnfencedStore(Store):
    """A shard whose leader's writes are accepted under any term."""

    def _call(
        self,
        name: str,
        groups: calls.Groups | None = None,
        read: Any = lambda reply: reply,
        **arguments: Argument,
    ) -> Call[Any]:
        call: Call[Reply] = super()._call(name, groups, read, **arguments)
        return replace(call, script=unfenced(name)) if name in FENCED else call
