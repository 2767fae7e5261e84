"""One file per method; each is a class that trains a generator and charges the ledger for what it touches."""
