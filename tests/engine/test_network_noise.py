import pytest
import torch

from serve_app.engine.network.noise import gaussian, philox


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_its_authors_known_answers(counter, key, words):
    """Random123's kat_vectors, philox4x32 with 10 rounds."""
    tensors = [torch.tensor([number]) for number in (*counter, *key)]
    assert tuple(int(word) for word in philox(tuple(tensors[:4]), tuple(tensors[4:]))) == words


def test_noise_is_standard_normal_and_its_channels_and_neighbours_are_independent():
    noise = gaussian(torch.tensor([7]), 9, 60_000)[0].double()
    assert noise.mean().abs() < 0.01
    assert abs(noise.std() - 1) < 0.01
    assert abs((noise**4).mean() - 3) < 0.1
    assert noise.abs().max() < 7
    between = torch.corrcoef(noise) - torch.eye(9)
    along = torch.corrcoef(torch.stack([noise[0, lag : 59_990 + lag] for lag in range(8)])) - torch.eye(8)
    assert max(between.abs().max(), along.abs().max()) < 0.02


def test_an_items_noise_depends_on_its_seed_alone():
    """Not on its row, its neighbours, or the padding; every item is compared."""
    seeds = [3, -(2**63), 2**63 - 1, 0, 4]
    alone = [gaussian(torch.tensor([seed]), 9, 1200)[0] for seed in seeds]
    beside = gaussian(torch.tensor(seeds), 9, 6000)
    again = gaussian(torch.tensor(seeds[::-1]), 9, 2400).flip(0)
    for row, expected in enumerate(alone):
        assert torch.equal(beside[row, :, :1200], expected)
        assert torch.equal(again[row, :, :1200], expected)
        assert all(not torch.equal(expected, other) for other in alone[:row])
