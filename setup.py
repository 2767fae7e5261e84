"""What pyproject.toml cannot say: folders at the top of the repository become data inside the package.

conf/ is dpot/conf in a wheel, and so on; dpot/config.py finds them in either place.
"""

from setuptools import find_packages, setup

PACKED = {"dpot.conf": "conf", "dpot.experiments": "experiments", "dpot.results.published": "results/published"}

setup(
    include_package_data=False,  # what is named below, and nothing else
    packages=[*find_packages(include=["dpot*"]), *PACKED],
    package_dir=PACKED,
    package_data={"dpot": ["py.typed", "**/templates/*", "**/*.schema.json"]}
    | {name: ["**/*.yaml"] for name in PACKED},
    exclude_package_data={"dpot.conf": ["local/*"]},  # one's own defaults, never committed
)
