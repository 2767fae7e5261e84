"""Tables by their marginals: how far one record moves the counts, bins, noise taken out, and the fit."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from dpot.errors import DataError, UsageError
from dpot.methods.sketch.blocks import (
    centred,
    histograms,
    make_bins,
    nearest_histogram,
    related_pairs,
    shares_inside,
    smoothed,
    standing_out,
)
from dpot.methods.sketch.marginals import LEAST_SIGNAL, MarginalSketch, entries_of, signal
from dpot.models.product_mixture import Column, ProductMixture
from dpot.privacy.accountants import accounts
from dpot.privacy.budget import Budget
from dpot.privacy.events import Adjacency, Composed
from dpot.synthesis import Synthesizer

COLUMNS = [Column(0, 11, whole=True), Column(1, 8, gap=2), Column(3, 3, size=3)]


def table(count, seed=0):
    """Encoded records of COLUMNS, and labels: a whole number that follows the label, a number with gaps, a word."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (count,), generator=random)
    cells = torch.stack(
        [
            (torch.randint(6, (count,), generator=random) + 5 * labels).clamp(max=10),
            torch.randint(9, (count,), generator=random),
            (torch.rand(count, generator=random) < 0.8).long() * labels,
        ],
        1,
    )
    records = torch.zeros(count, 6)
    for column, own in zip(COLUMNS, cells.T, strict=True):
        column.write(records, own, torch.full((count,), 0.5))
    return records[:, :, None, None], labels


def problem_of(records, labels, epsilon=1.0, classes=2):
    budget = Budget(epsilon, 1e-5, conversion="tight")
    return Synthesizer(epsilon, 1e-5, device="cpu")._problem(
        records, labels, classes, budget, None, torch.device("cpu")
    )


def test_cells_come_back_as_they_were_written():
    records, _ = table(50)
    for column in COLUMNS:
        cells = torch.arange(50) % column.values
        column.write(copy := torch.zeros(50, 6), cells, torch.rand(50))
        assert torch.equal(column.cells_of(copy), cells)
    assert torch.equal(records[:, 2, 0, 0] > 0, COLUMNS[1].cells_of(records.flatten(1)) == 8)


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -5.0, 7.0, 0.5])
def test_one_record_moves_each_histogram_and_pair_by_the_root_of_two(odd):
    records, labels = table(40)
    other, moved = records.clone(), labels.clone()
    other[7], moved[7] = odd, 1 - labels[7]
    method = MarginalSketch(COLUMNS)
    bin_of = torch.cat([torch.arange(column.values) for column in COLUMNS])
    first, second = problem_of(records, labels), problem_of(other, moved)
    cells = (method._count_cells(first) - method._count_cells(second)).double().norm()
    moved = (method._count_pairs(first, bin_of) - method._count_pairs(second, bin_of)).double()
    bins = [column.values for column in COLUMNS]
    assert cells <= math.sqrt(2 * 4) + 1e-9  # three columns and the label
    assert moved[:, entries_of(bins)].norm() == pytest.approx(math.sqrt(2 * 3))  # another class: all blocks are moved
    for related in ([1], [1, 5], [1, 2, 5]):  # over all classes: by √2 each at most
        assert moved.sum(0)[entries_of(bins, related)].norm() <= math.sqrt(2 * len(related)) + 1e-9


@pytest.mark.parametrize("neighbours", [Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE])
@pytest.mark.parametrize("rounds", [1, 2])
def test_all_releases_together_are_worth_the_budget(neighbours, rounds):
    problem = problem_of(*table(500), epsilon=1.0)
    released = MarginalSketch(COLUMNS, rounds=rounds, neighbours=neighbours).release_marginals(problem)
    sources = ["histograms of single columns", "pairs of columns by class", "related pairs of columns"]
    assert [entry.source.split(": ")[1] for entry in problem.ledger.entries] == sources[: rounds + 1]
    found = accounts(Composed(tuple(entry.event for entry in problem.ledger.entries)), 1e-5)
    for name in ("analytic_gaussian", "dp_accounting_pld"):
        assert 0.99 < found[name].epsilon <= 1 + 1e-4, name
    scale = 1.0 if neighbours is Adjacency.REPLACE_ONE else math.sqrt(2)
    share = 0.7 if rounds == 1 else 0.4
    assert scale * released.deviation == pytest.approx(math.sqrt(2 * 3 / share) / 0.2637, rel=0.03)  # μ of (1, 1e-5)
    assert len(released.related) in ((0,) if rounds == 1 else (1, 2))
    if rounds == 2:
        noise = math.sqrt(2 * len(released.related) / 0.3) / 0.2637
        assert scale * released.pooled_deviation == pytest.approx(noise, rel=0.03)
        outside = ~(entries_of(released.bins, released.related.tolist()))
        assert released.pooled.triu()[outside].abs().sum() == 0  # nothing else of it is there


