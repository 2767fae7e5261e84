"""Published numbers: cell by cell against a second list that was typed independently."""

import pytest

from dpot.errors import DataError, UsageError
from dpot.reporting import published


@pytest.mark.parametrize(
    ("paper", "table", "row", "column", "value"),
    [
        ("dp_swd", 1, "M-U", "DP-SWD", 94.0),
        ("dp_swd", 1, "W-D", "DP-DANN", 63.4),
        ("dp_swd", 2, "SWD", "MNIST MLP", 87),
        ("dp_swd", 2, "DP-SWD-b", "Fashion LogReg", 66),
        ("dp_swd", 4, "CelebA b", "sigma", 2.392),
        ("dp_sinkhorn", 1, "DP-Sinkhorn", "MNIST FID", 48.4),
        ("dp_sinkhorn", 1, "DataLens", "MNIST MLP", None),
        ("dp_sinkhorn", 3, "Sinkhorn", "CNN", 82.2),
        ("image_bench", 1, "DP-MERF", "CIFAR-10 ε=10 FID", 214.1),
        ("image_bench", 1, "FETA-Pro", "CIFAR-10 ε=1 FID", 120.8),
        ("image_bench", 1, "PrivImage (public data)", "CelebA ε=10 best", 92.0),
    ],
)
def test_cells(paper, table, row, column, value):
    cell = published.table(paper, table).cell(row, column)
    assert cell is not None
    assert cell.value == value


