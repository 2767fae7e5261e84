"""Classifiers trained on private records, one file per method."""