def test_the_pairs_that_are_looked_at_again_are_those_that_depend_on_each_other():
    random = torch.Generator().manual_seed(3)
    a = torch.randint(4, (5000,), generator=random)
    b = torch.where(torch.rand(5000, generator=random) < 0.5, a, torch.randint(4, (5000,), generator=random))
    other = [torch.randint(4, (5000,), generator=random) for _ in range(2)]
    hot = torch.cat([torch.nn.functional.one_hot(c, 4) for c in (other[0], a, other[1], b)], 1).double()
    edges = [slice(4 * i, 4 * i + 4) for i in range(4)]
    noise = 60 * torch.randn(1, 16, 16, generator=random).double().triu()
    gram = (hot.T @ hot)[None] + noise + noise.transpose(1, 2)
    sizes, marginals = torch.tensor([5000.0]).double(), hot.sum(0)[None]
    assert related_pairs(gram, edges, 60.0, sizes, marginals, 3) == [1 * 4 + 3]
    assert len(related_pairs(gram, edges, 2000.0, sizes, marginals, 3)) == 1  # nothing stands out: the best of them


def test_three_rounds_are_refused():
    with pytest.raises(UsageError, match="rounds=3: this table is released by its marginals"):
        MarginalSketch(COLUMNS, rounds=3)


def test_the_nearest_histogram():
    assert nearest_histogram(torch.tensor([3.0, 1.0, -1.0]), 3.0).tolist() == pytest.approx([2.5, 0.5, 0.0])
    assert nearest_histogram(torch.tensor([1.0, 1.0]), 4.0).tolist() == pytest.approx([2.0, 2.0])


def test_spikes_gaps_and_rare_values_have_bins_of_their_own():
    shares = torch.tensor([0.02, 0.02, 0.02, 0.5, 0.02, 0.02, 0.2, 0.2])
    assert make_bins(shares, True, 4, 0.001).tolist() == [0, 0, 0, 1, 2, 2, 3, 4]
    assert make_bins(shares, True, 4, 0.001, gap=True).tolist() == [0, 0, 0, 1, 2, 2, 3, 4]
    words = torch.tensor([0.4, 0.001, 0.3, 0.002, 0.297])
    assert make_bins(words, False, 4, 0.01).tolist() == [0, 3, 1, 3, 2]


def test_noise_is_taken_out_of_a_histogram_and_spikes_stay():
    random = torch.Generator().manual_seed(0)
    truth = torch.linspace(300, 100, 100, dtype=torch.float64)
    truth[40] = 5000
    noise = 40 * torch.randn(100, generator=random, dtype=torch.float64)
    found = smoothed(truth + noise, 40.0, ordered=True)
    assert (found - truth).norm() < 0.5 * noise.norm()
    assert found[40] == pytest.approx(5000, abs=150)
    assert torch.equal(smoothed(truth, 40.0, ordered=False), truth)


def test_cells_of_a_bin_are_drawn_to_their_mean():
    bins = torch.tensor([0, 0, 0, 0, 1])
    flat = shares_inside(torch.tensor([9.0, 11.0, 10.0, 10.0, 5.0]), bins, 3.0)  # s = 2 < 3·9: only noise
    assert flat.tolist() == pytest.approx([0.25, 0.25, 0.25, 0.25, 1.0])
    kept = shares_inside(torch.tensor([0.0, 20.0, 20.0, 0.0, 5.0]), bins, 1.0)  # s = 400: times 1 - 3/400
    assert kept.tolist() == pytest.approx(
        [0.0375 / 20, 0.5 - 0.0375 / 20, 0.5 - 0.0375 / 20, 0.0375 / 20, 1.0], rel=1e-6
    )