# A second list of every printed number, cell by cell, typed from notes that were taken from the papers themselves and
# not from results/published/. It is laid out as the papers print it: rows as lines, "–" where a cell is empty. So a
# swapped pair of cells is found, which no total would tell.
DOWNSTREAM = "MNIST FID, MNIST LogReg, MNIST MLP, MNIST CNN, Fashion FID, Fashion LogReg, Fashion MLP, Fashion CNN"
SECOND = {
    ("dp_swd", "1", "DANN, SWD, DP-DANN, DP-SWD"): """
        M-U 93.9±0 95.5±1 87.1±2 94.0±0
        U-M 86.2±2 84.8±2 73.5±2 83.4±2
        VisDA 57.4±1 53.8±1 49.0±1 47.0±1
        D-W 90.9±1 90.7±1 88.0±1 90.9±1
        D-A 58.6±1 59.4±1 56.5±1 55.2±2
        A-W 70.4±3 74.5±1 68.7±1 72.6±1
        A-D 78.6±2 78.5±1 73.7±1 79.8±1
        W-A 54.7±3 59.1±0 56.0±1 59.0±1
        W-D 91.1±0 95.7±1 63.4±3 92.6±1""",
    ("dp_swd", "2", "MNIST MLP, MNIST LogReg, Fashion MLP, Fashion LogReg"): """
        SWD 87 82 77 76
        GS-WGAN 79 79 65 68
        DP-CGAN 60 60 50 51
        DP-MERF 76 75 72 71
        DP-SWD-c 77 78 67 66
        DP-SWD-b 76 77 67 66""",
    ("dp_swd", "4", "delta, d, k, records, epochs, batch, sigma"): """
        U-M 1e-5 784 200 10000 100 128 4.74
        M-U 1e-5 784 200 7438 100 128 5.34
        VisDA 1e-5 100 1000 55387 50 128 6.40
        Office 1e-3 50 100 497 50 32 8.05
        MNIST_b 1e-5 784 1000 60000 100 100 2.94
        MNIST_c 1e-5 784 1000 60000 100 100 0.84
        CelebA_b 1e-6 8192 2000 162000 100 256 2.392
        CelebA_c 1e-6 8192 2000 162000 100 256 0.37""",
    ("dp_swd", "CelebA", "FID, FID in the text"): """
        SWD 58 –
        DP-SWD-c 97 –
        DP-SWD-b 149 158""",
    ("dp_sinkhorn", "1", DOWNSTREAM): """
        Real_data 1.6 92.2 97.5 99.3 2.5 84.5 88.2 90.8
        Sinkhorn_m=1 54.2 89.0 89.0 91.0 65.8 78.4 79.1 73.9
        Sinkhorn_m=3 43.4 87.7 87.3 90.6 63.8 78.4 78.4 73.3
        G-PATE 177.2 26 25 51 205.8 42 30 50
        DP-CGAN 179.2 60 60 63 243.8 51 50 46
        DataLens 173.5 – – 80.66 167.7 – – 70.61
        DP-MERF 116.3 79.4 78.3 82.1 132.6 75.5 74.5 75.4
        GS-WGAN 61.3 79 79 80 131.3 68 65 65
        DP-Sinkhorn 48.4 82.8 82.7 83.2 128.3 75.1 74.6 71.1""",
    ("dp_sinkhorn", "1 (first version)", "MNIST FID, MNIST LogReg, MNIST MLP, MNIST CNN"): """
        DP-Sinkhorn_m=1 61.2 79.5 80.2 83.2
        DP-Sinkhorn_m=3 55.56 79.1 79.2 79.1""",
    ("dp_sinkhorn", "1 (by its authors)", "MNIST CNN, Fashion CNN"): """
        G-PATE 80.9 69.3""",
    ("dp_sinkhorn", "2", "FID, MLP, CNN"): """
        parameter_gradient,_L2,_biased 218.6 79.9 80.7
        image_gradient,_L2,_biased 124.3 82.0 80.8
        image_gradient,_L1,_biased 73.9 68.4 65.7
        image_gradient,_L1+L2,_biased 89.1 80.8 77.6
        image_gradient,_L1+L2,_debiased 86.0 68.7 66.7
        image_gradient,_L1+L2,_semi-debiased 48.4 82.7 83.2""",
    ("dp_sinkhorn", "3", "FID, MLP, CNN"): """
        Real_data 1.1 91.9 95.0
        Sinkhorn 129.5 80.8 82.2
        DP-MERF 274.0 64.8 65
        DP-Sinkhorn 189.5 76.2 76.3
        DataLens 320.8 – 72.9""",
    ("wdp", "2", "Non-private, Private, DP, DP P(A), BDP, BDP P(A), WDP, WDP P(A)"): """
        MNIST 99 96 2.2 .898 .95 .721 .76 .681
        CIFAR-10 86 73 8.0 .999 .76 .681 .52 .627
        SVHN 93 92 5.0 .999 .87 .705 .40 .599
        F-MNIST 92 90 2.9 .623 .91 .713 .45 .611""",
    ("triangle_wad", "detection", "found, false positives"): """
        LAVA 100 –
        TriangleWad 75 0
        FedBary 25 –""",
    ("triangle_wad", "bbc", "different texts, identical texts"): """
        FedWad 69 100
        TriangleWad 4 32""",
    ("field", "ε = 10", DOWNSTREAM): """
        DPDM_(FID_sampler) 5.01 90.5 94.6 97.3 18.6 80.4 81.1 84.9
        DPDM_(accuracy_sampler) 6.65 90.8 94.8 98.1 19.1 81.1 83.0 86.2
        PEARL 116 76.5 78.3 78.8 102 72.6 73.2 64.9
        DP-MEPF – 83.4 89.8 – – 75.7 76.0 –
        Private_GANs_(2023) 13.0 – – 95.0 – – – –""",
    ("field", "ε = 1", DOWNSTREAM): """
        DPDM_(FID_sampler) 23.4 83.8 87.0 93.4 37.8 71.5 71.7 73.6
        DPDM_(accuracy_sampler) 35.5 86.7 91.6 95.3 51.4 76.3 76.9 79.4
        PEARL 121 76.0 79.6 78.2 109 74.4 74.0 68.3
        DP-MEPF – 82.5 89.3 – – 75.4 74.7 –""",
    (
        "field",
        "DPImageBench",
        "MNIST accuracy, ε = 1; MNIST accuracy, ε = 10; MNIST FID, ε = 10; "
        "Fashion accuracy, ε = 1; Fashion accuracy, ε = 10; Fashion FID, ε = 10",
    ): """
        DP-MERF 80.3 81.3 106.3 – – –
        DP-NTK 50.0 91.3 69.2 – – –
        DP-Kernel 94.0 93.6 38.9 – – –
        GS-WGAN 72.4 75.3 47.7 – – –
        DP-GAN 92.4 92.7 30.3 – – –
        DPDM 89.2 97.7 4.4 76.4 85.6 17.1
        DP-FETA 95.6 98.1 3.4 81.7 87.3 13.2""",
    ("field", "CelebA 32", "FID"): """
        DPDM 21.1
        DP-Sinkhorn 189.5
        DP-MERF 274.0""",
    ("field", "Disputed", "claimed, run again"): """
        DataLens 80.7 53.9
        G-PATE 80.9 42.0
        DPGEN – –
        P3GM – –""",
    (
        "field",
        "Accountants",
        "PLD, PRV low, PRV, PRV up, RDP, Opacus GDP, fixed-size autodp, fixed-size dp-accounting, PLD seconds",
    ): """
        q=.01_σ=1_T=5000 4.202 4.192 4.202 4.212 4.589 4.010 9.55 8.80 2.6
        q=.0683_σ=2.5_T=3000 7.457 7.447 7.457 7.467 8.040 7.381 21.2 19.6 –
        q=.0017_σ=.6_T=60000 8.399 8.389 8.399 8.410 9.331 7.718 15.3 14.4 5.3""",
}
# TriangleWad's Table 1 as it is printed: a line per data set and quantity; n = 100, 500 and 1000 of each method.
TRIANGLE = """
    CIFAR-10 W 27.46/24.73/24.16 32.90/30.75/30.72 27.51/24.73/24.16 32.88/30.76/30.69
    CIFAR-10 D1 571.73/216.54/141.68 571.99/217.50/143.08 571.74/216.54/141.68 572.01/217.02/143.68
    CIFAR-10 D2 975.79/376.65/248.32 975.94/377.15/249.16 975.80/376.65/248.32 975.88/377.32/249.10
    CIFAR-10 gap –/–/– 1.95/2.49/2.93 .05/0/0 –/–/–
    CIFAR-10 seconds –/–/– 2.55/34.23/92.46 .17/1.38/3.26 –/–/–
    Fashion W 12.68/10.94/10.45 15.59/14.30/15.22 12.68/10.94/10.45 15.67/15.77/15.34
    Fashion D1 295.17/107.62/70.51 295.29/108.14/71.81 295.17/107.62/70.51 296.38/107.71/71.88
    Fashion D2 687.70/269.77/178.21 687.76/270.06/179.22 687.70/269.78/178.21 688.40/270.88/179.17
    Fashion gap –/–/– 1.02/1.39/2.35 0/0/0 –/–/–
    Fashion seconds –/–/– 1.76/18.62/54.72 .08/.69/3.32 –/–/–
    MNIST W 15.05/12.99/12.57 18.66/17.13/17.04 15.05/12.99/12.57 18.40/17.02/17.66
    MNIST D1 290.19/114.30/75.81 290.37/115.12/76.90 290.19/114.30/75.81 290.88/115.13/76.88
    MNIST D2 688.94/274.37/181.39 688.98/275.06/182.04 688.94/274.37/181.39 689.69/275.54/182.88
    MNIST gap –/–/– 1.27/1.88/2.07 0/0/0 –/–/–
    MNIST seconds –/–/– 1.44/17.22/65.33 .07/2.44/9.71 –/–/–"""
