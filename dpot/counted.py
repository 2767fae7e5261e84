"""The account of records that were handed over in memory: a second fit of the same records is a second release."""

from __future__ import annotations

import hashlib
import uuid

from torch import Tensor

from dpot.data.files import cache_root, keyed_digest
from dpot.privacy.spending import Account, Spending


def account_of(records: Tensor, labels: Tensor) -> Account:
    """Known again by their values as they are counted; every fit is an owner of its own, since it draws anew."""
    content = hashlib.sha256(str(tuple(records.shape)).encode())
    for part in (*records.cpu().split(10_000), labels.cpu()):
        content.update(part.contiguous().numpy().data)
    spending = Spending.of(cache_root() / "spending", keyed_digest(content.digest()))
    return spending.account(uuid.uuid4().hex)


def warning_of(account: Account, total: str | None) -> str | None:
    """What to say where these records had been released before."""
    if account.spending.releases() < 2:
        return None
    return f"these records have been released before, and ε adds up over releases of the same records: {total}"
