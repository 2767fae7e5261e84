"""The sliced sketch: one release of soft histograms, then any amount of fitting."""
