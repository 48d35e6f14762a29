"""What is believed of prompts before their first visit: from columns and earlier runs."""

import numpy as np
import pytest

from rollwise.beliefs import Features, LogitKalman
from rollwise.beliefs.features import LONGEST_STEP, MEMORY, MOST_LABELS
from rollwise.beliefs.ratings import logistic

PLACES = np.arange(400)
LOGITS = np.array([2.0, 0.0, -1.0, -3.0])[PLACES % 4]


def drawn(seed=0, steps=40, batch=32, logits=LOGITS):
    """Single draws to 400 prompts, whose logits scatter around those given."""
    rng = np.random.default_rng(seed)
    logits = logits + rng.normal(0, 0.5, 400)
    for _ in range(steps):
        indices = rng.choice(400, batch, replace=False)
        correct = rng.random(batch) < logistic(logits[indices])
        yield indices, correct.astype(np.int64), np.ones(batch, dtype=np.int64)


def loss_of_first_visits(belief):
    seen, losses = np.zeros(400, dtype=bool), []
    for indices, correct, counts in drawn():
        expected = belief.believe(indices)[0]
        loss = -np.where(correct == 1, np.log(expected), np.log1p(-expected))
        losses.extend(loss[~seen[indices]])
        seen[indices] = True
        belief.learn(indices, correct, counts)
    return np.mean(losses)


def believing(**columns):
    return LogitKalman(400, features=Features(columns))


UNINFORMED = loss_of_first_visits(LogitKalman(400))
RNG = np.random.default_rng(7)
INFORMATIVE = {
    "labels": {"level": (PLACES % 4 + 1).tolist()},
    "texts": {"source": [f"set {i % 4}" for i in PLACES]},
    "numbers": {"prompt_tokens": np.exp(3 - LOGITS + RNG.normal(0, 0.3, 400)).tolist()},
    "measured": {"pass_rate": ((RNG.binomial(8, logistic(LOGITS)) + 0.5) / 9).tolist()},
    "vectors": {"embedding": np.column_stack([LOGITS, RNG.normal(size=(400, 9))])},
}


@pytest.mark.parametrize("columns", INFORMATIVE.values(), ids=INFORMATIVE)
def test_informative_columns_predict_first_visits_better(columns):
    assert loss_of_first_visits(believing(**columns)) < UNINFORMED - 0.05


def test_a_column_that_turns_is_followed():
    """After 40 steps the easy level becomes the hard one; 20 steps later that is believed."""
    belief = believing(level=(PLACES % 2).tolist())
    for sign, steps in ((1, 40), (-1, 20)):
        truth = np.where(PLACES % 2, 2.0, -2.0) * sign
        for step in drawn(steps=steps, logits=truth):
            belief.learn(*step)
    assert belief.features.dot(np.array([1])) - belief.features.dot(np.array([0])) < -1


def test_weights_are_the_posterior_of_what_was_seen():
    """Of labels apart the weights are their own. With τ² = 1.5, surprise 3/10 and information 1.5,
    w = 0.3/(1.5 + 1/1.5). Then τ² is the mean of w² + variance over both labels."""
    features = Features({"level": [7, 7, None]})
    features.learn(np.array([0, 1]), np.array([0.1, 0.2]), np.array([1.0, 0.5]))
    first = 0.3 / (1.5 + 1 / 1.5)
    assert features.dot(slice(None)) == pytest.approx([first, first, 0.0])
    expected = (first**2 + 1 / (1.5 + 1 / 1.5) + 1.5) / 2
    assert features.variances == pytest.approx([expected])
    variance = features.variances[0]
    features.learn(np.array([1]), np.array([-0.1]), np.array([0.0]))
    seen = MEMORY * (1.5 * 0.0 + 0.3) - 0.1  # at the first step w was 0
    assert features.dot(np.array([1])) == pytest.approx([seen / (MEMORY * 1.5 + 1 / variance)])
    features.learn(np.array([2]), np.array([1e3]), np.array([1.0]))
    assert features.dot(np.array([2])) == pytest.approx([LONGEST_STEP])


