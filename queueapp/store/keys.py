"""Every key of the store: its name, its type and what it means. Nothing else in Ductor spells a key.

All keys of one shard carry the hash tag `{namespace:code:shard}`, so that a script touches one cluster slot. Tenant and
lane are joined by `|`, which neither alphabet contains. Lua derives the same names from KEYS[1] (the bare prefix, a key
that never exists) in `lua/include/shard.lua`; `tests/lua/test_contract.py` compares the two.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

CODE_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"

PUBLIC_ID_FORM = re.compile(r"([0-9a-z]{6})\.([0-9]{1,4})\.([A-Za-z0-9_-]{22})")

GLOSSARY: dict[str, tuple[str, str]] = {
    "job:<id>": ("string", "header and payload of a job that has not ended (lua/include/row.lua)"),
    "run:<id>": ("hash", "from the first dispatch or lease on: state, attempts, budgets, worker, charge, outcome"),
    "result:<id>": ("string", "what the task returned, as JSON; absent for None"),
    "errors:<id>": ("list", "one record per failed or lost attempt (worker, start, end), newest last, at most 20"),
    "data:<id>": ("hash", "progress and metadata that the task saved under its lease"),
    "checkpoint:<id>": ("string", "what a run saved for the next one, as JSON; goes when the job ends"),
    "walk": ("zset", "runnable tenants by pointer; where ranks tie, the head's number of submission before the name"),
    "floor": ("zset", "those tenants of walk that hold fewer slots than their guaranteed minimum, as they stand there"),
    "lanes:<tenant>": ("zset", "runnable lanes of a tenant by pointer; where ranks tie, as in walk"),
    "heads": ("hash", "tenant → the number of submission that its member of walk begins with; only where ranks tie"),
    "heads:<tenant>": ("hash", "the same for the lanes of a tenant"),
    "q:<tenant>|<lane>": ("zset", "pending jobs of tier start by rank; where ranks tie, submission before id"),
    "qc:<tenant>|<lane>": ("zset", "pending jobs of tier continue by rank, under tiered only"),
    "q:<tenant>|<lane>|@<ks>": ("zset", "a sub-lane: those with this key set (lua/include/keys.lua)"),
    "qc:<tenant>|<lane>|@<ks>": ("zset", "the same for tier continue"),
    "sublanes": ("zset", "the sub-lanes that have jobs, by name"),
    "parked": ("hash", "sub-lane → digest of the full key that it waits for"),
    "blocked:<digest>": ("zset", "limits that waiters of a key compare with; then their tenants by turn, each one's"),
    "blocked:<digest>|<limit>|<pattern>": ("zset", "group (tenant, or * = all) → turn (lua/include/waiters.lua)"),
    "blocked:<digest>|<limit>|<pattern>|<group>": ("zset", "sub-lanes that wait, by the rank of their head"),
    "turns:<digest>": ("zset", "tenant → its turn at a key that somebody waits for; * → the turn woken last"),
    "blocks": (
        "hash",
        "scope → how long its own limits have held work back, since when they do (lua/include/blocks.lua)",
    ),
    "waitkeys": ("zset", "keys with waiters, by the moment of the next look"),
    "keysets": ("hash", "key set → digest, own limit and pattern of each key (lua/include/keysets.lua)"),
    "keynames": ("hash", "digest of a key → its text"),
    "keyusers": ("hash", "s:<ks> → jobs that have not ended; k:<digest> → key sets"),
    "tags": ("zset", "tenants ahead of V by finish tag: under tiered those out of the walk, under wfq all"),
    "ltags:<tenant>": ("zset", "the same for lanes within a tenant"),
    "policy": ("hash", "V (under wfq with Vt, when it last moved), V:<tenant>, b:<tenant>|<lane> (boost), floor_run"),
    "marks": (
        "hash",
        "seq: the last number of submission; clock: the last moment seen; dispatched, entered: the last places given "
        "in ready and entered; window: as a leader last named it; flush: number of what is kept for the policy; "
        "rated: how far those with dispatch rates were looked through",
    ),
    "conf": ("hash", "schema, policy, paused, ceiling, version, defaults"),
    "limits": (
        "hash",
        "t:<tenant>, l:<tenant>|<lane> → packed weight, ceiling, paused, minimum, dispatch rate; kp:<pattern> → "
        "ceiling, dispatch rate|text; ft:, fl:, fk: → rate|period|burst|room of the front door",
    ),
    "active": ("zset", "leased jobs by deadline"),
    "ready": ("zset", "dispatched jobs that wait for a worker, in the order of their dispatch"),
    "ingress": ("stream", "jobs that wait for a leader to rank them (lua/include/ingress.lua); group leader"),
    "entered": ("zset", "lanes and tenants that changed in the walk, by change, for a leader that chooses itself"),
    "corrections": ("zset", "tenant|lane → how much more its jobs cost than charged, for such a leader"),
    "flushed:<number>": ("string", "what a leader's policy holds in memory, for the next leader"),
    "scheduled": ("zset", "jobs that wait for their time, by due time"),
    "backlog": ("zset", "parked jobs by the moment from which they conform to their rates, which is their due time"),
    "bl:<tenant>": ("zset", "those of tier start of a tenant, by the same (lua/include/backlog.lua)"),
    "blc:<tenant>": ("zset", "those of tier continue"),
    "blturns": ("zset", "tenants with parked jobs of tier start, by the due time of the first"),
    "blcturns": ("zset", "the same for tier continue"),
    "gcra:<scope>": (
        "string",
        "where a rate stands: t:<tenant>, l:<tenant>|<lane> or k:<digest>; a dispatch rate: dt:<tenant>, "
        "dl:<tenant>|<lane> or dk:<digest>|<pattern>; expires",
    ),
    "timers": (
        "zset",
        "t:<tenant>, l:<tenant>|<lane> out of the walk for want of a dispatch token → when they have one",
    ),
    "once": ("hash", "job id → what it holds until it ends: singleton, debounce (lua/include/once.lua)"),
    "single:<tenant>|<digest>": ("string", "the jobs that hold a singleton, at most two"),
    "deb:<tenant>|<digest>": ("hash", "job, first call and last calls of a debounce; expires once its job has ended"),
    "expiring": ("zset", "waiting jobs with expires_after, by expiry"),
    "waiting": ("zset", "jobs that wait for their children, by since when (lua/include/kin.lua)"),
    "open:<id>": ("set", "children of a job that have not ended; +: more of them are on their way"),
    "children:<id>": ("hash", "child → its position, policy, outcome, note and result, of those that have ended"),
    "parents": ("hash", "child → policy, position and parent, of those that have not ended, or are dead letters"),
    "outbox": ("stream", "what other pools must hear of parents and children (queueapp/store/families.py)"),
    "sweeps": (
        "zset",
        "h:<id> a parent that gets more children, by when nobody waits for them any more; c:<id> one "
        "whose children are being cancelled",
    ),
    "moving": ("zset", "jobs on their way to another pool, by the moment at which they left their place"),
    "dead": ("zset", "dead letters by time of death"),
    "dead:<tenant>": ("zset", "dead letters of one tenant by time of death"),
    "deadgroup:<group>": ("zset", "dead letters of one group (what they died of) by time of death"),
    "deadgroups": ("zset", "groups of dead letters by the death of their newest member"),
    "ended": ("zset", "ended jobs by end time; those that moved away stand in stubs"),
    "stubs": ("zset", "what moved jobs left behind, by when it was last seen to lead to one (lua/stubs.lua)"),
    "slots:p": ("zset", "leases of the pool by start; kept only while the pool has a ceiling"),
    "slots:t:<tenant>": ("zset", "leases of a tenant with a ceiling or a minimum, by start"),
    "slots:l:<tenant>|<lane>": ("zset", "leases of a lane with a ceiling, by start"),
    "slots:k:<digest>": ("zset", "leases with a concurrency key, by start"),
    "cuts": (
        "hash",
        "tenant|who cancels → number of submission up to which its jobs are cancelled when met, and until when",
    ),
    "counts": ("hash", "w: waiting jobs (pending + scheduled + backlog + ingress + ready)"),
    "tenants": ("zset", "tenants by their waiting jobs; those that have none, or only dead letters, at 0"),
    "served:<minute>": (
        "hash",
        "tenant → its service in that minute (lua/include/service.lua); |: the pool's; expires",
    ),
    "stats": ("hash", "totals since the beginning, by transition"),
    "tasks": ("hash", "task name → number"),
    "names": ("hash", "number → task name"),
    "est": ("hash", "task number, also with |<tenant> → learnt run time in ms/16, the day it was last learnt; runs"),
    "idem:<tenant>|<digest>": ("string", "job id and fingerprint behind an idempotency key; expires"),
    "wake": ("zset", "tokens that wake parked workers: w (work), t (time)"),
    "wake:leader": ("zset", "token i wakes the leader of a pool with scheduled dispatch: there is something to do"),
    "wake:standby": ("zset", "token r wakes a standby scheduler: the lease of leadership was given up"),
    "nudge:<scheduler>": ("zset", "a token by which a scheduler wakes its own thread that waits; expires"),
    "worker:<worker>": (
        "hash",
        "what a worker registered, the seq of its last call, and stop: its jobs that were told to stop; channel and "
        "absent: its sign of life (lua/include/presence.lua); expires",
    ),
    "stop:<worker>": ("zset", "a token that wakes a parked worker, some of whose jobs were told to stop; expires"),
    "workers": ("zset", "workers by last heartbeat"),
    "watched": ("zset", "workers whose death shows, all at 0 (lua/include/absent.lua)"),
    "held:<worker>": ("set", "jobs that a worker has leased"),
    "waiters": ("hash", "job id → waiter that wants its result"),
    "done:<waiter>": ("list", "ids whose result a waiting process asked for; expires"),
    "leader": (
        "hash",
        "owner, epoch, nonce and end of the lease of leadership, why its holder cannot dispatch; channel, armed and "
        "absent: its sign of life (lua/include/presence.lua)",
    ),
    "fence": ("hash", "epoch and nonce of the newest term, and when its leader last renewed it"),
    "erased:<id>": ("string", "a job that may be on its way here and was erased, so that it does not arrive; expires"),
    "quarantine": ("set", "ids whose rows had the wrong type and were set aside"),
}
"""Key without its prefix → (type, meaning)."""

IN_LINE = frozenset(
    {"walk", "floor", "heads", "lanes", "q", "qc", "tags", "ltags", "policy"}
    | {"sublanes", "parked", "blocked", "turns", "waitkeys"}
)
"""Kinds of keys that hold the order of the waiting work. A change of policy begins a new generation of them; the names
of odd generations begin with `~`, so that the old and the new one stand side by side until the work has moved over
(lua/include/generations.lua). In Lua their names are built from `W`, all others from `P`."""

UNSHARDED: dict[str, tuple[str, str]] = {
    "<ns>:pools": ("hash", "pool code → pool name"),
    "<ns>:owner": ("string", "installation id of the database that uses this namespace"),
}
"""The only two keys outside a shard."""


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """The names of one shard's keys. `namespace` and `code` are checked when the settings are."""

    namespace: str
    code: str
    shard: int = 0

    @property
    def prefix(self) -> str:
        """The bare prefix: KEYS[1] of every script, a key that never exists."""
        return f"{{{self.namespace}:{self.code}:{self.shard}}}:"

    def __getitem__(self, name: str) -> str:
        """The full name of the key `name`, as the glossary spells it with its parts filled in."""
        return self.prefix + name

    def in_line(self, name: str, generation: int) -> str:
        """The same of a key of `IN_LINE` in that generation of the waiting work (conf, field gen)."""
        return f"{self.prefix}{'~' if generation % 2 else ''}{name}"

    def job(self, job_id: str) -> str:
        return f"{self.prefix}job:{job_id}"

    def run(self, job_id: str) -> str:
        return f"{self.prefix}run:{job_id}"

    def queue(self, tenant: str, lane: str) -> str:
        return f"{self.prefix}q:{tenant}|{lane}"

    def public_id(self, job_id: str) -> str:
        """`<code>.<shard>.<22 characters>`: an id that finds its row alone."""
        return f"{self.code}.{self.shard}.{job_id}"


def pool_code(name: str) -> str:
    """Six characters that stand for a pool in keys and ids, given when the pool is first seen.

    Thirty bits of SHA-256 of the name: the same on every machine, so that two processes that meet a new pool at once
    agree. A clash of two names is refused by `shards`.
    """
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") >> 2
    return "".join(CODE_ALPHABET[(number >> shift) & 31] for shift in range(25, -1, -5))


def split_public_id(public_id: str) -> tuple[str, int, str] | None:
    """`(code, shard, id)` of a public job id, or None when it has not that form."""
    match = PUBLIC_ID_FORM.fullmatch(public_id)
    return (match[1], int(match[2]), match[3]) if match else None
