"""Private generators, one file per method."""
