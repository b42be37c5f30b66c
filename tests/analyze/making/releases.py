"""When the device let go of streams that waited for the marker: at once, or only some 50 µs later.

Behind the marker a forward goes on computing. A stream that waits for it was seen to go on either within a few µs, or
about 50 µs later, as if the device had looked again only then; and two streams that wait for the same event needn't be
let go alike. The observer's copy and the witness's kernel are such streams. So they are compared where both were let go
at once, or both late; and where they weren't alike is counted.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.analyze.making.differing import differences, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.analyze.making.lateness import Calibration, Pair
    from tests.analyze.making.witnessing import Witnessed

LATE_US = 25.0
"""Let go so long behind the node before the marker, or longer, is let go late: what is seen lies far on either side."""


def releases(pairs: Sequence[Pair], known: Calibration) -> dict[str, Any]:
    """Return how long behind the node before the marker each stream was let go, and how they differ where alike."""
    rows: list[tuple[float, float, float, float, float, float | None]] = []
    for row, seen, step in pairs:
        if step is None or step.reads_end is None or seen.began is None:
            continue
        before, end = step.reads_end / 1e3, seen.forward_end / 1e3
        witnessed = seen.began / 1e3 - known.witness_us
        rows.append(
            (
                end - row["slack_us"] - before,
                witnessed - before,
                row["slack_us"],
                end - witnessed,
                row["wait_us"],
                _waited(seen, witnessed, known),
            )
        )
    alike = [one for one in rows if (one[0] < LATE_US) == (one[1] < LATE_US)]
    return {
        "observer_behind_node_us": spread([one[0] for one in rows]),
        "witness_behind_node_us": spread([one[1] for one in rows]),
        "let_go": dict(Counter(_which(one[0] >= LATE_US, one[1] >= LATE_US) for one in rows)),
        "slack_observer_less_witness_when_alike": differences((one[2], one[3]) for one in alike),
        "wait_observer_less_witness_when_alike": differences((one[4], one[5]) for one in alike if one[5] is not None),
    }


def _waited(seen: Witnessed, witnessed: float, known: Calibration) -> float | None:
    """The wait up to the witness's moment, from when the observer's own record before it could read."""
    if seen.wait_call is None or known.record_us is None:
        return None
    return max(0.0, witnessed - max(seen.wait_call.start / 1e3 + known.record_us, seen.idle / 1e3))


def _which(observer: bool, witness: bool) -> str:  # noqa: FBT001 - the two, side by side
    if observer and witness:
        return "both_late"
    if observer:
        return "observer_late"
    return "witness_late" if witness else "both_at_once"