# DPImageBench's accuracies at ε = 1/10, a line per method as in its README.
BENCH = """
    DP-MERF 80.3/81.3 62.2/62.2 27.2/29.0 3.4/4.2 34.9/28.0 81.0/81.2 60.4/58.3
    DP-NTK 50.0/91.3 64.4/76.3 17.0/28.2 1.8/2.1 22.8/30.8 61.2/64.2 53.1/64.1
    DP-Kernel 94.0/93.6 68.4/70.0 26.4/25.1 6.0/6.1 50.2/50.2 83.0/83.7 68.0/68.7
    GS-WGAN 72.4/75.3 52.7/56.7 20.4/21.3 1.3/1.6 28.6/29.7 61.4/61.5 52.1/58.9
    DP-GAN 92.4/92.7 71.8/70.3 26.2/30.5 2.0/1.7 39.4/38.2 77.9/89.2 83.2/79.6
    DPDM 89.2/97.7 76.4/85.6 28.9/36.8 2.4/2.5 48.8/72.8 74.5/91.8 80.6/79.5
    DP-FETA 95.6/98.1 81.7/87.3 35.1/43.3 5.0/8.1 58.0/75.0 82.3/94.2 77.3/82.9
    FETA-Pro 97.3/98.5 83.4/88.2 37.9/44.6 –/– –/– 90.0/94.9 84.0/84.3
    FETA-Pro_(mean_of_three) 96.8/98.4 82.2/87.8 32.7/40.1 –/– –/– 88.5/94.6 81.5/82.5
    PE_(public_data) 27.9/32.7 47.9/57.8 64.6/75.3 15.4/24.9 32.1/36.8 70.5/74.2 63.3/64.9
    PDP-Diffusion_(public_data) 94.5/97.4 79.2/85.4 59.3/70.1 3.9/17.3 46.6/73.8 89.4/94.0 85.2/84.8
    DP-LDM_on_pixels_(public_data) 78.8/94.4 75.9/81.6 63.0/69.9 6.0/19.9 48.1/73.1 84.4/89.1 84.0/84.7
    DP-LDM_(public_data) 44.2/95.5 62.3/86.3 41.7/64.8 3.5/16.9 65.1/78.8 85.8/92.4 81.9/84.7
    DP-LoRA_(public_data) 82.2/97.1 63.5/83.8 64.6/77.2 4.3/33.2 70.7/83.6 87.0/92.0 84.1/87.0
    PrivImage_(public_data) 94.0/97.8 79.9/87.1 74.5/78.4 9.9/15.8 47.3/71.0 90.8/92.0 82.8/82.9"""
