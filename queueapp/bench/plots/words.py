"""What each plot is called in the report, and how it is read."""

from __future__ import annotations

from collections.abc import Mapping

TITLES: Mapping[str, str] = {
    "latency_percentiles": "Latency",
    "tail_ratio": "Tail",
    "tenant_skew": "Tenants beside each other",
    "priority_starvation": "Priorities",
    "starvation": "Starvation",
    "deadline_misses": "Deadlines",
    "jain": "Fairness as an index",
    "throughput": "Throughput",
    "utilisation": "Utilisation",
    "load_curves": "Over the load",
    "dispatch_modes": "Who dispatches",
    "failover_outages": "Failover",
    "ceiling": "Ceiling",
    "peers_aof_on": "Other queues, append-only file on",
    "peers_aof_off": "Other queues, append-only file off",
}
HOW_TO_READ: Mapping[str, str] = {
    "latency_percentiles": (
        "From the planned arrival of a job to its end. Further left is better. A policy that moves p50 to the left "
        "and p99 to the right serves some jobs at the cost of others."
    ),
    "tail_ratio": "How much worse the worst percent has it than the middle: 1 would be the same for all.",
    "tenant_skew": (
        "Under a fair policy the small tenants stand far left of the big one, whose own work is what it waits for. "
        "Where all stand together, everybody waits for the one that floods."
    ),
    "priority_starvation": (
        "A line that falls to the right serves the urgent first; how high it begins is what the least urgent pay. A "
        "level line does not look at priorities."
    ),
    "starvation": "The one job that waited longest. Means of the repetitions' longest waits, not the longest of all.",
    "deadline_misses": (
        "Of completed jobs that have a deadline. Read it with the longest wait: deadlines are kept at somebody's cost."
    ),
    "jain": (
        "1: all tenants had the same. 1/n: one had it all. Where their demand is unequal, so is this, under any policy."
    ),
    "throughput": "Policies decide who waits, not how much is done: dots in a line are as it should be.",
    "utilisation": (
        "Slots that idle while work waits are a fault; slots that idle at the end, after a long job, are not."
    ),
    "load_curves": (
        "Below 1 there is hardly a queue, and nothing for a policy to decide. Far above it everybody waits for the "
        "work as a whole. Policies differ in between."
    ),
    "dispatch_modes": (
        "The distance from none is what choosing costs; that from direct to scheduled is what it costs that a leader "
        "chooses."
    ),
    "failover_outages": (
        "Each dot is a trial. Hatched: trials after which nobody followed for as long as was waited; they count as "
        "longer than any other."
    ),
    "ceiling": (
        "What a leader takes when all jobs wait already; the distance of the two lines is the price of the fence."
    ),
    "peers_aof_on": "On one server and machine, in turn. More is better above, less below.",
    "peers_aof_off": "On one server and machine, in turn. More is better above, less below.",
}
