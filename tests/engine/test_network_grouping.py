from hypothesis import given
from hypothesis import strategies as st

from serve_app.engine.network.grouping import BATCHES, FRAME_SIZES, MAX_PADDING, Buckets, Group, alone

FRAMES = Buckets(FRAME_SIZES, BATCHES, max_cells=8192)


def test_alone_each_item_has_a_pass_of_exactly_its_shape():
    assert alone([7, 3]) == [Group((0,), 1, 7, repeated=False), Group((1,), 1, 3, repeated=False)]


def test_items_near_each_other_share_a_pass_and_far_ones_do_not():
    assert FRAMES([64, 300, 60, 290]) == [
        Group((1, 3), 2, 304, repeated=True),
        Group((0, 2), 2, 64, repeated=True),
    ]


def test_a_batch_between_two_sizes_is_filled_up_to_the_next():
    (group,) = FRAMES([64] * 5)
    assert (len(group.items), group.batch) == (5, 6)


def test_what_is_longer_than_every_size_goes_alone_and_is_not_recorded():
    long, short = FRAMES([90_000, 64])
    assert long == Group((0,), 1, 90_000, repeated=False)
    assert short == Group((1,), 1, 64, repeated=True)


def shapes(groups):
    return [(group.batch, group.size) for group in groups]


def test_what_is_recorded_ahead_is_one_sentence_alone_then_shorter_and_longer_and_more():
    few = Buckets((64, 128, 256), (1, 2, 4), 10_000)
    assert shapes(few.most_used(128, 1, 10**9, most=6)) == [
        (1, 128),
        (1, 64),
        (1, 256),
        (2, 128),
        (2, 64),
        (2, 256),
    ]
    assert all(group.repeated for group in few.most_used(128, 1, 10**9, most=6))


def test_a_shape_without_room_leaves_its_place_to_a_smaller_one():
    few = Buckets((64, 128, 256), (1, 2, 4), 10_000)
    assert shapes(few.most_used(128, 10, 3000, most=9)) == [(1, 128), (1, 64)]
    assert few.most_used(128, 10, 600, most=9) == []


@given(st.integers(0, 10**9), st.integers(1, 300))
def test_what_is_recorded_ahead_keeps_its_bounds_and_is_a_shape_of_the_stage(max_bytes, most):
    chosen = shapes(FRAMES.most_used(192, 9408, max_bytes, most))
    assert len(chosen) == len(set(chosen)) <= most
    assert sum(batch * size for batch, size in chosen) * 9408 <= max_bytes
    assert all(batch * size <= FRAMES.max_cells for batch, size in chosen)


@given(st.lists(st.integers(1, 9000), max_size=150))
def test_every_item_is_spoken_once_fits_and_is_not_padded_past_the_bound(sizes):
    groups = FRAMES(sizes)
    assert sorted(item for group in groups for item in group.items) == list(range(len(sizes)))
    for group in groups:
        assert len(group.items) <= group.batch
        assert group.batch * group.size <= max(FRAMES.max_cells, group.size)
        longest = max(sizes[item] for item in group.items)
        assert longest <= group.size
        assert group.repeated == (group.size in FRAME_SIZES and group.batch in BATCHES)
        for item in group.items:
            assert sizes[item] == longest or sizes[item] * MAX_PADDING >= group.size
