"""Sessions on a cluster whose processes are killed, retired, added and restarted.

`steps` draws a session from a seed; `asks` and `events` play its steps on a `stage`, a LocalCluster
with nannies and up to three clients, one of them plain; `questions` knows what every answer must
be, computed in memory without dask; `playing` tells what is wrong with a step.

A step fails where

- an answer is not the known one, or an error comes that is not the user's own;
- something is cancelled that nobody cancelled;
- it takes longer than its deadline;
- an error of ours was logged, which is swallowed otherwise, or an AssertionError of the scheduler,
  which validates its state;
- after all was let go of, and the cache cleared, a worker holds a byte or the scheduler a task.

Workers are killed at deterministic points only: between two computations, when the nth task since
the last step starts or is done (`killer`), or by a task at its nth call (`tasks.fatal`).

A seed is replayed by

    PYTHONPATH=.:tests python -m chaos --seed 3 [--steps 300] [--verbose] [--plain]

Where a step fails, all up to it is played three times with plain clients. It is ours unless one of
them fails in the same way.

Left out is what plain dask does wrong by itself:

- restarting a worker while others fetch from it: a fetch may never end. So a worker is restarted
  between two computations here; `benchmarks/chaos.py` does it at any time;
- where a key is submitted again with other dependencies than before, the new ones are never
  forgotten (`Stage.find_orphans`), and `Client.restart` stumbles over them;
- cancelling a key and asking for it again before the scheduler has answered (`events.settle`).
"""