@pytest.mark.parametrize("said", [0.4, 2.5], ids=["too little", "too much"])
def test_what_weights_say_is_scaled_to_what_is_seen(said):
    """Weights that say `said` times the truth, and do not learn."""
    features = Features({"pass_rate": logistic(LOGITS).tolist()})
    rng, truth = np.random.default_rng(1), features.dot(slice(None)) * 2
    for _ in range(200):
        features.weights[:] = said
        indices = rng.choice(400, 32, replace=False)
        expected = logistic(features.dot(indices))
        surprise = (rng.random(32) < logistic(truth[indices])) - expected
        features.learn(indices, surprise, expected * (1 - expected))
    assert features.scale[0] * said == pytest.approx(1.0, abs=0.2)


def test_the_weights_of_useless_columns_vanish():
    """Of 40 labels that say nothing, and as many that say much."""
    label = RNG.integers(40, size=400)
    spread = {}
    for name, logits in (("useless", np.zeros(400)), ("useful", RNG.normal(0, 2, 40)[label])):
        belief = believing(source=label.tolist())
        for step in drawn(steps=60, logits=logits):
            belief.learn(*step)
        spread[name] = belief.features.dot(slice(None)).std()
    assert spread["useless"] < 0.4 < 1 < spread["useful"]


def test_numbers_of_any_scale_are_alike_and_missing_and_equal_ones_say_nothing():
    plain, scaled = (
        Features(
            {"a": [*numbers, None], "equal": [3] * 4, "pass_rate": [0.5] * 4, "v": [[0.1, 0.7]] * 4}
        )
        for numbers in ([1.0, 2.0, 4.0], [10.0, 1e3, 1e9])
    )
    for features in (plain, scaled):
        features.learn(np.arange(4), np.array([-0.1, 0.0, 0.3, 0.0]), np.ones(4))
    assert plain.dot(slice(None)) == pytest.approx(scaled.dot(slice(None)))
    assert plain.dot(np.array([3])) == 0
    assert plain.columns == "a"


def test_rare_labels_share_a_weight():
    features = Features({"source": [str(i // 2) for i in range(1000)]})
    assert len(features.weights) == MOST_LABELS
    features.learn(np.array([900]), np.array([0.5]), np.array([1.0]))
    assert features.dot(np.array([999]))[0] == features.dot(np.array([900]))[0] > 0


def test_vectors_mean_the_same_on_a_processor_that_finds_another_basis(monkeypatch):
    """Skills that are equally frequent: every rotation of the directions is as right as another."""
    skills = np.eye(12)[PLACES % 12]
    belief = believing(skill=skills)
    for step in drawn(logits=np.where(PLACES % 12 < 3, 2.0, -2.0)):
        belief.learn(*step)
    svd = np.linalg.svd

    def rotated(matrix, **how):
        left, sizes, right = svd(matrix, **how)
        turn, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(11, 11)))
        right[:11] = turn @ right[:11]
        return left, sizes, right

    monkeypatch.setattr(np.linalg, "svd", rotated)
    other = believing(skill=skills)
    other.load_state_dict(belief.state_dict())
    np.testing.assert_allclose(other.believe(PLACES)[0], belief.believe(PLACES)[0], rtol=1e-9)


def test_a_state_of_other_features_is_refused():
    levels, none = believing(level=(PLACES % 4).tolist()), LogitKalman(400)
    for one, other in ((levels, none), (none, levels)):
        with pytest.raises(
            ValueError, match=r"its features\.columns is '(level)?', not '(level)?'$"
        ):
            one.load_state_dict(other.state_dict())


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"level": [1, 2]}, "features must cover 3 prompts, got 2"),
        ({"level": [1, 2, 3], "a": [1]}, r"one value for each prompt, got \{'level': 3, 'a': 1\}"),
        ({"a": [None, None, None]}, "the column 'a' is empty"),
        ({"a": ["", "", ""]}, "the column 'a' is empty"),
        ({"v": [[1.0, 2.0], [1.0], [1.0, 3.0]]}, "the vectors of 'v' must be finite and of equal"),
        ({"v": [[1.0, 2.0], [1.0, np.nan], [1.0, 3.0]]}, "the vectors of 'v' must be finite"),
        ({"v": np.zeros((3, 1025))}, "the vectors of 'v' must be .* of equal length, at most 1024"),
    ],
)
def test_what_does_not_fit_is_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        LogitKalman(3, features=Features(columns))
