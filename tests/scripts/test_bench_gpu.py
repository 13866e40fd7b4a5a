import pytest
import torch

from scripts import bench_gpu


def test_the_whole_benchmark_runs_on_a_cpu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench_gpu, "CLIPS", ("jˈɛs.",))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # where others use the machine too, more would mostly wait for each other
    try:
        assert bench_gpu.main(["--device", "cpu", "--batches", "1,2", "--clips", "0", "--repeats", "1"]) == 0
    finally:
        torch.set_num_threads(threads)
    printed = capsys.readouterr().out
    assert "parity: durations identical" in printed
    assert [line.split()[0] for line in printed.splitlines()[4:6]] == ["1", "2"]
    assert "one short sentence alone" in printed


def test_without_a_card_it_says_how_to_run_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench_gpu.torch.cuda, "is_available", lambda: False)
    assert bench_gpu.main([]) == 1
    assert "--device cpu" in capsys.readouterr().err
