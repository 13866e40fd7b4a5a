from serve_app.deployments.telemetry import Gauges


class FlakyGauge:
    """Ray's, in a process whose Ray fails now and then."""

    def __init__(self, *faults: Exception | None) -> None:
        self._faults = iter(faults)
        self.values: list[tuple[float, dict[str, str]]] = []

    def set(self, value: float, tags: dict[str, str]) -> None:
        if fault := next(self._faults, None):
            raise fault
        self.values.append((value, tags))


def test_a_gauge_is_set_again_with_its_last_value_whatever_becomes_of_another_one(caplog):
    flaky, sound, gauges = FlakyGauge(RuntimeError("gone"), RuntimeError("gone")), FlakyGauge(), Gauges()
    gauges.keep(flaky, 1.0, {"device": "cpu"})
    for value in (2.0, 3.0):
        gauges.keep(sound, value, {})
        gauges.set_again()
    gauges.set_again()
    assert sound.values == [(2.0, {}), (3.0, {}), (3.0, {})]
    assert flaky.values == [(1.0, {"device": "cpu"})]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
