"""The few best of many, against sorting everything; prompts by their keys."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwise.prompts.choice import nearest_on_both_sides
from rollwise.prompts.keys import fingerprint, indices_of
from rollwise.sampling.draws import number

few_values = st.sampled_from([-1.0, -0.5, -0.0, 0.0, 0.25, 0.5, 1.0, 1e-300, -1e-300])
values_with_ties = st.lists(few_values | st.floats(-2, 2), min_size=1, max_size=60)


def by_sorting(values, centre, count, exclude):
    """The symmetric choice as METHODS has it, on plain sorted lists; equal values by index."""
    indices = [i for i in range(len(values)) if not exclude[i]]
    above = sorted((i for i in indices if values[i] > centre), key=lambda i: (values[i], i))
    below = sorted((i for i in indices if values[i] <= centre), key=lambda i: (-values[i], i))
    chosen = above[: count // 2] + below[: count - count // 2]
    rest = above[count // 2 :] + below[count - count // 2 :]  # of one side only, if it is needed
    return sorted(chosen + rest[: count - len(chosen)])


@given(values=values_with_ties, centre=few_values | st.floats(-2, 2), data=st.data())
def test_the_symmetric_choice_is_that_of_sorting(values, centre, data):
    count = data.draw(st.integers(0, len(values)))
    exclude = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    expected = by_sorting(values, centre, count, exclude)
    chosen = nearest_on_both_sides(np.array(values), centre, count, np.array(exclude))
    assert chosen.tolist() == expected
    if not any(exclude):
        assert nearest_on_both_sides(np.array(values), centre, count).tolist() == expected


@pytest.mark.parametrize("keys", [["a", "b", "c", "d", "e"], range(5), [9, 8, 7, 6, 5]])
def test_an_unknown_key_is_named(keys):
    with pytest.raises(ValueError, match=r"^not among the 5 prompts of this sampler: 'x'$"):
        indices_of(number(keys), [keys[0], "x", 99])


def test_a_fingerprint_is_of_the_keys_and_their_order():
    sets = [["a", "b"], ["b", "a"], ["ab"], ["a", "b", "c"], [0, 1], [1, 0], ["0", "1"], ["1", "0"]]
    assert len({fingerprint(keys) for keys in sets}) == len(sets)
    assert fingerprint(tuple(number(np.arange(2)))) == fingerprint([0, 1])
    # The same in every process and release, or states could not be loaded.
    assert fingerprint(["a", "b", 1]) == "b3e03f9c9a09fd58"
