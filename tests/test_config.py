"""The signature of a component is its schema: every value it admits passes, every other is refused by name."""

from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from dpot import config
from dpot.composing import compose_config
from dpot.errors import UsageError
from dpot.ranges import Count, Fraction, Positive, Probability, Range

numbers = st.one_of(st.integers(-(10**9), 10**9), st.floats(allow_nan=True, allow_infinity=True))


@given(numbers)
def test_positive_admits_exactly_the_positive(value):
    if value > 0:
        assert config.coerce(value, Positive, "k") == value
    else:
        with pytest.raises(UsageError, match="k="):
            config.coerce(value, Positive, "k")


@given(numbers)
def test_count_admits_exactly_whole_numbers_from_one(value):
    if float(value).is_integer() and value >= 1:
        admitted = config.coerce(value, Count, "k")
        assert isinstance(admitted, int)
        assert admitted == value
    else:
        with pytest.raises(UsageError):
            config.coerce(value, Count, "k")


@given(numbers, st.sampled_from([Probability, Fraction]))
def test_ranges_agree_with_their_own_words(value, kind):
    bounds = kind.__metadata__[0]
    inside = (value > 0 and value < 1) if kind is Probability else (0 <= value <= 1)
    assert bounds.holds(value) == inside


@given(st.one_of(st.text(), st.booleans(), st.none(), st.lists(st.integers())))
def test_what_is_not_a_number_is_not_a_number(value):
    with pytest.raises(UsageError, match="must be"):
        config.coerce(value, float, "k")


@given(st.one_of(st.integers(), st.text(), st.none(), st.floats(allow_nan=False)))
def test_choices_admit_their_members_only(value):
    choices = Literal["a", "b"]
    if value in ("a", "b"):
        assert config.coerce(value, choices, "k") == value
    else:
        with pytest.raises(UsageError, match="choose from a, b"):
            config.coerce(value, choices, "k")


def test_optional_values_and_lists():
    assert config.coerce(None, Positive | None, "k") is None
    assert config.coerce(3, Positive | None, "k") == 3
    with pytest.raises(UsageError, match="more than 0"):
        config.coerce(-3, Positive | None, "k")
    assert config.coerce([1, 2.0], list[int], "k") == [1, 2]
    with pytest.raises(UsageError, match=r"k\[1\]"):
        config.coerce([1, "x"], list[int], "k")
    with pytest.raises(UsageError, match="at least 2 and at most 3"):
        config.coerce(4, Annotated[int, Range(at_least=2, at_most=3)], "k")


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "builtins.eval",
        "torch.load",
        "dpot.tasks.base.ABC",
        "dpot.record.subprocess.run",
        "dpot.tasks.reproduce.subprocess.run",
        "dpot.tasks.nothing.Here",
        "dpotato.tasks.Evil",
        "dpot.tasks.generate.log",
    ],
)
def test_foreign_targets_are_refused(target):
    with pytest.raises(UsageError, match=r"refused|does not exist"):
        config.locate(target, "loss")


def test_foreign_targets_are_refused_before_anything_is_imported():
    with pytest.raises(UsageError, match="refused"):
        config.refuse_foreign_targets(OmegaConf.create({"loss": {"_target_": "antigravity.fly"}}))


def test_targets_are_found_at_any_depth():
    node = OmegaConf.create({"a": [{"b": {"_target_": "x.Y", "c": "${missing.key}"}}]})
    assert list(config.targets(node)) == [("a[0].b", "x.Y")]


@pytest.mark.parametrize("group", config.GROUPS)
def test_every_choice_of_every_group_passes_its_own_check(group):
    for choice in config.options(group):
        cfg = compose_config([f"{group}={choice}", *(["privacy.epsilon=2"] if choice == "base" else [])])
        config.check(cfg)


@pytest.mark.parametrize("other", ["eps3", "eps10", "none", "base"])
def test_budgets_differ_in_nothing_but_their_epsilon(other):
    assert compose_config([f"privacy={other}", "privacy.epsilon=1.0"]) == compose_config(["privacy=eps1"])


def test_the_base_of_all_budgets_needs_an_epsilon():
    with pytest.raises(UsageError, match=r"privacy\.epsilon: must be given"):
        config.check(compose_config(["privacy=base"]))


def test_configs_are_short_and_open_with_the_command_that_uses_them():
    for path in config.CONF_DIR.rglob("*.yaml"):
        lines = path.read_text().splitlines()
        if path.name != "config.yaml":
            assert len(lines) <= 50, path
        assert lines[0].startswith("#"), path
        assert "dpot" in lines[0] or "@package" in lines[0], path