def test_structure_stands_out_of_noise():
    random = torch.Generator().manual_seed(0)
    noise = torch.randn(12, 15, generator=random, dtype=torch.float64)
    directions, energy = standing_out(noise, 1.0)
    assert directions == 0
    assert abs(energy) < 4 * math.sqrt(2 * noise.numel())  # χ² has this deviation
    truth = 40 * torch.outer(torch.linspace(-1, 1, 12), torch.linspace(-1, 1, 15)).double()
    directions, energy = standing_out(truth + noise, 1.0)
    assert directions == 1
    assert energy == pytest.approx(float(truth.square().sum()), rel=0.05)
    assert centred(truth + 3).sum(0).abs().max() < 1e-9


def test_without_noise_the_histograms_are_those_that_were_counted():
    records, labels = table(4000)
    method, problem = MarginalSketch(COLUMNS), problem_of(records, labels)
    bin_of = torch.cat([torch.arange(column.values) for column in COLUMNS])
    gram = method._count_pairs(problem, bin_of).double()
    edges = [slice(0, 11), slice(11, 20), slice(20, 23)]
    sizes = torch.bincount(labels).double()
    own = [gram[:, edge, edge].diagonal(dim1=1, dim2=2).sum(0) for edge in edges]
    variances = [torch.full_like(part, 1e-12) for part in own]
    marginals = histograms(gram, edges, 1e-6, sizes, own, variances)
    assert torch.allclose(marginals[:, edges[0]], gram[:, edges[0], edges[0]].diagonal(dim1=1, dim2=2), atol=1e-3)


def test_a_mixture_draws_what_its_probabilities_say():
    model = ProductMixture(1, (6, 1, 1), COLUMNS, [11, 9, 2], components=2)
    with torch.no_grad():
        model.bin_of.copy_(torch.cat([torch.arange(11), torch.arange(9), torch.tensor([0, 1, 1])]))
        model.inside[-2:] = torch.tensor([0.25, 0.75], dtype=torch.float64)
        model.logits[0, 0, 20:] = torch.tensor([4.0, -4.0])  # the first component says the first word
        model.logits[0, 1, 20:] = torch.tensor([-40.0, 40.0])
    random = torch.Generator().manual_seed(1)
    labels = torch.zeros(20_000, dtype=torch.int64)
    records = model(model.code(20_000, random, "cpu"), labels).flatten(1)
    words = torch.bincount(COLUMNS[2].cells_of(records), minlength=3) / 20_000
    first = 0.5 / (1 + math.exp(-8))
    assert words.tolist() == pytest.approx([first, (1 - first) / 4, 3 * (1 - first) / 4], abs=0.01)
    assert torch.bincount(COLUMNS[0].cells_of(records)).double().std() < 100
    records, drawn = model.draw(1000, torch.ones(1), random)
    assert len(records) == len(drawn) == 1000
    assert (torch.bincount(COLUMNS[0].cells_of(records.flatten(1))) - 1000 / 11).abs().max() < 2  # drawn evenly
    again = ProductMixture(1, (6, 1, 1), **model.size)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(code := model.code(9, random, "cpu"), labels[:9]), model(code, labels[:9]))


def test_a_fit_reproduces_pairs_classes_and_gaps():
    records, labels = table(3000)
    problem = problem_of(records, labels, epsilon=50.0)
    method = MarginalSketch(COLUMNS, steps=150, components=100)
    outcome = method.fit(problem)
    assert outcome.steps == 150
    assert (method.sizes - torch.bincount(labels)).abs().max() < 30
    with torch.no_grad():
        model, random = problem.generator, torch.Generator().manual_seed(2)
        drawn = model(model.code(3000, random, "cpu"), labels).flatten(1)
    real = records.flatten(1)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        size = COLUMNS[b].values
        one, two = (COLUMNS[a].cells_of(x) * size + COLUMNS[b].cells_of(x) for x in (real, drawn))
        cells = COLUMNS[a].values * size
        gap = (torch.bincount(one, minlength=cells) - torch.bincount(two, minlength=cells)).abs().sum() / 6000
        assert gap < 0.1
    assert (COLUMNS[2].cells_of(drawn)[labels == 0] == 0).double().mean() > 0.97


