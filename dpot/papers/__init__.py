"""One folder per paper: its claims as checks, and the tables and figures of it that are computed, not trained.

A sheet in experiments/ names the function that computes it (`compute: dpot.papers.dp_swd.accounting.table_4`); the
function's signature holds its options, and it returns a `Computed`. Each folder's claims.py has the list CLAIMS.
"""
