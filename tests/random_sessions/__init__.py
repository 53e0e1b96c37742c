"""Random sessions on a plain client and on ours: nobody must be able to tell them apart.

`steps` draws sessions (lines of code as in a notebook) with the functions of `functions`;
`playing` runs them on a client and notes what a user can see: answers, errors, files, calls;
`comparing` tells whether answers are equal.

Compared is what the contract says:

- answers, with their types, dtypes and indexes; errors, by type and text; files, byte by byte;
- calls of functions that are not pure by their code (a clock, random numbers, a global, a file):
  as many as with a plain client. Their results are the same each time, to be comparable;
- calls of pure functions that nobody called pure (submit without a word, names given by hand,
  delayed without pure=True): the same;
- at the end nothing is left on the scheduler, and no error of ours was logged.

Left out is what plain dask itself does differently from run to run, or against its own rules:

- the order of rows after a shuffle (`tidy`), and sums that depend on it: numbers are whole;
- functions that change what somebody else reads meanwhile: the other readers in the same graph,
  or who holds it. So sessions with such functions hold nothing ("inplace" in `steps.THEMES`), ask
  for one thing at once, and such a function's input comes fresh from a task of its own, not from
  an array or frame of the user's, whose memory workers in the same process share;
- calls while an error or a cancel stops a computation half way;
- a name that is used for something else before the scheduler has forgotten it (`Stage.settle`);
- a name that is cancelled, and computed again before the scheduler has answered;
- collections of several sorts in one dask.compute, which mixes their answers up;
- da.store with a lock: it finds its client by chance where two are in one process;
- unseeded random arrays, whose values differ from session to session;
- files that are rewritten within one tick of the clock (`newer`).
"""
