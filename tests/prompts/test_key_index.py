"""From key to place: any keys, collisions of hashes, errors, and what it costs."""

import pickle
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwise.prompts import index as index_module
from rollwise.prompts.index import KeyIndex

keys_of_any_kind = st.lists(
    st.one_of(st.text(max_size=4), st.integers(-(2**70), 2**70), st.integers(-3, 3)),
    unique=True,
    min_size=1,
    max_size=30,
)


@given(keys=keys_of_any_kind, data=st.data())
def test_each_key_is_at_its_place(keys, data):
    asked = data.draw(st.lists(st.sampled_from(keys), unique=True))
    assert KeyIndex(keys).places(asked).tolist() == [keys.index(key) for key in asked]
    assert list(KeyIndex(keys).keys) == keys


@given(keys=keys_of_any_kind)
def test_keys_of_one_hash_are_told_apart(keys):
    """All keys in 2 hashes: places, strangers and duplicates are still right."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            index_module,
            "_codes",
            lambda keys: np.array([hash(key) % 2 for key in keys], dtype=np.uint32),
        )
        index = KeyIndex(keys)
        assert index.places(keys).tolist() == list(range(len(keys)))
        with pytest.raises(ValueError, match="not among"):
            index.places(["a stranger"])
        if not isinstance(index.keys, range):
            with pytest.raises(ValueError, match="twice"):
                KeyIndex([*keys, keys[0]])


def test_hashes_that_python_gives_twice():
    """hash(−1) = hash(−2), and hash(2⁶¹ − 1) = hash(0)."""
    keys = [-1, -2, 0, 2**61 - 1, 2 * (2**61 - 1)]
    assert KeyIndex(keys).places(keys[::-1]).tolist() == [4, 3, 2, 1, 0]


def test_regular_integers_do_not_collide():
    """1,000,000 integers in regular steps: about as few equal 32-bit hashes as of random ones.

    Of n random hashes n²/2³³ = 116 pairs are equal; of a bad mixture it would be most.
    """
    for step in (1, 3, 1 << 12, 1 << 32, 1 << 40):
        codes = np.sort(index_module._codes(range(7, 7 + 1_000_000 * step, step)))
        assert np.count_nonzero(codes[1:] == codes[:-1]) < 300


def test_numpy_keys_become_pythons():
    keys = [np.int64(7), np.str_("b"), np.int32(-1)]
    assert [type(key) for key in KeyIndex(keys).keys] == [int, str, int]
    assert KeyIndex([7, "b", -1]).places(keys).tolist() == [0, 1, 2]
    assert KeyIndex(np.array([4, 2])).places([2]).tolist() == [1]
    assert KeyIndex(iter("ba")).places(["a"]).tolist() == [1]


def test_keys_that_are_their_places_need_no_table():
    for keys in (range(1000), list(range(1000)), np.arange(1000)):
        index = KeyIndex(keys)
        assert index.keys == range(1000)
        assert not hasattr(index, "_codes")
    assert KeyIndex(range(5, 8)).places([7]).tolist() == [2]


@pytest.mark.parametrize("keys", [["a", "b", "c", "d", "e"], range(5), [9, 8, 7, 6, 5]])
def test_unknown_keys_are_named(keys):
    index = KeyIndex(keys)
    with pytest.raises(ValueError, match=r"^not among the 5 prompts of this sampler: 'x'$"):
        index.places([keys[0], "x"])
    with pytest.raises(ValueError, match=r"this sampler: 'x', -1, 99 and 2 more$"):
        index.places(["x", -1, keys[1], 99, "y", "z"])


def test_keys_that_come_twice_are_named():
    with pytest.raises(ValueError, match=r"^keys must be different, got 'b' twice$"):
        KeyIndex(["a", "b", "c", "b"])
    with pytest.raises(ValueError, match=r"^keys must be different, got 2 twice$"):
        KeyIndex([0, 1, 2, 2])
    with pytest.raises(ValueError, match=r"^each prompt may come once, got key 'c' twice$"):
        KeyIndex("abc").places(["c", "a", "c"])


@pytest.mark.parametrize("key", [1.5, None, True, np.bool_(True), b"a", ("a",)])
def test_a_key_is_a_string_or_an_integer(key):
    with pytest.raises(TypeError, match=r"^a key must be a string or an integer, got "):
        KeyIndex(["a", key])


def test_a_fingerprint_is_of_the_keys_and_their_order():
    sets = [["a", "b"], ["b", "a"], ["ab"], ["a", "b", "c"], [0, 1], [1, 0], ["0", "1"], ["1", "0"]]
    assert len({KeyIndex(keys).fingerprint for keys in sets}) == len(sets)
    assert KeyIndex(np.arange(2)).fingerprint == KeyIndex([0, 1]).fingerprint
    assert KeyIndex(("a", "b")).fingerprint == KeyIndex(["a", "b"]).fingerprint


def test_a_fingerprint_and_a_pickle_are_the_same_in_another_process(tmp_path):
    """Python hashes strings differently in every process."""
    keys = [f"prompt {i}" for i in range(500)]
    code = (
        "import pickle, sys; from rollwise.prompts.index import KeyIndex;"
        "index = KeyIndex([f'prompt {i}' for i in range(500)]); print(index.fingerprint);"
        "pickle.dump(index, open(sys.argv[1], 'wb'))"
    )
    path = tmp_path / "index.pickle"
    printed = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "12345"},
    )
    assert printed.stdout.strip() == KeyIndex(keys).fingerprint
    index = pickle.loads(path.read_bytes())
    assert index.places(keys[::-1]).tolist() == list(range(500))[::-1]


@pytest.mark.parametrize(
    ("keys", "most"),
    [
        ([f"{i:06d}" for i in range(200_000)], 17),
        ([i * 3 for i in range(200_000)], 17),
        (list(range(200_000)), 1),
    ],
    ids=["strings", "integers", "places"],
)
def test_bytes_a_prompt(keys, most):
    """Keys by reference (or integers by value) 8, hashes 4, order 4; nothing for places."""
    tracemalloc.start()
    index = KeyIndex(keys)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(index) == len(keys)
    assert held / len(keys) < most


def test_remembered_keys_are_found_among_others():
    index = KeyIndex("abcdef")
    assert index.keys_at(np.array([4, 1])) == ["e", "b"]
    assert index.places(["b", "c", "e", "a"]).tolist() == [1, 2, 4, 0]
    with pytest.raises(ValueError, match=r"sampler: 'x'$"):
        index.places(["b", "x"])
