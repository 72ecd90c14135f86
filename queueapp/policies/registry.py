"""The policies by the name that `Pool.policy` holds."""

from __future__ import annotations

from collections.abc import Mapping

from queueapp.policies import custom
from queueapp.policies.aging import Aging
from queueapp.policies.drr import Drr
from queueapp.policies.edf import Edf
from queueapp.policies.fifo import Fifo
from queueapp.policies.lottery import Lottery
from queueapp.policies.priority import Priority
from queueapp.policies.protocol import Policy
from queueapp.policies.ring import Ring
from queueapp.policies.tiered import Tiered
from queueapp.policies.wfq import Wfq

POLICIES: dict[str, type[Policy]] = {
    "fifo": Fifo,
    "priority": Priority,
    "edf": Edf,
    "wfq": Wfq,
    "aging": Aging,
    "tiered": Tiered,
    "ring": Ring,
    "drr": Drr,
    "lottery": Lottery,
}
"""Name → class of every policy. A class takes its parameters as keywords and has defaults for all of them."""

DIRECT = frozenset({"fifo", "priority", "edf", "wfq", "aging", "tiered", "ring"})
"""Those that the store's scripts know, too (`store/lua/include/rank.lua`, `node.lua`): no leader is needed to lease."""

PYTHON = frozenset(POLICIES) - DIRECT
"""Those that only a leader can run, in scheduled dispatch."""


def find(name: str, own: Mapping[str, str]) -> Policy:
    """The policy of this name: one of ours with its defaults, or one of `own` (name → dotted path).

    Raises InvalidPolicy for one of `own` that is none, KeyError for a name that nobody has.
    """
    return POLICIES[name]() if name in POLICIES else custom.load(name, own[name])
