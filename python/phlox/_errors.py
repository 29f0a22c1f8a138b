# SPDX-License-Identifier: Apache-2.0
"""Exceptions that crossed a thread or a process, raised again with their place."""
import traceback


class KeyErrorMessage(str):
    """KeyError shows the repr of its argument; this text's repr is itself, so that lines stay
    lines."""

    __repr__ = str.__str__


def raise_caught(cls, text, where):
    """Raises an exception of a class that was met elsewhere: where, and its traceback as a text."""
    message = f"Caught {cls.__name__} {where}.\nOriginal {text}"
    try:
        made = cls(KeyErrorMessage(message) if issubclass(cls, KeyError) else message)
    except Exception:  # a class that cannot be made from a text alone
        made = RuntimeError(message)
    raise made


def rewrap(exception, where):
    """Raises an exception again, with the place where it was met."""
    # What the library itself raised has no Python frames, and no heading of theirs.
    heading = "" if exception.__traceback__ else "Traceback (most recent call last):\n"
    raise_caught(type(exception), heading + "".join(traceback.format_exception(exception)), where)
