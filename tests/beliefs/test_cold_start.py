"""What is believed of prompts before their first visit: from levels and measured pass rates."""

import numpy as np
import pytest

from rollwise.beliefs import LogitKalman
from rollwise.beliefs.kalman import posterior, spread
from rollwise.beliefs.level_offsets import LevelOffsets
from rollwise.beliefs.ratings import logistic

PLACES = np.arange(400)


def drawn_by_level(seed=0, steps=40, batch=32):
    """Single draws to 400 prompts of levels 1 to 4, whose logits lie around 2, 0, -1 and -3."""
    rng = np.random.default_rng(seed)
    level = PLACES % 4
    logits = np.array([2.0, 0.0, -1.0, -3.0])[level] + rng.normal(0, 0.5, 400)
    for _ in range(steps):
        places = rng.choice(400, batch, replace=False)
        yield places, rng.random(batch) < logistic(logits[places]), logistic(logits[places])


def loss_of_first_visits(belief):
    seen, losses = np.zeros(400, dtype=bool), []
    for places, correct, _ in drawn_by_level():
        expected = belief.believe(places)[0]
        loss = -np.where(correct, np.log(expected), np.log1p(-expected))
        losses.extend(loss[~seen[places]])
        seen[places] = True
        belief.learn(places, correct, np.ones(len(places)))
    return np.mean(losses)


def test_a_prompt_never_drawn_is_expected_to_be_like_others_of_its_level():
    belief = LogitKalman(400, levels=(PLACES % 4 + 1).tolist())
    unseen = np.ones(400, dtype=bool)
    for places, correct, _ in drawn_by_level(steps=30, batch=8):
        belief.learn(places, correct, np.ones(len(places)))
        unseen[places] = False
    means = belief.believe(PLACES)[0]
    by_level = [means[unseen & (level == PLACES % 4)] for level in range(4)]
    assert all(each.std() < 1e-12 for each in by_level)
    assert np.diff([each[0] for each in by_level]).max() < -0.05


def test_levels_predict_first_visits_better():
    with_levels = LogitKalman(400, levels=(PLACES % 4 + 1).tolist())
    assert loss_of_first_visits(with_levels) < loss_of_first_visits(LogitKalman(400)) - 0.1


def test_one_level_for_all_tells_nothing_apart():
    belief = LogitKalman(400, levels=[None] * 400)
    for places, correct, _ in drawn_by_level(steps=5):
        belief.learn(places, correct, np.ones(len(places)))
    unseen = belief.believe(PLACES)[0][belief.state_dict()["visited_at"] < 0]
    assert unseen.std() < 1e-12


def test_an_offset_moves_by_surprise_over_information():
    """τ² = 2: of surprises 1 and 2 with information 1.5, u = 3/(½ + 1.5); clipped at 1 a step. What
    a step forgets of information is a hundredth of that beyond the prior's."""
    offsets = LevelOffsets([7, 7, None], 2.0)
    offsets.learn(np.array([0, 1]), np.array([0.2, 0.4]), np.array([1.0, 0.5]))
    assert offsets.of(slice(None)) == pytest.approx([0.3, 0.3, 0.0])
    offsets.learn(np.array([1]), np.array([-0.1]), np.array([0.0]))
    assert offsets.of(np.array([1])) == pytest.approx([0.3 - 0.1 / (0.5 + 0.99 * 1.5)])
    offsets.learn(np.array([2]), np.array([5.0]), np.array([1.0]))
    assert offsets.of(np.array([2])) == pytest.approx([1.0])


def test_a_state_of_other_levels_is_refused():
    state = LogitKalman(3, levels=[1, 2, 2]).state_dict()
    other = LogitKalman(3, levels=[1, 3, 3])
    with pytest.raises(ValueError, match=r"of levels \[1.0, 2.0\], these have \[1.0, 3.0\]"):
        other.load_state_dict(state)
    with pytest.raises(ValueError, match="level_names"):
        other.load_state_dict(LogitKalman(3).state_dict())


def test_measured_pass_rates_are_the_posterior_around_the_level_of_all():
    """Half of 8 of 32 responses makes the share 4½/17; each offset is a posterior given its own."""
    measured = np.array([[8, 8], [0, 8], [0, 8], [0, 8], [0, 0]])
    belief = LogitKalman(5, measured=measured, measured_weight=0.5)
    share = 4.5 / 17
    level = np.log(share / (1 - share)) * spread(1.5)
    mean, variance = posterior(np.full(5, level), np.full(5, 1.5), *measured.T / 2)
    found = belief.logits(slice(None))
    assert found[0] == pytest.approx(mean)
    assert found[1] == pytest.approx(variance)
    assert belief.believe(np.array([4]))[0] == pytest.approx([share])  # not measured


def test_a_measured_response_of_weight_0_says_nothing():
    belief = LogitKalman(2, measured=[(4, 4), (0, 4)], measured_weight=0.0)
    assert belief.believe(slice(None))[0] == pytest.approx([0.5, 0.5])


def test_measured_pass_rates_predict_first_visits_better():
    rng = np.random.default_rng(5)
    truth = logistic(np.array([2.0, 0.0, -1.0, -3.0])[PLACES % 4])
    measured = np.stack([rng.binomial(8, truth), np.full(400, 8)], axis=1)
    belief = LogitKalman(400, measured=measured)
    assert loss_of_first_visits(belief) < loss_of_first_visits(LogitKalman(400)) - 0.1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"levels": [1, 2]}, "levels must be of 3 prompts, got 2"),
        ({"measured": [(1, 2)]}, r"measured must have shape \(3, 2\), got \(1, 2\)"),
        ({"measured": [(1, 2), (3, 2), (0, 0)]}, "at least as many drawn"),
        ({"measured_weight": -1.0}, "measured_weight must be finite and at least 0"),
    ],
)
def test_what_does_not_fit_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        LogitKalman(3, **given)
