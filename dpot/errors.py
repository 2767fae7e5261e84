"""The errors a user can do something about. Each message is one line that says what to do."""

from collections.abc import Sequence


class DpotError(Exception):
    """Something the user can act on; shown as one line, never as a traceback (exit code 1)."""

    exit_code = 1
    listed: Sequence[str] = ()  # lines below the message: what there is to choose from, or all that is wrong


class UsageError(DpotError):
    """The command or configuration asks for something impossible (exit code 2)."""

    exit_code = 2


class DataError(DpotError):
    """A data file is missing, truncated, corrupt or not what it claims to be."""


class PrivacyError(DpotError):
    """A privacy argument would not hold: wrong parameters, a mismatch, or an exhausted budget."""


class TrainingError(DpotError):
    """Training cannot go on, for instance because the loss is no longer a number."""
