"""The NVTX domain: what the library gives, typed, and the attributes of every range, made once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

import nvtx  # type: ignore[import-untyped] # it comes without types; what is used of it is described below

from sglang_fence.catalogue.ranges import COLORS, NVTX_DOMAIN, NVTX_RANGES, UNLISTED_COLOR, UNLISTED_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

UNLISTED_ALLOWED = 64
"""So many names that aren't the catalogue's are registered; a tool keeps a registered string for good."""


class Attributes(Protocol):
    """What an event says. Made once, and changed before each use: the tool reads it during the call."""

    payload: int


class Counter(Protocol):
    """A track of numbers."""

    def sample(self, value: float) -> None:
        """Record ``value`` for now."""

    def batch_submit(self, values: Sequence[float], timestamps: Sequence[int]) -> None:
        """Record each value at its timestamp."""


class Domain(Protocol):
    """A domain that a tool listens to."""

    def get_category_id(self, name: str) -> int:
        """Return the number of a category, made at its first use."""

    def get_event_attributes(self, message: str, color: int, category: int | None = None) -> Attributes | None:
        """Make attributes; None where no tool listens."""

    def push_range(self, attributes: Attributes) -> None:
        """Begin a range on this thread."""

    def pop_range(self) -> None:
        """End the innermost range of this thread."""

    def mark(self, attributes: Attributes) -> None:
        """Record a moment."""

    def get_timestamp(self) -> int:
        """Return the time by the tool's clock; 0 where the tool gives none."""


def open_domain() -> Domain | None:
    """Return the project's domain, or None where no tool listens to it.

    None where none is attached, where NVTX is disabled (``NVTX_DISABLE``), and where the tool excludes the domain.
    """
    if not nvtx.enabled():
        return None
    domain = cast("Domain", nvtx.get_domain(NVTX_DOMAIN))
    # Without a listener the library hands out a stand-in, which makes no attributes.
    return None if domain.get_event_attributes(NVTX_RANGES[0].name, NVTX_RANGES[0].color) is None else domain


def make_counter(domain: Domain, name: str, unit: str, text: str) -> Counter | None:
    """Make a counter of numbers that aren't negative; None where the library has none (``nvtx`` before 0.2.17)."""
    library: Any = nvtx
    get_counter = getattr(domain, "get_counter", None)
    if get_counter is None:
        return None
    semantics = library.CounterSemantics(unit=unit, min=0.0)
    return cast("Counter", get_counter(name, float, description=text, semantics=semantics))


class RangeAttributes(dict[str, Attributes]):
    """Attributes by the name of the range: the catalogue's at once, others at their first use.

    A name that the catalogue doesn't list is shown under it, grey and without a category, so that a backend from
    elsewhere may have ranges of its own. Beyond :data:`UNLISTED_ALLOWED` of them, all share one name.
    """

    def __init__(self, domain: Domain) -> None:
        super().__init__()
        self._domain = domain
        categories = {category: domain.get_category_id(category.value) for category in COLORS}
        for row in NVTX_RANGES:
            self[row.name] = _made(domain.get_event_attributes(row.name, row.color, categories[row.category]))
        self._others = _made(domain.get_event_attributes(UNLISTED_NAME, UNLISTED_COLOR))
        self._room = len(self) + UNLISTED_ALLOWED

    def __missing__(self, name: str) -> Attributes:
        if len(self) >= self._room:
            return self._others
        made = self[name] = _made(self._domain.get_event_attributes(name, UNLISTED_COLOR))
        return made


def _made(attributes: Attributes | None) -> Attributes:
    if attributes is None:
        msg = "the NVTX library makes no attributes, though a tool listens"
        raise RuntimeError(msg)
    return attributes
