"""What a release is made of: every package with its version, and hashes that pip can hold files to."""

import pytest


@pytest.fixture(scope="module")
def materials(script):
    return script("materials")


def test_the_bill_lists_what_dpot_needs_and_nothing_for_development(materials):
    bill, versions = materials.bill(), materials.constrained()
    listed = {part["name"]: part["version"] for part in bill["components"]}
    assert {"torch", "hydra-core", "numpy", "safetensors", "hydra-joblib-launcher"} <= set(listed)
    assert not {"pytest", "ruff", "mypy", "hypothesis"} & set(listed)
    assert all(versions[name] == version for name, version in listed.items())
    assert bill["metadata"]["component"]["name"] == "dpot"
    references = {part["bom-ref"] for part in [*bill["components"], bill["metadata"]["component"]]}
    assert {edge["ref"] for edge in bill["dependencies"]} == references
    assert all(set(edge["dependsOn"]) <= references for edge in bill["dependencies"])


def test_every_package_of_the_bill_has_pinned_hashes_of_the_same_version(materials):
    text = materials.HASHED.read_text()
    pinned = dict(line.split(" ")[0].split("==") for line in text.splitlines() if "==" in line)
    assert pinned == {part["name"]: part["version"] for part in materials.bill()["components"]}
    assert all(len(line.split("sha256:")[1].split(" ")[0]) == 64 for line in text.splitlines() if "--hash" in line)


def test_hashes_are_read_from_a_page_of_an_index(materials):
    links = {
        "some_thing-1.0-py3-none-any.whl": "a" * 64,
        "Some.Thing-1.0.tar.gz": "b" * 64,
        "some_thing-1.0-cp312-cp312-manylinux_2_28_x86_64.whl": "c" * 64,
        "some_thing-1.0-cp312-cp312-win_amd64.whl": "d" * 64,
        "some_thing-1.0.1-py3-none-any.whl": "e" * 64,
        "some_thing_else-1.0-py3-none-any.whl": "f" * 64,
    }
    page = "\n".join(f'<a href="https://host/x/{name}#sha256={sha}">{name}</a>' for name, sha in links.items())
    assert materials.hashes_in(page, "some-thing", "1.0") == ["a" * 64, "b" * 64, "c" * 64]
