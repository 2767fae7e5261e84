"""What is counted and released of the records of tests/spreading.py, to be held against an engine."""

import spreading
import torch

from dpot.methods.sketch.counters import Bins, Cells, Lengths, MomentSums, Pairs
from dpot.methods.sketch.features import Layout, LearnedMap, LinearMap, freeze
from dpot.methods.sketch.textures import Pooled, TextureMap, places_of
from dpot.models.feature_network import HIDDEN, FeatureNetwork
from dpot.synthesis import Synthesizer
from dpot.tables import columns_of


def table_counters():
    columns = columns_of(spreading.TABLE.coding)
    bins = torch.cat([torch.arange(column.values) // 3 for column in columns])
    return [
        Cells(columns=columns, classes=2),
        Pairs(columns=columns, classes=2, bin_of=bins),
        *line_counters(spreading.TABLE.coding.shape, 2, ("dense",)),
    ]


def image_counters():
    shape = (1, 8, 8)
    textures = TextureMap.draw(4, shape, 6, 255, torch.Generator().manual_seed(2))
    pooled = Bins(record_map=textures, layout=Pooled(4, 6, places=places_of(shape)), classes=3)
    return [*line_counters(shape, 3, ("conv", "dense")), pooled]


def line_counters(shape, classes, styles):
    """Every counter of the sliced sketch."""
    torch.manual_seed(1)
    size, layout = shape[0] * shape[1] * shape[2], Layout(7, 5, 2, 3)
    directions = torch.nn.functional.normalize(torch.randn(layout.positions, size), dim=1)
    linear = LinearMap.of(directions, directions.sum(1) / 2, torch.full((layout.positions,), 0.3), layout, 255)
    networks = [freeze(FeatureNetwork(style, shape, classes)) for style in styles]
    mixed = torch.randn(sum(HIDDEN[style] for style in styles), layout.positions)
    learned = LearnedMap(networks, mixed, torch.full((layout.positions,), -2.0))
    return [
        Lengths(shape=shape, grid=255),
        MomentSums(shape=shape, grid=255, parts=64, limit=100),
        Bins(record_map=linear, layout=layout, classes=classes),
        Bins(record_map=learned, layout=layout, classes=classes),
    ]


def in_memory(frame):
    """A table's records as the in-memory path reads them."""
    schema = spreading.TABLE.schema
    fitting = schema.conform(frame)
    return schema.coding.encode(fitting).flatten(1), torch.from_numpy(schema.class_numbers(fitting))


def table_release(given):
    """All that is released of a table."""
    fitted = Synthesizer(2, 1e-6, schema=spreading.SCHEMA, steps=1, device="cpu").fit(given)
    return [fitted.release_.marginals.cells, fitted.release_.marginals.gram, fitted.release_.counts]


def image_release(given, labels):
    """All that is released of images, the learned round too."""
    fitted = Synthesizer(50, 1e-6, classes=range(3), shape=(8, 8), steps=2, device="cpu").fit(given, labels)
    assert [one.kind for one in fitted.release_.rounds] == ["linear", "learned"]
    return [one.noisy for one in fitted.release_.rounds]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def assert_images(there, images, labels):
    """The learned features of images, counted elsewhere, are those of the arrays."""
    counter = image_counters()[3]
    records = torch.from_numpy(images).flatten(1).float() / 255
    assert torch.equal(there.total(counter), counter([(records, torch.from_numpy(labels))]))


def damage(path, at_share=0.4):
    """Overwrite some bytes in the middle of a file."""
    content = bytearray(path.read_bytes())
    at = int(len(content) * at_share)
    content[at : at + 40] = bytes(byte ^ 0xFF for byte in content[at : at + 40])
    path.write_bytes(bytes(content))
