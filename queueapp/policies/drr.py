"""`drr`: deficit round robin with overdraft, over tenants and again over lanes (Shreedhar and Varghese 1995).

In each round a child may spend one share, `quantum` * weight units of cost, in the order of names. Its turn lasts while
its deficit d is above 0; a job that costs more than is left is served all the same, and the overdraft is paid back: the
child comes again k = 1 + floor(-d / share) rounds on, in one step. The original skips a packet that exceeds what is
left, must look at the cost before it serves, and walks through the rounds in which a large packet saves up; the
overdraft needs neither, and the first job of a tenant never waits for credit.

Bound, with declared costs: while a child stays in the walk and its weight stands, its service, less the one share that
it is entitled to for each round that passed, keeps within a band of share + its largest cost. So two of them differ
per weight by at most 2 * quantum + c1/w1 + c2/w2. A newcomer joins the round that runs: before its first job, each
other child spends at most one share and the rest of one job. Nothing is banked: what is left of a turn lapses when the
round is over, whether the child was busy or idle. A debt stays until it is paid, or until nobody is left to be paid; it
is counted in rounds, with the weight that it was made at.

Caveats: a turn is spent in one go, so that small jobs come in bursts of quantum / cost, and a newcomer waits for the
bursts of all (`tiered` interleaves job by job); a child that is at its ceiling in its turn loses the rest of it with
the round, so a quantum far above the usual cost is unfair to those with ceilings; rounds follow names.
"""

from __future__ import annotations

from math import ceil, floor

from queueapp.policies.node import Node
from queueapp.policies.protocol import Candidate, Place

QUANTUM = 50.0
"""Units of cost for a weight of 1 and a round: one job whose cost nobody knows yet, when costs are milliseconds."""


class Drr:
    """Pointers are numbers of rounds, `node.v` the round that runs; `node.state` holds what a child may still spend.

    A child that left stands in `tags` with the round after its own: from then on it is as good as new.
    """

    name = "drr"
    ordered = False
    tiered = False
    charges = True

    def __init__(self, quantum: float = QUANTUM) -> None:
        if not quantum > 0:
            raise ValueError(f"quantum is {quantum!r}; it must be above 0.")
        self.quantum = quantum

    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        return float(job.seq)

    def enter(self, node: Node, child: str, head: Place, weight: float) -> None:
        share = self.quantum * weight
        node.walk.put(child, self._recall(node, child, node.v, share))
        self._cut(node, child, share)
        node.lift()

    def moved(self, node: Node, child: str, head: Place) -> None:
        """A new head changes nothing: the turn is the child's, whatever job it is for."""

    def leave(self, node: Node, child: str) -> None:
        turn = node.walk.discard(child)
        if turn is not None:
            node.remember(child, turn + 1)

    def reweighed(self, node: Node, child: str, weight: float) -> None:
        """The next share counts the new weight, and the turn that runs is cut down to it."""
        self._cut(node, child, self.quantum * weight)

    def served(self, node: Node, child: str, rank: float, cost: float, weight: float) -> float:
        return self._charge(node, child, cost, self.quantum * weight)

    def settled(self, node: Node, child: str, difference: float, weight: float, fallback: float) -> None:
        share = self.quantum * weight
        if child in node.walk:
            self._charge(node, child, difference, share)
            return
        turn = self._spend(node, child, self._recall(node, child, fallback, share), difference, share)
        node.remember(child, turn + 1)

    def _recall(self, node: Node, child: str, start: float, share: float) -> float:
        """The round in which `child`, outside the walk, is next: where it left, else `start` with a whole share."""
        tag = node.tags.discard(child)
        if tag is not None and tag > node.v:
            return tag - 1
        node.state[child] = share
        return start

    def _cut(self, node: Node, child: str, share: float) -> None:
        node.state[child] = min(node.state[child], share)

    def _charge(self, node: Node, child: str, cost: float, share: float) -> float:
        turn = node.walk.score(child)
        assert turn is not None, "who is served stands in the walk"
        turn = self._spend(node, child, turn, cost, share)
        node.walk.put(child, turn)
        node.lift()
        return turn

    def _spend(self, node: Node, child: str, turn: float, cost: float, share: float) -> float:
        """Take `cost` from what `child` may spend in round `turn`; the round in which it may go on."""
        deficit = node.state[child] - cost
        if deficit <= 0:
            rounds = 1 + floor(-deficit / share)
            if deficit + rounds * share <= 0:
                rounds += 1  # the quotient was rounded down
        else:  # a refund that is more than the share of a round brings that round nearer, down to the one that runs
            rounds = -int(max(0, min(turn - node.v, ceil(deficit / share) - 1)))
        node.state[child] = deficit + rounds * share
        return turn + rounds
