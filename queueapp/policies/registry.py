"""The policies by the name that `Pool.policy` holds."""

from __future__ import annotations

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
