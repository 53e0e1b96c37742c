"""Warnings that reach the user each time that they are given."""

from __future__ import annotations

import warnings


def unused(error: BaseException) -> str:
    """What users are told of an error that made the cache stand aside, by whichever part of it.

    Examples
    --------
    >>> unused(AttributeError("_name\\nand more"))
    'The cache was not used, because of AttributeError: _name'
    """
    reason = str(error).partition("\n")[0]
    return f"The cache was not used, because of {type(error).__name__}: {reason}"


def tell(text: str) -> None:
    """Warn the user.

    Most is told from the event loop's thread, where no line of the user's is to be found. All of
    it would seem to come from the same line of asyncio, and Python shows a text once a line: the
    second client would hear nothing.

    Parameters
    ----------
    text : str

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("default")
    ...     for _ in range(2):
    ...         tell("Nothing is kept.")
    >>> len(caught)
    2
    """
    # Line 0 is none, so that none of it is shown.
    warnings.warn_explicit(text, UserWarning, __file__, 0, module="cachingclient", registry={})
