"""Several records of one person: what releases of all records cost for a group of them.

Replacing m records one after the other moves what is counted by m times the sensitivity at most (the triangle
inequality in L2). So noise that is z sensitivities of one record is z/m sensitivities of the group, and a Gaussian
release costs a group exactly what Gaussian(z/m) costs one record. Batches that are drawn are priced differently, and
are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dpot.privacy.errors import InvalidParameter
from dpot.privacy.events import Event, Gaussian


def of_group(event: Event, most: int) -> Event:
    """The same release as it is for up to `most` records together."""
    if most == 1:
        return event
    if not isinstance(event, Gaussian):
        raise InvalidParameter(
            f"privacy.most={most}: several records of a person are accounted for Gaussian releases of all records, not "
            f"for {type(event).__name__}"
        )
    return replace(event, noise_multiplier=event.noise_multiplier / most)


def for_group(spending: Mapping[Event, int], most: int) -> dict[Event, int]:
    """All releases, likewise."""
    found: dict[Event, int] = {}
    for event, times in spending.items():
        own = of_group(event, most)
        found[own] = found.get(own, 0) + times
    return found
