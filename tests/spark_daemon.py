"""Spark's own daemon of Python workers, which has loaded torch before it forks them."""

import sys

import spreading  # noqa: F401
from pyspark import daemon

import dpot.spread  # noqa: F401

if __name__ == "__main__":
    sys.exit(daemon.manager())
