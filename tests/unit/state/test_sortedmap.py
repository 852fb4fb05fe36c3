from __future__ import annotations

import random

from umbel.state.sortedmap import SortedMap


def test_agrees_with_a_dict_that_is_sorted_each_time() -> None:
    chance = random.Random(3)
    model: dict[bytes, int] = {}
    tested: SortedMap[int] = SortedMap()
    for turn in range(6000):
        key = b"%03d" % chance.randrange(300)
        if chance.random() < 0.55:
            tested.set(key, turn)
            model[key] = turn
        else:
            tested.remove(key)
            model.pop(key, None)
        if chance.random() < 0.1:
            low, high = sorted((b"%03d" % chance.randrange(300), b"%03d" % chance.randrange(300)))
            expected = [key for key in sorted(model) if low <= key < high]
            assert list(tested.between(low, high, reverse=False)) == expected
            assert list(tested.between(low, high, reverse=True)) == expected[::-1]
    assert tested.values == model
    assert len(tested) == len(model)


def test_few_and_many_additions_are_put_in_order() -> None:
    tested: SortedMap[int] = SortedMap()
    for size in (1, 63, 64, 1000):
        for number in random.Random(size).sample(range(10_000), size):
            tested.set(b"%05d" % number, number)
        assert list(tested.between(b"", b"z", reverse=False)) == sorted(tested.values)


def test_a_key_removed_and_set_again_is_there_once() -> None:
    tested: SortedMap[int] = SortedMap()
    tested.set(b"a", 1)
    tested.remove(b"a")
    tested.set(b"a", 2)
    assert list(tested.between(b"", b"z", reverse=False)) == [b"a"]
    tested.remove(b"a")
    assert list(tested.between(b"", b"z", reverse=False)) == []
    tested.set(b"a", 3)
    assert list(tested.between(b"", b"z", reverse=False)) == [b"a"]