def test_a_single_column_without_labels():
    records, _ = table(2000)
    problem = problem_of(records[:, :1], torch.zeros(2000, dtype=torch.int64), classes=1)
    MarginalSketch(COLUMNS[:1], steps=20).fit(problem)
    assert len(problem.ledger.entries) == 1


def test_which_tables_have_enough_records_for_marginals():
    assert signal(39_074, 2, 13, 0.25) > LEAST_SIGNAL  # Adult at ε = 1
    assert signal(455, 2, 30, 0.33) < LEAST_SIGNAL  # breast_cancer at ε = 1


def people(count=1500):
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": random.integers(18, 90, count).astype("int8"),
            "pay": np.where(random.random(count) < 0.4, 0, random.gamma(2, 2e4, count)).astype("float32"),
            "work": pd.Categorical(random.choice(["state", "private"], count), ["state", "private"], ordered=True),
            "born": pd.to_datetime(random.integers(0, 10_000, count), unit="D").astype("datetime64[s]"),
            7: pd.array(random.integers(0, 5, count), dtype="Int64"),
        }
    )


def test_a_table_is_synthesized_saved_and_fitted_again(tmp_path):
    frame = people()
    ranges = {"age": (0, 120), "pay": (0, 2e5), "born": ("1970-01-01", "2000-01-01"), 7: (0, 9)}
    made = Synthesizer(2, 1e-5, ranges=ranges, steps=30, device="cpu").fit(frame, frame["age"] > 50)
    assert isinstance(made.generator_, ProductMixture)
    fake, labels = made.sample(1000)
    assert fake.dtypes.to_dict() == frame.dtypes.to_dict()
    assert (fake["pay"] == 0).mean() == pytest.approx(0.4, abs=0.1)  # a spike at an end of the range
    assert fake["age"][labels].mean() > fake["age"][~labels].mean() + 20
    made.save(tmp_path / "table.safetensors")
    again = Synthesizer.load(tmp_path / "table.safetensors", device="cpu")
    pd.testing.assert_frame_equal(again.sample(20, seed=3)[0], made.sample(20, seed=3)[0])
    assert again.statement_.epsilon == made.statement_.epsilon
    fresh = Synthesizer.from_release(tmp_path / "table.safetensors", steps=5, device="cpu")
    assert fresh.sample(3)[0].dtypes.to_dict() == frame.dtypes.to_dict()


def test_a_release_that_claims_less_noise_is_refused(tmp_path):
    made = Synthesizer(2, 1e-5, ranges={"7": (0, 9)}, steps=1, device="cpu").fit(people(300)[[7]])
    release = made.release_
    path = tmp_path / "changed.safetensors"
    marginals = replace(release.marginals, cell_deviation=release.marginals.cell_deviation * 0.9)
    replace(release, marginals=marginals).save(path)
    with pytest.raises(DataError, match="the statement accounts for"):
        Synthesizer.load(path)


def test_few_records_are_left_to_the_lines():
    records = np.random.default_rng(0).random((200, 12))
    made = Synthesizer(1, 1e-4, ranges=(0, 1), steps=2, rounds=1, device="cpu").fit(records)
    assert not isinstance(made.generator_, ProductMixture)


@pytest.mark.parametrize("other", ["turned", "same column", "more"])
def test_a_release_whose_second_round_is_changed_is_refused(tmp_path, other):
    """Pairs in no order, a pair of one column, or more pairs than the noise was drawn for."""
    frame = people(600)[["age", "pay", "work"]]
    made = Synthesizer(50, 1e-5, ranges={"age": (0, 120), "pay": (0, 2e5)}, steps=1, device="cpu").fit(frame)
    found = made.release_.marginals.related.tolist()
    more = [1, 2, 5] if len(found) < 3 else [1]
    related = {"turned": [2, 1], "same column": [4], "more": more}[other]
    path = tmp_path / "changed.safetensors"
    replace(made.release_, marginals=replace(made.release_.marginals, related=torch.tensor(related))).save(path)
    with pytest.raises(DataError, match="statement accounts for" if other == "more" else "no pairs of columns"):
        Synthesizer.load(path)
