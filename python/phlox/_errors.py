# SPDX-License-Identifier: Apache-2.0
"""Re-raises exceptions caught in another thread or process, with their origin in the message."""
import traceback


class KeyErrorMessage(str):
    """A message for KeyError, which shows the repr of its argument. Its repr is the text itself,
    which keeps line breaks."""

    __repr__ = str.__str__


def raise_caught(cls, text, where):
    """Raises an exception of class `cls`. `where` is its origin, `text` its traceback."""
    message = f"Caught {cls.__name__} {where}.\nOriginal {text}"
    try:
        made = cls(KeyErrorMessage(message) if issubclass(cls, KeyError) else message)
    except Exception:  # the class has no constructor from a text alone
        made = RuntimeError(message)
    try:
        raise made
    finally:
        del made  # the traceback refers to this frame: no cycle


def rewrap(exception, where):
    """Raises the exception again, with its origin `where` in the message."""
    # An exception of the library itself has no Python frames, so format_exception prints no
    # heading.
    heading = "" if exception.__traceback__ else "Traceback (most recent call last):\n"
    raise_caught(type(exception), heading + "".join(traceback.format_exception(exception)), where)
