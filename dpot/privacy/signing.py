"""Signatures of the curator: who vouches for a released file.

A digest tells that a file was changed, unless the digest was changed along with it. An Ed25519 signature of the digest
cannot be made without the curator's key. It lies beside the file (`release.safetensors.sig`), so that a file can be
signed after it was made, and somebody without the key, or without the library, can read it all the same.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from dpot.disk import write_atomically
from dpot.errors import DataError, UsageError

SUFFIX = ".sig"
PURPOSE = b"dpot release\n"  # what is signed begins with it: a signature for another purpose does not fit


def signature_of(path: Path) -> Path:
    """Where the signature of a file lies."""
    return path.with_name(path.name + SUFFIX)


def sign(path: Path, digest: str, key: Path) -> str:
    """Sign a file by its digest; gives the curator's public key. A key that is not there yet is made."""
    made = _private(key)
    public = made.public_key().public_bytes_raw().hex()
    signed = {"digest": digest, "public_key": public, "signature": made.sign(_message(digest)).hex()}
    write_atomically(signature_of(path), json.dumps(signed, indent=1) + "\n")
    return str(public)


def check_signature(path: Path, digest: str, public: Path | None) -> str | None:
    """The key that signed the file, None if nobody did; a signature that does not fit is refused.

    `public`: the curator's key, as its owner gave it to the reader; the file must be signed with it.
    """
    place = signature_of(path)
    if not place.exists():
        if public is not None:
            raise DataError(f"{path}: not signed; its signature would be {place.name} beside it")
        return None
    ed25519, _, invalid = _library()
    try:
        stored = json.loads(place.read_bytes()[: 1 << 16])
        key, signature = bytes.fromhex(stored["public_key"]), bytes.fromhex(stored["signature"])
        ed25519.Ed25519PublicKey.from_public_bytes(key).verify(signature, _message(digest))
    except invalid:
        raise DataError(f"{place}: not a signature of this file: one of the two was changed") from None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{place}: cannot be read as a signature ({type(error).__name__})") from None
    if public is not None and key != _public(public):
        raise DataError(f"{place}: signed with the key {key.hex()}, which is not the one of {public}")
    return key.hex()


def _message(digest: str) -> bytes:
    return PURPOSE + digest.encode()


def _private(key: Path) -> Any:
    ed25519, coding, _ = _library()
    if not key.exists():
        made = ed25519.Ed25519PrivateKey.generate()
        content = made.private_bytes(coding.Encoding.PEM, coding.PrivateFormat.PKCS8, coding.NoEncryption())
        with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        write_atomically(key.with_name(key.name + ".pub"), made.public_key().public_bytes_raw().hex() + "\n")
    try:
        found = coding.load_pem_private_key(key.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"task.sign={key}: cannot be read as a private key ({type(error).__name__})") from None
    if not isinstance(found, ed25519.Ed25519PrivateKey):
        raise UsageError(f"task.sign={key}: not an Ed25519 key")
    return found


def _public(path: Path) -> bytes:
    try:
        return bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError) as error:
        raise UsageError(f"task.key={path}: cannot be read as a public key ({type(error).__name__})") from None


def _library() -> tuple[Any, Any, Any]:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise UsageError("signatures need a library that is not installed: pip install 'dpot[sign]'") from None
    return ed25519, serialization, InvalidSignature
