"""Domain adaptation to a private target, one file per method."""
