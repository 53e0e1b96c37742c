"""A static look at functions: whether they are pure, and whether they are still the same.

Nothing of the user's is run: bytecode is read, and names are looked up where they are kept.

`bytecode` and `outline` read what a code object uses; `scope` finds what its names stand for, and
`objects` what those are; `walk` goes on to the user's functions that it calls, `calls` also to
those that `holders` hold, and with what is `given`; `tables` knows what is impure, and `made` what
is so only of some that a function makes; `impure` and `prints` answer; `watch` remembers answers as
long as they hold.

It cannot see what arguments do when they are called, what is computed (``getattr(np, name)``), and
what installed packages do under names that say nothing of it.
"""

from cachingclient.inspection.given import Given
from cachingclient.inspection.impure import impurity, logs
from cachingclient.inspection.prints import fingerprint, parts, print_alone
from cachingclient.inspection.values import at_one_moment

__all__ = ["Given", "at_one_moment", "logs", "fingerprint", "impurity", "parts", "print_alone"]
