"""Policies of users: found by dotted path, made once, and held to the protocol before a pool runs under one.

A system check and the admin call `load`, so that a fault is seen before it stops a pool; the leader runs what `load`
answers, which goes on watching: whatever a policy does wrong comes out as InvalidPolicy, with class, method and remedy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from importlib import import_module
from inspect import Parameter, isclass, iscoroutinefunction, signature
from math import isfinite
from typing import Any, cast

from queueapp.errors import InvalidPolicy
from queueapp.policies.node import Node
from queueapp.policies.protocol import Candidate, Place, Policy
from queueapp.policies.room import Limits
from queueapp.policies.tree import Tree

NAME_FORM = re.compile(r"[a-z][a-z0-9_]{0,31}")
FLAGS = ("ordered", "tiered", "charges")
METHODS: Mapping[str, tuple[str, ...]] = {
    "rank": ("root", "job", "cost", "weight"),
    "enter": ("node", "child", "head", "weight"),
    "moved": ("node", "child", "head"),
    "leave": ("node", "child"),
    "reweighed": ("node", "child", "weight"),
    "served": ("node", "child", "rank", "cost", "weight"),
    "settled": ("node", "child", "difference", "weight", "fallback"),
}
"""Each method of a policy with what it is called with, by position."""

_loaded: dict[tuple[str, str], Watched] = {}


def load(name: str, path: str) -> Watched:
    """The policy behind a dotted path, made at its first use. Raises InvalidPolicy for what is none.

    The path leads to a class, which is called without arguments, or to an object that is a policy.
    """
    key = (name, path)
    if key not in _loaded:
        found = _find(name, path)
        _loaded[key] = _checked(name, path, _made(path, found) if isclass(found) else found)
    return _loaded[key]


class Watched:
    """A policy whose every step is looked at: it behaves as the policy does, or raises InvalidPolicy."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._who = type(policy).__name__
        self.name, self.ordered, self.tiered, self.charges = policy.name, policy.ordered, False, policy.charges

    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        return self._number("rank", self._call("rank", root, job, cost, weight))

    def enter(self, node: Node, child: str, head: Place, weight: float) -> None:
        self._call("enter", node, child, head, weight)
        self._stands("enter", node, child)

    def moved(self, node: Node, child: str, head: Place) -> None:
        self._call("moved", node, child, head)
        self._stands("moved", node, child)

    def leave(self, node: Node, child: str) -> None:
        self._call("leave", node, child)
        if child in node.walk:
            raise self._fault("leave", "left its child in node.walk", "take it out: node.walk.discard(child)")

    def reweighed(self, node: Node, child: str, weight: float) -> None:
        self._call("reweighed", node, child, weight)
        self._stands("reweighed", node, child)

    def served(self, node: Node, child: str, rank: float, cost: float, weight: float) -> float:
        stood = self._call("served", node, child, rank, cost, weight)
        self._stands("served", node, child)
        return self._number("served", stood)

    def settled(self, node: Node, child: str, difference: float, weight: float, fallback: float) -> None:
        stood = child in node.walk
        self._call("settled", node, child, difference, weight, fallback)
        if stood:
            self._stands("settled", node, child)
        elif child in node.walk:
            raise self._fault("settled", "put a child into node.walk that may not run", "only enter() does that")

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return getattr(self._policy, method)(*arguments)
        except Exception as error:
            what = f"raised {type(error).__name__}: {error}"
            raise self._fault(method, what, "it must take every job and every child") from error

    def _number(self, method: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
            remedy = "return a finite number" + (", 0.0 for example" if method == "served" else "")
            raise self._fault(method, f"returned {value!r}", remedy)
        return float(value)

    def _stands(self, method: str, node: Node, child: str) -> None:
        at = node.walk.score(child)
        if at is None:
            remedy = "put it there, or let it stay: node.walk.put(child, number); only leave() takes it out"
            raise self._fault(method, "did not leave its child in node.walk", remedy)
        if not isfinite(at):
            raise self._fault(method, f"put its child at {at!r} in node.walk", "put it at a finite number")

    def _fault(self, method: str, what: str, remedy: str) -> InvalidPolicy:
        return InvalidPolicy(f"{self._who}.{method}() {what}; {remedy}.")


def _find(name: str, path: str) -> object:
    if not NAME_FORM.fullmatch(name):
        raise InvalidPolicy(
            f"{name!r} is no name of a policy: use up to 32 of a-z, 0-9 and _, beginning with a letter."
        )
    module, _, attribute = path.rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:  # a module of the host may raise anything
        raise InvalidPolicy(
            f"{path} cannot be imported ({type(error).__name__}: {error}); name a class of a module that can."
        ) from error


def _made(path: str, found: type) -> object:
    try:
        return found()
    except Exception as error:
        raise InvalidPolicy(
            f"{found.__name__} cannot be made without arguments ({type(error).__name__}: {error}); give its parameters "
            f"defaults, or make an object in its module and name that instead of {path}."
        ) from error


def _checked(name: str, path: str, policy: object) -> Watched:
    who = type(policy).__name__
    if getattr(policy, "name", None) != name:
        said = f"is {policy.name!r}" if hasattr(policy, "name") else "is missing"
        raise InvalidPolicy(f'{who}.name {said}, and DUCTOR["POLICIES"] calls it {name!r}; write name = "{name}".')
    for flag in FLAGS:
        if not isinstance(getattr(policy, flag, None), bool):
            raise InvalidPolicy(
                f"{who}.{flag} must be True or False; set it, or inherit from queueapp.policies.ordered.Ordered."
            )
    if getattr(policy, "tiered", False):
        raise InvalidPolicy(
            f"{who}.tiered is True, and only the policy tiered has two queues in a lane; set it to False."
        )
    for method, arguments in METHODS.items():
        _check_method(who, method, getattr(policy, method, None), arguments)
    watched = Watched(cast(Policy, policy))
    before = _held(policy)
    _try_out(watched, who)
    if before is not None and _held(policy) != before:
        raise InvalidPolicy(
            f"{who} keeps something in itself, and one object serves every pool and every tenant; keep numbers in "
            "node.state, and what all tenants share in node.root.state."
        )
    return watched


def _check_method(who: str, method: str, found: object, arguments: tuple[str, ...]) -> None:
    wanted = f"{method}(self, {', '.join(arguments)})"
    if not callable(found):
        raise InvalidPolicy(f"{who} has no method {method}(); write def {wanted}.")
    if iscoroutinefunction(found):
        raise InvalidPolicy(f"{who}.{method}() is async, and a policy waits for nobody; write def {wanted}.")
    try:
        takes = signature(found)
    except ValueError:
        return  # not written in Python
    try:
        takes.bind(*arguments)
    except TypeError:
        shown = [str(each.replace(annotation=Parameter.empty)) for each in takes.parameters.values()]
        raise InvalidPolicy(f"{who}.{method}() takes ({', '.join(shown)}); write def {wanted}.") from None


def _held(policy: object) -> object:
    """What an object has in itself, or None where that cannot be compared."""
    try:
        return deepcopy(vars(policy))
    except Exception:
        return None


def _require_numbers(who: str, node: Node) -> None:
    """Raises InvalidPolicy for a node that a leader's successor could not go on from."""
    again = Node()
    try:
        again.restore(json.loads(json.dumps(node.dump())))
        same = again.dump() == node.dump()
    except Exception:  # whatever it has put there
        same = False
    if not same:
        raise InvalidPolicy(
            f"{who} keeps in node.state what is no number of a child, and the leader after this one would not have it; "
            "keep one number for each child there: node.state[child] = 1.0."
        )


def _try_out(policy: Watched, who: str) -> None:
    """A little traffic with all that may come: lanes, weights, pauses, corrections, ends, and a leader's successor."""
    tree = Tree(policy)
    for seq in range(12):
        tenant, lane = ("ant", "bee", "cat")[seq % 3], ("main", "other")[seq % 2]
        cost, priority, deadline_ms = 1.0 + seq, seq % 5 - 2, 1_000 * seq if seq % 4 else 0
        tree.push(
            Candidate(
                id=str(seq),
                tenant=tenant,
                lane=lane,
                seq=seq,
                priority=priority,
                cost=cost,
                deadline_ms=deadline_ms,
            )
        )
    steps: list[Callable[[], object]] = [
        lambda: tree.configure("ant", "", Limits(weight=2.5)),
        lambda: tree.configure("bee", "main", Limits(weight=0.5)),
        lambda: tree.configure("cat", "", Limits(paused=True)),
        lambda: tree.remove("4"),
        lambda: tree.configure("cat", "", Limits()),
    ]
    for number in range(12):
        if number % 2 == 0 and steps:
            steps.pop(0)()
        charge = tree.pick()
        if charge is not None:
            tree.settle(charge, charge.charged + 3 * (-1) ** number)
            tree.release(charge.id)
        for node in (tree.root, *(node for _, node in tree.tenants())):
            _require_numbers(who, node)
