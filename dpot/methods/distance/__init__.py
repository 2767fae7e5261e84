"""Transport distances between the records of two parties, one file per protocol."""
