"""Downloads that end: bounded time-outs, a few mirrors, a verified checksum, and an atomic rename."""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from dpot.data.files import locked, writable
from dpot.data.progress import Meter
from dpot.errors import DataError

log = logging.getLogger("dpot.data")

TIMEOUT_SECONDS = 10.0  # to connect, and for each read
SLOW_WINDOW_SECONDS = 30.0  # a server that sends less than SLOW_BYTES in this time has hung
SLOW_BYTES = 64 * 1024
CHUNK = 256 * 1024


@dataclass(frozen=True)
class Remote:
    """A file on the network: mirrors in order, its published checksum, and the most it may weigh.

    The checksum is written 'md5:…' or 'sha256:…'; at least its first 8 digits, which is what PyTorch's hub gives.
    """

    urls: tuple[str, ...]
    checksum: str
    at_most: int

    def __post_init__(self) -> None:
        if len(self.checksum.partition(":")[2]) < 8:
            raise ValueError(f"a download without a checksum is not verified: {self.checksum!r}")


class _Failed(Exception):
    """One mirror did not give the file; the message says why."""


def fetch(remote: Remote, target: Path) -> Path:
    """Put the remote file at target. A second process waits for the first and finds the file there."""
    name = hashlib.sha256(os.fsencode(target.absolute())).hexdigest()[:24]
    with locked(f"download-{name}", f"downloading {target.name}"):
        if target.is_file():
            return target
        if os.environ.get("DPOT_OFFLINE", "") not in ("", "0"):
            raise DataError(f"{target.name} is not at hand and DPOT_OFFLINE forbids to download it")
        created = [p for p in (target.parent, *target.parent.parents) if not p.exists()]
        with writable(target.parent):
            target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        reasons = []
        for url in remote.urls:
            try:
                _download(url, part, remote)
                os.replace(part, target)
                return target
            except _Failed as failure:
                log.warning("%s: %s", url, failure)
                reasons.append(f"{urlsplit(url).hostname}: {failure}")
            finally:
                with suppress(OSError):
                    part.unlink()
        for folder in created:  # a failed download leaves no trace, not even an empty folder
            with suppress(OSError):
                folder.rmdir()
    raise DataError(f"{target.name} could not be downloaded ({'; '.join(reasons)})")


def _download(url: str, part: Path, remote: Remote) -> None:
    """Stream url into part and verify it. Redirects are followed within http and https only."""
    algorithm, _, wanted = remote.checksum.partition(":")
    digest = hashlib.new(algorithm)
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    request = urllib.request.Request(url, headers={"User-Agent": "dpot"})
    try:
        with opener.open(request, timeout=TIMEOUT_SECONDS) as response:
            length = response.headers.get("Content-Length")
            total = int(length) if length and length.isdigit() else None
            if total is not None and total > remote.at_most:
                raise _Failed(f"offers {total:,} bytes, more than the {remote.at_most:,} expected")
            log.info("downloading %s (%s bytes)", url, f"{total:,}" if total else "?")
            with writable(part.parent):
                f = part.open("wb")
            with f:
                _copy(response, f, digest, Meter(f"downloading {part.name[1:-5]}", total), remote.at_most)
    except _Failed:
        raise
    except urllib.error.HTTPError as error:
        raise _Failed(f"answered {error.code}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = getattr(error, "reason", error)
        timed_out = isinstance(cause, TimeoutError)
        raise _Failed(f"no answer within {TIMEOUT_SECONDS:g} s" if timed_out else str(cause)) from None
    got = digest.hexdigest()
    if not got.startswith(wanted):
        raise _Failed(f"sent a truncated or wrong file ({algorithm} {got}, published {wanted})")


def _copy(response: Any, f: IO[bytes], digest: Any, meter: Meter, at_most: int) -> None:
    """Copy as the bytes come (read1: one receive each), so that a dripping server is noticed."""
    window_start, window_bytes, total = time.monotonic(), 0, 0
    with meter:
        while block := response.read1(CHUNK):
            total += len(block)
            window_bytes += len(block)
            if total > at_most:
                raise _Failed(f"sent more than the {at_most:,} bytes expected")
            digest.update(block)
            with writable(Path(f.name).parent):
                f.write(block)
            meter.advance(len(block))
            elapsed = time.monotonic() - window_start
            if elapsed > SLOW_WINDOW_SECONDS:
                if window_bytes < SLOW_BYTES:
                    raise _Failed(f"sent only {window_bytes} bytes in {elapsed:.0f} s")
                window_start, window_bytes = time.monotonic(), 0
        with writable(Path(f.name).parent):
            f.flush()
            os.fsync(f.fileno())
