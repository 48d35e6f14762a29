"""The built-in environment of sums."""

import pytest

from rollwise.environments import Calculator, Opening, Turn


@pytest.mark.parametrize(
    "said, answer",
    [("12-9", "3 "), ("7 12 -4-9", "-13 "), ("12", "? "), ("12-", "? "), ("", "? ")],
)
def test_the_calculator_takes_the_last_word(said, answer):
    playing = Calculator(failure_rate=0).begin(Opening([], "", seed=0))
    assert playing.step(said) == Turn(answer)
    assert playing.step("3 =3") == Turn(done=True)


def test_the_calculator_fails_as_often_as_it_is_told_and_alike_for_a_seed():
    def answers(seed):
        playing = Calculator(failure_rate=0.25).begin(Opening([], "", seed))
        return [playing.step("1+1").says for _ in range(2000)]

    assert answers(3) == answers(3) != answers(4)
    share = answers(3).count("? ") / 2000
    assert abs(share - 0.25) < 5 * (0.25 * 0.75 / 2000) ** 0.5
    with pytest.raises(ValueError, match="failure_rate"):
        Calculator(failure_rate=1.5)
