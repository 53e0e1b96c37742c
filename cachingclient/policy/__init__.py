"""What a result is worth.

Three policies, of which ``cachingclient.policy`` of the configuration takes one. A policy says
which kept keys may go, the least valuable first, and what a newcomer is worth; the ledger keeps
the limits and does the rest. All take the time from outside, in seconds.

group (the default)
-------------------
One record per task group, that is, per layer: what is true of one chunk is true of all.

``score = f * paid / nbytes``, a hundredth of it if nothing alive needs the group, and a
hundredth if it is worth nothing because a part is missing

f
    Requests that needed the group, found kept or computed, each counted once; they fade with
    wall time, ``exp(-age / tau)``, and are remembered for a while after the group was evicted.
    ``tau`` is 300 s, and 150 s while nobody tells what is alive. Where somebody does, the first
    request counts twice (what is held and asked for once is asked for again), and one that needs
    a part of the keys counts that part.
paid
    Seconds of task time that a key had cost in the request that computed it: its own, and what
    its dependencies had cost in the same request (`cachingclient.paying`). The mean over the
    keys of the group.
nbytes
    Mean bytes of a value, plus what a key costs the scheduler (`KEY_OVERHEAD`).
alive
    Three-valued, and soft: where a client told that no collection needs the layer any more it
    counts `DEAD`; where nobody told anything there is no penalty.
missing parts
    Each output of a shuffle takes a piece of every input. What a missing one costs is the whole
    shuffle: groups of outputs are worth something whole.

past keys
    What windows leave behind: keys of a group that comes back, and they not for longer than is
    usual in the group, count `PAST` of the others.

A group that comes back after it was evicted has to be worth a tenth more than what goes for it.
Inside a group the key goes first that was not needed for the longest time. A newcomer pushes out
only what scores lower than its group, so never its equals: a scan of what does not fit keeps
what was there first. It costs no graph search.

cachey
------
``score = paid / nbytes * sum over requests r of base ** number(r)``, one record per key, as
cachey has it, with its bookkeeping made sound (`cachingclient.policy.cachey`).

lru
---
The key that was not needed for the longest time goes first, whatever it had cost.

Units
-----
Seconds and bytes. The unit of a score is its policy's: scores of two policies say nothing of
each other.

References
----------
cachey
    https://github.com/dask/cachey, time / bytes x frequency, fading with use.
GreedyDual-Size-Frequency
    L. Cherkasova, Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching
    Policy, HP Laboratories HPL-98-69 (1998); after P. Cao and S. Irani, Cost-Aware WWW Proxy
    Caching Algorithms, USITS (1997). frequency x cost / size above a clock that evictions move.
LRC
    Y. Yu, W. Wang, J. Zhang, K. B. Letaief, LRC: Dependency-Aware Cache Management for Data
    Analytics Clusters, INFOCOM (2017). What nothing needs any more goes first: liveness.
MRD
    T. B. G. Perez, X. Zhou, D. Cheng, Reference-distance Eviction and Prefetching for Cache
    Management in Spark, ICPP (2018). What is needed last goes first.
Yang et al. 2018
    Z. Yang, D. Jia, S. Ioannidis, N. Mi, B. Sheng, Intermediate Data Caching Optimization for
    Multi-Stage and Parallel Big Data Frameworks, IEEE CLOUD (2018). Which nodes of a graph to
    keep so that the work is least: what losing one costs depends on what else is kept.
LIMA, MEMPHIS
    A. Phani, B. Rath, M. Boehm, LIMA: Fine-grained Lineage Tracing and Reuse in Machine Learning
    Systems, SIGMOD (2021); A. Phani, M. Boehm, MEMPHIS: Holistic Lineage-based Reuse and Memory
    Management for Multi-backend ML Systems, EDBT (2025). Names of inputs and operations tell what
    can be reused; evicted entries are remembered.
"""

from __future__ import annotations

from collections.abc import Callable

from cachingclient.policy.cachey import CacheyPolicy
from cachingclient.policy.group import GroupPolicy
from cachingclient.policy.interface import KEY_OVERHEAD, Policy
from cachingclient.policy.lru import LRUPolicy

__all__ = [
    "KEY_OVERHEAD",
    "POLICIES",
    "CacheyPolicy",
    "GroupPolicy",
    "LRUPolicy",
    "Policy",
    "make_policy",
]

#: {name in the configuration: makes one, given the halflife in requests}
POLICIES: dict[str, Callable[[int], Policy]] = {
    "group": lambda halflife: GroupPolicy(),
    "cachey": CacheyPolicy,
    "lru": lambda halflife: LRUPolicy(),
}


def make_policy(name: str, halflife: int = 100) -> Policy:
    """Make the policy that the configuration names.

    Parameters
    ----------
    name : str
        One of `POLICIES`.
    halflife : int
        Requests after which a request counts half, for ``cachey``.

    Raises
    ------
    ValueError
        If there is no such policy.

    Examples
    --------
    >>> make_policy("lru")
    <LRUPolicy of 0 keys>
    >>> make_policy("fifo")
    Traceback (most recent call last):
        ...
    ValueError: policy must be one of cachey, group, lru, got 'fifo'
    """
    if name not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(sorted(POLICIES))}, got {name!r}")
    return POLICIES[name](halflife)
