import re

import pytest

from serve_app.text.spoken import speak_english, speak_url

NOTHING_VERBATIM = re.compile(r"(?!)")


def spoken(text: str, british: bool = False) -> str:
    said = speak_english(text.split(), british=british, verbatim=NOTHING_VERBATIM)
    return " ".join(part for part in said if part)


@pytest.mark.parametrize(
    ("written", "heard"),
    [
        # Money
        ("It costs $14.20.", "It costs 14 dollars and 20 cents."),
        ("£3.50", "3 pounds and 50 pence"),
        ("€5", "5 euros"),
        ("¥500", "500 yen"),
        ("$1", "1 dollar"),
        ("$0.50", "50 cents"),
        ("$0.01", "1 cent"),
        ("$5.00", "5 dollars"),
        ("$1.5", "1.5 dollars"),
        ("$2024", "2,024 dollars"),
        ("$1,234.56", "1,234 dollars and 56 cents"),
        ("$1.5 million, then", "1.5 million dollars, then"),
        ("$5k", "5 thousand dollars"),
        ("£2bn", "2 billion pounds"),
        ("-$5", "minus 5 dollars"),
        ("US$20", "20 U.S. dollars"),
        ("$5-$10", "5 to 10 dollars"),
        ("$5–10", "5 to 10 dollars"),
        ("$100-a-day", "100 dollars-a-day"),
        ("$20/month", "20 dollars per month"),
        ("5€", "5 euros"),
        ("$5, 20 more", "5 dollars, 20 more"),
        # Numbers
        ("1,234 in 2024", "1,234 in 2024"),
        ("the 1st and 22nd", "the 1st and 22nd"),
        ("-5", "minus 5"),
        ("+5", "plus 5"),
        ("±5", "plus or minus 5"),
        ("~5", "about 5"),
        ("10-20 people", "10 to 20 people"),
        ("50-50", "50 50"),
        ("pages 5–6,", "pages 5 to 6,"),
        ("007", "0 0 7"),
        ("3.14", "3.14"),
        ("3.10", "3 point 1 0"),
        ("0.0000001", "0.0000001"),
        ("0.00000000001", "0 point 0 0 0 0 0 0 0 0 0 0 1"),
        ("1234567890123", "1 2 3 4 5 6 7 8 9 0 1 2 3"),
        ("1/2", "one half"),
        ("2/3", "2 thirds"),
        ("24/7 and 5/10", "24/7 and 5/10"),
        ("1 1/2 cups", "1 and one half cups"),
        ("1½", "1 and one half"),
        ("¾", "3 quarters"),
        ("50%", "50 percent"),
        ("5–10%", "5 to 10 percent"),
        ("5%-10%", "5 to 10 percent"),
        ("1920x1080", "1920 by 1080"),
        ("#1", "number 1"),
        ("No. 5", "number 5"),
        ("No. Five", "No. Five"),
        # Versions, addresses of machines, phones
        ("2.0.1", "2 point 0 point 1"),
        ("v1.2", "version 1 point 2"),
        ("v2 of the V8 engine", "version 2 of the V8 engine"),
        ("192.168.0.1", "192 dot 168 dot 0 dot 1"),
        ("555-123-4567", "5 5 5, 1 2 3, 4 5 6 7"),
        ("(555) 123-4567.", "(5 5 5) 1 2 3, 4 5 6 7."),
        ("+15551234567", "plus 1 5 5 5 1 2 3 4 5 6 7"),
        # Dates and times
        ("3:30 pm", "3 30 pm"),
        ("3:00 p.m.", "3 p.m."),
        ("5:30pm", "5 30 p.m."),
        ("10:05", "10 oh 5"),
        ("10:00", "10 o'clock"),
        ("10:00am", "10 a.m."),
        ("23:59:59", "23 59 and 59 seconds"),
        ("3:1", "3 to 1"),
        ("2024-05-01", "May 1st, 2024"),
        ("05/13/2024", "May 13th, 2024"),
        ("2024-13-01", "2 0 2 4, 1 3, 0 1"),
        # Units
        ("5km", "5 kilometers"),
        ("1 km", "1 kilometer"),
        ("20°C", "20 degrees Celsius"),
        ("-4 °F", "minus 4 degrees Fahrenheit"),
        ("10GB", "10 gigabytes"),
        ("15ms", "15 milliseconds"),
        ("3.5kg", "3.5 kilograms"),
        ("60 km/h", "60 kilometers per hour"),
        ("6ft", "6 feet"),
        ("5m²", "5 square meters"),
        ("100MB/s", "100 megabytes per second"),
        ("5 in the box", "5 in the box"),
        ("5'11\"", "5 feet 11 inches"),
        ("x²", "x squared"),
        # Signs
        ("word - word", "word — word"),
        ("5 - 3 = 2", "5 minus 3 equals 2"),
        ("2*3", "2 times 3"),
        ("a < b", "a less than b"),
        ("A → B", "A to B"),
        ("a->b", "a to b"),
        ("Q & A", "Q & A"),
        ("this vs. that", "this versus that"),
        ("C# and C++", "C sharp and C++"),
        ("snake_case", "snake case"),
        ("#launch", "hashtag launch"),
        ("[1] {x}", "(1) (x)"),
        ("Great 😀 ☃!", "Great !"),
        ("’tis rock ’n’ roll of the ’90s", "tis rock and roll of the '90s"),
        # Addresses
        ("See example.com.", "See example dot com."),
        ("https://www.example.com/a-b/?q=1#top", "example dot com slash a dash b"),
        ("bob_1@example.co.uk,", "bob underscore 1 at example dot co dot uk,"),
        ("done.It was", "done.It was"),
        ("README.md", "README dot md"),
        ("e.g. the U.S. at 5 p.m.", "e.g. the U.S. at 5 p.m."),
    ],
)
def test_english_is_spoken_as_a_person_would_read_it(written: str, heard: str) -> None:
    assert spoken(written) == heard


def test_british_dates_put_the_day_first() -> None:
    assert spoken("05/01/2024", british=True) == "the 5th of January, 2024"
    assert spoken("2024-05-01", british=True) == "the 1st of May, 2024"


def test_each_written_word_keeps_its_own_spoken_form() -> None:
    words = ["It", "costs", "$14.20", "at", "example.com", "😀", "today."]
    said = speak_english(words, british=False, verbatim=NOTHING_VERBATIM)
    assert said == ["It", "costs", "14 dollars and 20 cents", "at", "example dot com", "", "today."]


def test_verbatim_words_are_left_alone() -> None:
    assert speak_english(["$5", "-5"], british=False, verbatim=re.compile("-")) == ["5 dollars", "-5"]


@pytest.mark.parametrize(
    ("lang", "dot"), [("e", "punto"), ("f", "point"), ("i", "punto"), ("p", "ponto"), ("h", "डॉट")]
)
def test_addresses_are_spoken_in_their_language(lang: str, dot: str) -> None:
    assert speak_url("https://example.com", lang) == f"example {dot} com"
