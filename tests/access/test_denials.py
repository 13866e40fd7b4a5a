from serve_app.access.denials import LINE_EVERY_S, Denials


def test_the_first_is_told_of_at_once_and_a_flood_once_a_minute_with_its_number():
    denials = Denials()
    assert denials.count(5.0) == 1
    assert [denials.count(5.0 + second) for second in range(int(LINE_EVERY_S))] == [0] * int(LINE_EVERY_S)
    assert denials.count(5.0 + LINE_EVERY_S) == LINE_EVERY_S + 1
    assert denials.count(6.0 + LINE_EVERY_S) == 0


def test_one_that_comes_after_a_long_time_is_told_of_at_once():
    denials = Denials()
    denials.count(0.0)
    assert denials.count(10 * LINE_EVERY_S) == 1
