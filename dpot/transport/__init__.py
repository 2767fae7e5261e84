"""Distances and losses between point clouds, as pure tensor functions: no privacy, no configuration.

| loss | where |
|---|---|
| sliced Wasserstein, Gaussian-smoothed (DP-SWD), max-sliced, projected | sliced.py, on directions.py |
| Sinkhorn cost and divergences (DP-Sinkhorn) | sinkhorn.py, solved by solvers.py or on a GPU by kernels/sinkhorn.py |
| MMD by random Fourier features (DP-MERF) | mmd.py |
| exact transport and interpolating measures (FedWad, TriangleWad) | exact.py, geodesic.py |
| labelled data as points (OTDD) | otdd.py |
"""

from dpot.transport.directions import (
    cosine_directions,
    gabor_directions,
    given_directions,
    localised_directions,
    smoothed_directions,
    uniform_directions,
)
from dpot.transport.exact import (
    Measure,
    barycentric_interpolation,
    exact_plan,
    exact_wasserstein,
    interpolating_measure,
)
from dpot.transport.mmd import fourier_features, fourier_frequencies, mean_embedding, squared_mmd
from dpot.transport.sinkhorn import (
    Converged,
    annealed_temperatures,
    bounding_box_diameter,
    fresh_rows,
    joint_points,
    semi_debiased_sinkhorn,
    sinkhorn_cost,
    sinkhorn_divergence,
)
from dpot.transport.sliced import (
    gaussian_smoothed_sliced_wasserstein_power,
    max_sliced_wasserstein,
    project,
    projected_wasserstein_power,
    sliced_wasserstein,
    sliced_wasserstein_power,
    steepest_direction,
    wasserstein_1d,
)

__all__ = [
    "Converged",
    "Measure",
    "annealed_temperatures",
    "barycentric_interpolation",
    "bounding_box_diameter",
    "cosine_directions",
    "exact_plan",
    "exact_wasserstein",
    "fourier_features",
    "fourier_frequencies",
    "fresh_rows",
    "gabor_directions",
    "gaussian_smoothed_sliced_wasserstein_power",
    "given_directions",
    "interpolating_measure",
    "joint_points",
    "localised_directions",
    "max_sliced_wasserstein",
    "mean_embedding",
    "project",
    "projected_wasserstein_power",
    "semi_debiased_sinkhorn",
    "sinkhorn_cost",
    "sinkhorn_divergence",
    "sliced_wasserstein",
    "sliced_wasserstein_power",
    "smoothed_directions",
    "squared_mmd",
    "steepest_direction",
    "uniform_directions",
    "wasserstein_1d",
]
