"""Every error that the product raises on purpose; `service.errors` maps them to statuses.

Messages name fields and bounds. None ever holds received text, a driver's words or a stored value.
"""

from __future__ import annotations


class ChunkstoreError(Exception):
    """Base of all of them."""


class InvalidFieldError(ChunkstoreError, ValueError):
    """A field's value is outside its bounds.

    `field` is a path such as `chunks[3].text`; `problem` completes the sentence "<field> ...".
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field = field
        self.problem = problem

    def within(self, parent: str) -> InvalidFieldError:
        """The same error with its field below `parent`, or as the parent itself where it names no field."""
        return type(self)(f"{parent}.{self.field}" if self.field else parent, self.problem)


class ChunkIdMismatchError(InvalidFieldError):
    """A supplied chunk id is not the one derived from source id and text."""


class InvalidVectorError(InvalidFieldError):
    """A vector without a usable direction: not finite, zero, or of a norm outside the safe range."""


class InvalidTenantError(InvalidFieldError):
    """A missing or malformed tenant id."""


class TenantFilterRefusedError(InvalidFieldError):
    """A filter has a condition on the tenant."""


class DimensionMismatchError(ChunkstoreError):
    """Two widths disagree: a vector's, a provider's or a table's (`actual`) with the store's (`expected`).

    `field` is the path of the offending vector, empty where no field is at fault; `message` replaces the usual one.
    """

    def __init__(self, *, expected: int, actual: int, field: str = "", message: str = "") -> None:
        super().__init__(message or f"{field or 'vector'} has {actual} dimensions, the store has {expected}")
        self.expected = expected
        self.actual = actual
        self.field = field

    def within(self, parent: str) -> DimensionMismatchError:
        """The same error with its field below `parent`."""
        return DimensionMismatchError(expected=self.expected, actual=self.actual, field=f"{parent}.{self.field}")


class ChunkNotFoundError(ChunkstoreError):
    """The tenant has no such chunk."""

    def __init__(self) -> None:
        super().__init__("no such chunk")


class SourceChangedError(ChunkstoreError):
    """The source's revision is `actual`, not the `expected` one that a write was based on; 0 means absent."""

    def __init__(self, *, expected: int, actual: int) -> None:
        super().__init__(f"the source is at revision {actual}, not at {expected}")
        self.expected = expected
        self.actual = actual


class RetrievalDegradedError(ChunkstoreError):
    """No requested channel answered, or a required one did not: the names of those that are missing, and the others."""

    def __init__(self, *, missing: tuple[str, ...], answered: tuple[str, ...] = ()) -> None:
        super().__init__(f"a channel did not answer: {', '.join(missing)}")
        self.missing = missing
        self.answered = answered


class CorpusChangedError(ChunkstoreError):
    """A page was asked for of the corpus at revision `expected`, and the corpus is at `actual`."""

    def __init__(self, *, expected: int, actual: int) -> None:
        super().__init__(f"the corpus is at revision {actual}, the pages before are of revision {expected}")
        self.expected = expected
        self.actual = actual


class RankingChangedError(ChunkstoreError):
    """A page was asked for of a ranking to which `channels`, by their names, gave something else than they do now."""

    def __init__(self, channels: tuple[str, ...]) -> None:
        super().__init__(f"a channel ranks otherwise than for the pages before: {', '.join(channels)}")
        self.channels = channels


class EmbeddingFailedError(ChunkstoreError):
    """The embedding provider gave no vectors, for `problem`; trying again later may help."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"embedding failed: {problem}")
        self.problem = problem


class EmbeddingQuotaError(EmbeddingFailedError):
    """The embedding provider refused for its rate limit until the time to try again ran out."""


class EmbeddingRejectedError(EmbeddingFailedError):
    """The embedding provider refuses these very texts; trying again will not help."""


class StoreUnavailableError(ChunkstoreError):
    """The database cannot be reached, or ended the connection under a call."""

    def __init__(self) -> None:
        super().__init__("the database cannot be reached")


class NoFreeConnectionError(ChunkstoreError):
    """No database connection became free within `timeout` seconds."""

    def __init__(self, timeout: float) -> None:
        super().__init__(f"no database connection became free within {timeout * 1000:.0f} ms")
        self.timeout = timeout


class SnapshotExpiredError(ChunkstoreError):
    """What a snapshot holds has been changed since; it must be read again through a pinned one."""

    def __init__(self) -> None:
        super().__init__("the corpus changed while it was read")


class StoreMismatchError(ChunkstoreError):
    """An existing store was made with another analyzer, model or layout than asked for; the message says what to do."""
