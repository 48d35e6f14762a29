"""From key to index: any keys, fingerprints, and errors that name them."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwise.prompts.keys import fingerprint, indices_of, number

keys_of_any_kind = st.lists(
    st.one_of(st.text(max_size=4), st.integers(-(2**70), 2**70), st.integers(-3, 3)),
    unique=True,
    min_size=1,
    max_size=30,
)


@given(keys=keys_of_any_kind, data=st.data())
def test_each_key_is_at_its_place(keys, data):
    asked = data.draw(st.lists(st.sampled_from(keys), unique=True))
    index = number(keys)
    assert indices_of(index, asked).tolist() == [keys.index(key) for key in asked]
    assert list(index) == keys


def test_numpy_keys_become_pythons():
    keys = [np.int64(7), np.str_("b"), np.int32(-1)]
    assert [type(key) for key in number(keys)] == [int, str, int]
    assert indices_of(number([7, "b", -1]), keys).tolist() == [0, 1, 2]
    assert indices_of(number(np.array([4, 2])), [2]).tolist() == [1]
    assert indices_of(number(iter("ba")), ["a"]).tolist() == [1]


@pytest.mark.parametrize("keys", [["a", "b", "c", "d", "e"], range(5), [9, 8, 7, 6, 5]])
def test_unknown_keys_are_named(keys):
    index = number(keys)
    with pytest.raises(ValueError, match=r"^not among the 5 prompts of this sampler: 'x'$"):
        indices_of(index, [keys[0], "x"])
    with pytest.raises(ValueError, match=r"this sampler: 'x', -1, 99 and 2 more$"):
        indices_of(index, ["x", -1, keys[1], 99, "y", "z"])


def test_a_fingerprint_is_of_the_keys_and_their_order():
    sets = [["a", "b"], ["b", "a"], ["ab"], ["a", "b", "c"], [0, 1], [1, 0], ["0", "1"], ["1", "0"]]
    assert len({fingerprint(keys) for keys in sets}) == len(sets)
    assert fingerprint(tuple(number(np.arange(2)))) == fingerprint([0, 1])


def test_a_fingerprint_is_the_same_in_another_process():
    """Python hashes strings differently in every process."""
    code = (
        "from rollwise.prompts.keys import fingerprint;"
        "print(fingerprint([f'prompt {i}' for i in range(500)]))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "12345"},
    )
    assert printed.stdout.strip() == fingerprint([f"prompt {i}" for i in range(500)])
