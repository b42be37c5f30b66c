"""What the serving process and the one that sends spans say to one another, besides the steps themselves."""

from __future__ import annotations

import marshal
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.sdk.resources import Resource

from sglang_fence_exporters.otel_packing import VERSION

if TYPE_CHECKING:
    from sglang_fence_exporters.otel_address import Address


class Hello(NamedTuple):
    """The first message to the sender."""

    version: int
    parent: int
    """The serving process's identifier."""
    end_s: float
    """So long after the last step it may go on sending."""
    protocol: str
    endpoint: str
    attributes: tuple[tuple[str, object], ...]
    """Of the resource: it describes the serving process."""
    schema_url: str

    @classmethod
    def of(cls, parent: int, end_s: float, address: Address, resource: Resource) -> Hello:
        """Return what to say."""
        attributes = tuple(resource.attributes.items())
        return cls(VERSION, parent, end_s, str(address.protocol), address.endpoint, attributes, resource.schema_url)

    @property
    def resource(self) -> Resource:
        """The resource of the serving process."""
        return Resource(dict(self.attributes), self.schema_url)  # type: ignore[arg-type]  # they were one's before


class Counts(NamedTuple):
    """What became of the steps, all told. The sender says so whenever it changes; the first time, it has started."""

    sent: int = 0
    """The collector has confirmed them."""
    failed: int = 0
    """They were in a batch that failed."""
    declined: int = 0
    """The SDK wanted no spans of them."""
    broken: int = 0
    """Their spans couldn't be built."""
    malformed_links: int = 0
    """Requests whose ``traceparent`` could not be read, counted in each of their steps."""


class Line(NamedTuple):
    """Something to log."""

    logger: str
    level: int
    text: str


def said(message: Hello | Counts | Line) -> bytes:
    """Return a message as bytes."""
    plain: tuple[Any, ...] = tuple(message)
    return marshal.dumps(plain)


def hello_heard(message: bytes) -> Hello:
    """Return what the serving process said first.

    Raises:
        ValueError: it speaks another version.
    """
    fields = marshal.loads(message)  # noqa: S302 - from the other end of our own pipe, and it makes plain values alone
    if fields[0] != VERSION:
        msg = f"the serving process speaks version {fields[0]}, this one {VERSION}: sglang-fence was replaced, restart"
        raise ValueError(msg)
    return Hello(*fields)


def heard(message: bytes) -> Counts | Line:
    """Return what the sender said."""
    fields = marshal.loads(message)  # noqa: S302 - as above
    return Line(*fields) if isinstance(fields[0], str) else Counts(*fields)
