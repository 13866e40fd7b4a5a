from scripts.promises import Promises


def test_a_promise_that_is_broken_counts_and_is_told(capsys):
    promises = Promises()
    promises.keep("whole", True, "3 of 3")
    promises.keep("silent", False, "2 words")
    assert promises.broken == 1
    assert capsys.readouterr().out == "kept    whole: 3 of 3\nBROKEN  silent: 2 words\n"


def test_what_comes_too_late_breaks_a_promise(capsys):
    promises = Promises()
    promises.keep_within("again", 1.234, 2.0)
    promises.keep_within("again", 2.0, 2.0, "the slowest")
    assert promises.broken == 1
    assert capsys.readouterr().out == "kept    again: 1.23 s\nBROKEN  again: 2.00 s, the slowest\n"


def test_on_a_machine_that_others_use_it_is_told_only(capsys):
    promises = Promises(timed=False)
    promises.keep_within("again", 3.0, 2.0)
    promises.keep("whole", False, "2 of 3")
    assert promises.broken == 1
    assert capsys.readouterr().out == "late    again: 3.00 s\nBROKEN  whole: 2 of 3\n"