# Of what was not at hand to be typed again, and of our own sheet, cells (those left empty included) and the total.
TOTALS = {
    ("image_bench", "1"): (240, 13_902.1),
    ("image_bench", "other data sets"): (180, 8_550.0),
    ("dp_sinkhorn", "1 (run again by others)"): (24, 322.9 + 324.1 + 344.6 + 319.3 + 312.2 + 370.3),
}


def typed(word):
    """(value, spread) of a number as printed."""
    value, _, spread = word.partition("±")
    return (None if value == "–" else float(value)), (float(spread) if spread else None)


def second_list():
    """(paper, table) → (row, column) → (value, spread)."""
    found = {}
    for (paper, table, heads), text in SECOND.items():
        columns = heads.split("; " if ";" in heads else ", ")
        for line in text.strip().splitlines():
            row, *words = line.split()
            for column, word in zip(columns, words, strict=True):
                found.setdefault((paper, table), {})[row.replace("_", " "), column] = typed(word)
    methods = ("DirectWad", "FedWad", "TriangleWad ones", "TriangleWad random")
    for line in TRIANGLE.strip().splitlines():
        data, quantity, *groups = line.split()
        for method, group in zip(methods, groups, strict=True):
            for n, word in zip((100, 500, 1000), group.split("/"), strict=True):
                cells = found.setdefault(("triangle_wad", "1"), {})
                cells[method, f"{data} n={n} {quantity}"] = typed(word)
    return found


@pytest.mark.parametrize(("paper", "table"), second_list())
def test_every_cell_is_what_a_second_list_has(paper, table):
    on_file = {(c.row, c.column): (c.value, c.spread) for c in published.table(paper, table).cells}
    assert on_file == second_list()[paper, table]


def test_our_own_sheet_repeats_what_others_publish():
    """DPDM's rows are those of the field, DP-Sinkhorn's and DP-MERF's those of DP-Sinkhorn's Table 1."""
    second = second_list()
    for cell in published.table("sketch", "1").cells:
        data, epsilon, metric = cell.column.split()
        where = ("field", f"ε = {epsilon[2:]}") if cell.row.startswith("DPDM") else ("dp_sinkhorn", "1")
        known = second[where][cell.row, f"{data} {metric}"][0]
        assert cell.value == (known if epsilon == "ε=10" or where[0] == "field" else None), cell


def test_accuracies_of_the_image_benchmark_are_what_a_second_list_has():
    tables = [published.table("image_bench", name) for name in ("1", "other data sets")]
    on_file = {(c.row, c.column): c.value for table in tables for c in table.cells if c.metric == "accuracy"}
    sets = ("MNIST", "Fashion-MNIST", "CIFAR-10", "CIFAR-100", "EuroSAT", "CelebA", "Camelyon17")
    second = {}
    for line in BENCH.strip().splitlines():
        row, *groups = line.split()
        for data, group in zip(sets, groups, strict=True):
            for epsilon, word in zip((1, 10), group.split("/"), strict=True):
                second[row.replace("_", " "), f"{data} ε={epsilon} best"] = typed(word)[0]
    assert on_file == second


@pytest.mark.parametrize(("paper", "table"), TOTALS)
def test_totals(paper, table):
    cells, total = TOTALS[paper, table]
    found = published.table(paper, table).cells
    assert len(found) == cells
    assert sum(c.value for c in found if c.value is not None) == pytest.approx(total, abs=1e-6)


def test_no_table_is_without_a_check():
    on_file = {(paper, table) for paper in published.papers() for table in published.tables(paper)}
    assert on_file - {("sketch", "1")} - set(TOTALS) - set(second_list()) == set()


def test_unknown_names_are_answered_with_the_known():
    with pytest.raises(UsageError, match="dp_swd"):
        published.tables("dp_swg")
    with pytest.raises(UsageError, match="choices: 1, 2"):
        published.table("dp_swd", 77)


def test_a_row_of_the_wrong_length_is_refused(tmp_path, monkeypatch):
    (tmp_path / "odd.yaml").write_text(
        "paper: odd\nversion: v\ntables:\n  1:\n    caption: c\n    metric: accuracy\n    columns: [a, b]\n    rows:\n"
        "      r: [1]\n"
    )
    monkeypatch.setattr(published, "PUBLISHED", tmp_path)
    published.tables.cache_clear()
    with pytest.raises(DataError, match="1 values for 2 columns"):
        published.tables("odd")
    published.tables.cache_clear()
