"""What is learned from: one module per kind of source; files are located, downloaded, verified, decoded once.

A config node of the group `dataset` describes a Source (or, for domain adaptation, an Adaptation);
`.load(data_root)` gives a Dataset (or a Pair). See docs/data.md.
"""
