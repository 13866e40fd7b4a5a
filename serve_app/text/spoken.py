"""Spoken forms of English words as written: what misaki reads wrong, and only that.

misaki reads plain numbers, years, ordinals, percentages and its own abbreviations well. The rules here add currency,
units, times, dates, ranges, fractions, versions, phone numbers, signs and addresses.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence

# --- Addresses (every language) ---

# Without those that are English words: "done.It" is a missing blank.
_TOP_LEVEL = "com org net io ai dev app edu gov mil info biz co tv uk de fr eu ca au jp cn br ch nl"
_EXTENSIONS = (
    "md yaml yml json py js jsx ts tsx txt csv pdf html css sh toml png jpg jpeg gif svg mp3 mp4 wav zip gz tar exe xml"
    " log ini cfg go rs java cpp ipynb docx xlsx pptx sql env lock"
)
_ENDINGS = "|".join(sorted({*_TOP_LEVEL.split(), *_EXTENSIONS.split()}, key=len, reverse=True))
_LABELS = r"(?:[^\W_][\w-]{0,62}\.){1,8}"
URL = re.compile(
    rf"(?:(?:https?|ftp|wss?|s3)://|mailto:|www\.)\S+|{_LABELS}(?:{_ENDINGS})(?::\d{{1,5}})?(?:[/?#]\S*)?", re.I
)
EMAIL = re.compile(rf"(?:mailto:)?[\w.+-]{{1,64}}@{_LABELS}[^\W\d_]{{2,24}}")

_ADDRESS_WORDS = {
    # . / @ - _ :
    "e": ("punto", "barra", "arroba", "guion", "guion bajo", "dos puntos"),
    "f": ("point", "slash", "arobase", "tiret", "tiret bas", "deux points"),
    "h": ("डॉट", "स्लैश", "ऐट", "डैश", "अंडरस्कोर", "कोलन"),
    "i": ("punto", "barra", "chiocciola", "trattino", "trattino basso", "due punti"),
    "p": ("ponto", "barra", "arroba", "traço", "traço baixo", "dois pontos"),
}
_ENGLISH_ADDRESS_WORDS = ("dot", "slash", "at", "dash", "underscore", "colon")
_SCHEME = re.compile(r"(?:(?:https?|ftp|wss?|s3)://|mailto:)?(?:www\.)?", re.I)
_ADDRESS_PART = re.compile(r"[^\W\d_]+|\d+|[./@_:-]")


def speak_url(address: str, lang: str) -> str:
    """Host and path of a web or mail address; scheme, query and fragment are left out."""
    names = dict(zip("./@-_:", _ADDRESS_WORDS.get(lang, _ENGLISH_ADDRESS_WORDS), strict=True))
    scheme = _SCHEME.match(address)
    address = address[scheme.end() :] if scheme else address
    address = re.split(r"[?#]", address, maxsplit=1)[0].rstrip("/") or address
    return " ".join(names.get(part, part) for part in _ADDRESS_PART.findall(address))


# --- English ---

_NUM = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(rf"[-−–+±]?(?:{_NUM})")
_SIGNS = {
    "-": "minus ", "−": "minus ", "–": "minus ", "+": "plus ", "±": "plus or minus ", "~": "about ", "≈": "about ",
    "∼": "about ", "<": "less than ", ">": "more than ", "≤": "at most ", "≥": "at least ", "": "",
}  # fmt: skip
_SIGN = r"[-−–+±~≈∼<>≤≥]?"
_MAX_CARDINAL_DIGITS = 12  # past a trillion, digits one by one: an account number, and num2words knows no end anyway

_CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "€": ("euro", "euros", "cent", "cents"),
    "¥": ("yen", "yen", "", ""),
    "￥": ("yen", "yen", "", ""),
    "₹": ("rupee", "rupees", "paisa", "paise"),
    "₩": ("won", "won", "", ""),
    "₽": ("ruble", "rubles", "kopek", "kopeks"),
    "₺": ("lira", "lira", "", ""),
    "₪": ("shekel", "shekels", "", ""),
    "₫": ("dong", "dong", "", ""),
    "฿": ("baht", "baht", "", ""),
    "₦": ("naira", "naira", "", ""),
    "₱": ("peso", "pesos", "", ""),
    "₴": ("hryvnia", "hryvnias", "", ""),
    "₿": ("bitcoin", "bitcoins", "", ""),
}
_CURRENCY_SIGN = "[" + "".join(_CURRENCIES) + "]"
_COUNTRIES = {"US": "U.S.", "A": "Australian", "AU": "Australian", "C": "Canadian", "CA": "Canadian", "HK": "Hong Kong",
              "NZ": "New Zealand", "S": "Singapore", "R": "Brazilian"}  # fmt: skip
_MAGNITUDES = {"k": "thousand", "K": "thousand", "m": "million", "M": "million", "mn": "million", "b": "billion",
               "B": "billion", "bn": "billion", "t": "trillion", "T": "trillion", "tn": "trillion"}  # fmt: skip
_MAGNITUDE = "|".join(sorted(_MAGNITUDES, key=len, reverse=True))
_MAGNITUDE_WORDS = frozenset({"hundred", "thousand", "million", "billion", "trillion"})

_UNITS = {
    "km": "kilometer", "m": "meter", "cm": "centimeter", "mm": "millimeter", "µm": "micrometer", "nm": "nanometer",
    "mi": "mile", "ft": "foot/feet", "yd": "yard", "km/h": "kilometer per hour", "kph": "kilometer per hour",
    "kmh": "kilometer per hour", "mph": "mile per hour", "m/s": "meter per second", "kg": "kilogram", "g": "gram",
    "mg": "milligram", "µg": "microgram", "lb": "pound", "lbs": "pound", "oz": "ounce", "L": "liter", "l": "liter",
    "ml": "milliliter", "mL": "milliliter", "ms": "millisecond", "µs": "microsecond", "ns": "nanosecond",
    "sec": "second", "secs": "second", "min": "minute", "mins": "minute", "h": "hour", "hr": "hour", "hrs": "hour",
    "Hz": "hertz/hertz", "kHz": "kilohertz/kilohertz", "MHz": "megahertz/megahertz", "GHz": "gigahertz/gigahertz",
    "kB": "kilobyte", "KB": "kilobyte", "MB": "megabyte", "GB": "gigabyte", "TB": "terabyte", "PB": "petabyte",
    "KiB": "kibibyte", "MiB": "mebibyte", "GiB": "gibibyte", "TiB": "tebibyte", "kbps": "kilobit per second",
    "Mbps": "megabit per second", "Gbps": "gigabit per second", "kbit/s": "kilobit per second",
    "Mbit/s": "megabit per second", "Gbit/s": "gigabit per second", "MB/s": "megabyte per second",
    "GB/s": "gigabyte per second", "W": "watt", "kW": "kilowatt", "MW": "megawatt", "GW": "gigawatt",
    "Wh": "watt hour", "kWh": "kilowatt hour", "mAh": "milliamp hour", "V": "volt", "mV": "millivolt", "mA": "milliamp",
    "°": "degree", "°C": "degree Celsius", "°F": "degree Fahrenheit", "℃": "degree Celsius", "℉": "degree Fahrenheit",
    "ºC": "degree Celsius", "ºF": "degree Fahrenheit", "dB": "decibel", "hPa": "hectopascal", "kPa": "kilopascal",
    "Pa": "pascal", "psi": "pound per square inch", "rpm": "revolution per minute", "fps": "frame per second",
    "px": "pixel", "kcal": "kilocalorie", "cal": "calorie", "kJ": "kilojoule", "J": "joule",
    "m²": "square meter", "m³": "cubic meter", "km²": "square kilometer", "mi²": "square mile",
    "cm²": "square centimeter", "cm³": "cubic centimeter", "ft²": "square foot/square feet",
    "sqft": "square foot/square feet",
    "¢": "cent", "%": "percent/percent", "‰": "per mille/per mille",
    "M": "million/million", "bn": "billion/billion",
}  # fmt: skip
_UNITS |= {unit.replace("µ", "μ"): name for unit, name in _UNITS.items()}  # the sign, and the Greek letter
_ATTACHED_ONLY = frozenset({"L", "l", "J", "M", "V", "W", "mi", "cal"})  # as words of their own: names, notes, initials
_UNIT = "|".join(re.escape(unit) for unit in sorted(_UNITS, key=len, reverse=True))
_PER = {
    "s": "second", "sec": "second", "min": "minute", "h": "hour", "hr": "hour", "hour": "hour", "d": "day",
    "day": "day", "wk": "week", "week": "week", "mo": "month", "month": "month", "yr": "year", "year": "year",
    "kg": "kilogram", "lb": "pound", "km": "kilometer", "L": "liter", "GB": "gigabyte", "MB": "megabyte",
    "user": "user", "person": "person",
}  # fmt: skip
_PER_UNIT = rf"(?:/(?P<per>{'|'.join(sorted(_PER, key=len, reverse=True))}))?"

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip
_FRACTIONS = {2: ("half", "halves"), 3: ("third", "thirds"), 4: ("quarter", "quarters"), 5: ("fifth", "fifths"),
              6: ("sixth", "sixths"), 7: ("seventh", "sevenths"), 8: ("eighth", "eighths"),
              9: ("ninth", "ninths")}  # fmt: skip
_VULGAR = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5), "⅗": (3, 5), "⅘": (4, 5),
    "⅙": (1, 6), "⅚": (5, 6), "⅐": (1, 7), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8), "⅑": (1, 9),
    }  # fmt: skip

_ALONE = {
    "-": "—", "–": "—", "--": "—", "---": "—", "−": "minus", "<": "less than", ">": "greater than", "=": "equals",
    "==": "equals", "vs": "versus", "vs.": "versus", "w/": "with", "w/o": "without", "$": "dollars", "£": "pounds",
    "€": "euros", "¥": "yen", "₹": "rupees", "C#": "C sharp", "F#": "F sharp", "#": "number",
    "'n'": "and", "’n’": "and", "‘n’": "and",
    "\\": "backslash", "°": "degrees",
}  # fmt: skip
_OPERATORS = {
    "<->": "to", "<=>": "to", "->": "to", "=>": "to", "→": "to", "⇒": "to", "⟶": "to", "↔": "to", "<=": "at most",
    ">=": "at least", "==": "equals", "!=": "not equal to", "≠": "not equal to", "≤": "at most", "≥": "at least",
    "≈": "about", "×": "times", "⋅": "times", "÷": "divided by", "=": "equals", "&&": "and", "||": "or",
    "±": "plus or minus",
    "∞": "infinity", "√": "square root of", "∑": "sum", "∆": "delta", "°": "degrees", "§": "section", "©": "copyright",
    "№": "number", "‰": "per mille", "℃": "degrees Celsius", "℉": "degrees Fahrenheit", "Ω": "ohm", "½": "half",
    "¢": "cents", "−": "minus", **{sign: names[1] for sign, names in _CURRENCIES.items()},
}  # fmt: skip
_OPERATOR = re.compile("|".join(re.escape(sign) for sign in sorted(_OPERATORS, key=len, reverse=True)))
_HALVES_OF_DAY = frozenset({"am", "pm", "a.m", "p.m"})
_FULL_HOUR = re.compile(r"(\d{1,2}):00")
_NUMBER_WORDS = {"No.": "number", "no.": "number", "Nos.": "numbers", "nos.": "numbers"}
_INCHES = re.compile(r"^(\d{1,2})['′’](\d{1,2})(?:[\"”]|'')")  # that quotation mark closes nothing
_TIMES = re.compile(r"(?<=\d)\*(?=\d)")
_ELIDED = re.compile(r"['‘’](?=(?:tis|twas|em|cause|til|till|bout|round|cuz)\b)", re.I)
_Rule = Callable[[re.Match[str], bool], str | None]
_DECADE = re.compile(r"[‘’](?=\d\ds\b)")

_LEAD = "(\"“‘'["
_TRAIL = ".,;:!?)\"”’']…"


def shell(word: str) -> tuple[str, str, str]:
    """Split a word into the marks before it, itself, and the marks after it."""
    without_lead = word.lstrip(_LEAD)
    core = without_lead.rstrip(_TRAIL)
    return word[: len(word) - len(without_lead)], core, without_lead[len(core) :]


def speak_english(words: Sequence[str], *, british: bool, verbatim: re.Pattern[str]) -> list[str]:
    """Spoken forms, one for each written word; one may hold several words, or none.

    Args:
        verbatim: words in which it is found are left as they are.
    """
    words = [_INCHES.sub(r"\1'\2″", word) for word in words]
    shells = [("", "", ""), *(shell(word) for word in words), ("", "", "")]
    spoken: list[str] = []
    for word, before, own, after in zip(words, shells, shells[1:], shells[2:], strict=False):
        if verbatim.search(word):
            spoken.append(word)
            continue
        lead, core, trail = own
        if word in _NUMBER_WORDS and after[1][:1].isdecimal():
            spoken.append(_NUMBER_WORDS[word])
            continue
        said = _in_context(word, core, before, after)
        if said is None and word in _ALONE:
            spoken.append(_ALONE[word])
            continue
        if said is None:
            said = _by_rule(core, british)
        spoken.append(_plain(word) if said is None else f"{_plain(lead)}{said}{_plain(trail)}")
    return spoken


# Words that mean something else beside certain others.


def _in_context(word: str, core: str, before: tuple[str, str, str], after: tuple[str, str, str]) -> str | None:
    number_before = _NUMBER.fullmatch(before[1]) is not None and not before[2]
    if (
        core in _MAGNITUDE_WORDS
        and (amount := _AMOUNT.fullmatch(before[1]))
        and not before[2]
        and not amount["magnitude"]
    ):
        return f"{core} {_currency_name(amount)[1]}"
    if after[1] in _MAGNITUDE_WORDS and (amount := _AMOUNT.fullmatch(core)) and word.endswith(core):
        return f"{_SIGNS[amount['sign']]}{_decimal(amount['number'])}"
    if number_before and core in _UNITS and core not in _ATTACHED_ONLY:
        return _unit_name(core, before[1])
    if number_before and (vulgar := _simple_fraction(core)) and before[1].isdecimal():
        return f"and {vulgar}"
    if after[1].lower() in _HALVES_OF_DAY and (hour := _FULL_HOUR.fullmatch(word)):
        return str(int(hour[1]))
    if word in ("*", "x") and number_before and _NUMBER.fullmatch(after[1]):
        return "times"
    if word in ("-", "–") and number_before and _NUMBER.fullmatch(after[1]):
        return "minus"
    if re.fullmatch(r"\d{3}", core) and before[0] == after[0] == "" and re.fullmatch(r"\d{3}[-.]\d{4}", after[1]):
        return _digits(core)  # (555) 123-4567
    return None


def _by_rule(core: str, british: bool) -> str | None:
    for pattern, say in _RULES:
        if match := pattern.fullmatch(core):
            said = say(match, british)
            if said is not None:
                return said
    return None


# --- Numbers ---


def _digits(text: str) -> str:
    return " ".join(character for character in text if character.isdecimal())


def _groups(text: str) -> str:
    """Digits one by one, with a breath between groups: phone, account and card numbers."""
    return ", ".join(_digits(group) for group in re.split(r"\D+", text) if group)


def _integer(text: str) -> str:
    digits = text.replace(",", "")
    if len(digits) > _MAX_CARDINAL_DIGITS or (len(digits) > 1 and digits[0] == "0"):
        return _digits(digits)
    return text


def _decimal(text: str) -> str:
    """misaki reads decimals through a float, which drops closing zeros (3.10) and turns small ones into 1e-07."""
    whole, point, fraction = text.partition(".")
    if not point:
        return _integer(text)
    if whole and (whole == "0" or whole[0] != "0") and len(whole) + len(fraction) < 12 and not fraction.endswith("0"):
        return text
    return f"{_integer(whole)} point {_digits(fraction)}".strip()


def _quantity(text: str) -> str:
    """A number that counts something: four digits alone would be read as a year."""
    return f"{text[0]},{text[1:]}" if re.fullmatch(r"[1-9]\d{3}", text) else _decimal(text)


def _is_one(number: str) -> bool:
    return number.replace(",", "") == "1"


def _unit_name(unit: str, number: str) -> str:
    singular, slash, plural = _UNITS[unit].partition("/")
    if _is_one(number):
        return singular
    if slash:
        return plural
    head = re.match(r"(?:degree|.*?(?= per )|.*)", singular)
    assert head is not None
    return f"{head[0]}s{singular[head.end() :]}"


def _say_unit(match: re.Match[str], british: bool) -> str:
    per = f" per {_PER[match['per']]}" if match["per"] else ""
    return f"{_SIGNS[match['sign']]}{_quantity(match['number'])} {_unit_name(match['unit'], match['number'])}{per}"


def _say_signed(match: re.Match[str], british: bool) -> str:
    return f"{_SIGNS[match['sign']]}{_decimal(match['number'])}"


def _say_range(match: re.Match[str], british: bool) -> str:
    rest = match["to"] + match["rest"]
    said = _by_rule(rest, british)
    if match["from"] == match["to"]:  # fifty-fifty
        return f"{match['from']} {rest if said is None else said}"
    return f"{_decimal(match['from'])} to {rest if said is None else said}"


# --- Money ---

_AMOUNT = re.compile(
    rf"(?P<sign>{_SIGN})(?:(?P<country>{'|'.join(sorted(_COUNTRIES, key=len, reverse=True))})(?=\$))?"
    rf"(?P<currency>{_CURRENCY_SIGN})(?P<inner>[-−]?)(?P<number>{_NUM})(?:(?P<magnitude>{_MAGNITUDE})(?![^\W\d_]))?{_PER_UNIT}"
)
_AMOUNT_RANGE = re.compile(
    rf"(?P<currency>{_CURRENCY_SIGN})(?P<from>{_NUM})[-–—]{_CURRENCY_SIGN}?(?P<to>(?:{_NUM})(?:{_MAGNITUDE})?)"
)
_AMOUNT_BEFORE_SIGN = re.compile(rf"(?P<sign>{_SIGN})(?P<number>{_NUM})(?P<currency>{_CURRENCY_SIGN})")


def _currency_name(amount: re.Match[str]) -> tuple[str, str]:
    singular, plural, _, _ = _CURRENCIES[amount["currency"]]
    country = _COUNTRIES[amount["country"]] if amount["country"] else ""
    if country == "Brazilian":
        singular, plural = "real", "reais"
    return f"{country} {singular}".strip(), f"{country} {plural}".strip()


def _say_amount(match: re.Match[str], british: bool) -> str:
    one, many = _currency_name(match)
    sign = "minus " if match["inner"] else _SIGNS[match["sign"]]
    per = f" per {_PER[match['per']]}" if match["per"] else ""
    number = match["number"]
    if match["magnitude"]:
        return f"{sign}{_decimal(number)} {_MAGNITUDES[match['magnitude']]} {many}{per}"
    return f"{sign}{_money(number, one, many, match['currency'])}{per}"


def _money(number: str, one: str, many: str, currency: str) -> str:
    whole, _, fraction = number.partition(".")
    _, _, cent, cents = _CURRENCIES[currency]
    if not cent or len(fraction) not in (0, 2):
        return f"{_quantity(number)} {one if _is_one(number) else many}"
    said = []
    if whole.strip("0,") or not fraction.strip("0"):
        said.append(f"{_quantity(whole or '0')} {one if _is_one(whole) else many}")
    if fraction.strip("0"):
        said.append(f"{int(fraction)} {cent if int(fraction) == 1 else cents}")
    return " and ".join(said)


def _say_amount_range(match: re.Match[str], british: bool) -> str:
    upper = _AMOUNT.fullmatch(match["currency"] + match["to"])
    assert upper is not None
    return f"{_decimal(match['from'])} to {_say_amount(upper, british)}"


def _say_amount_before_sign(match: re.Match[str], british: bool) -> str:
    one, many, _, _ = _CURRENCIES[match["currency"]]
    return f"{_SIGNS[match['sign']]}{_money(match['number'], one, many, match['currency'])}"


# --- Dates and times ---


def _say_date(match: re.Match[str], british: bool) -> str | None:
    parts = match.groupdict()
    month, day = int(parts["month"]), int(parts["day"])
    if parts["sep"] == "/" and british:
        month, day = day, month
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    ordinal = f"{day}{'th' if day in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th')}"
    name = _MONTHS[month - 1]
    return f"the {ordinal} of {name}, {parts['year']}" if british else f"{name} {ordinal}, {parts['year']}"


def _say_time(match: re.Match[str], british: bool) -> str | None:
    hour, minute, second, half = match["hour"], match["minute"], match["second"], match["half"]
    if int(hour) > 24 or int(minute) > 59 or int(second or 0) > 59:
        return None
    said = [str(int(hour))]
    if minute != "00":
        said.append(f"oh {int(minute)}" if minute[0] == "0" else minute)
    elif not half:
        said.append("o'clock" if second is None and 1 <= int(hour) <= 12 else "hundred" if second is None else "oh oh")
    if second is not None:
        said.append(f"and {int(second)} second{'' if int(second) == 1 else 's'}")
    if half:
        said.append("a.m." if half[0] in "aA" else "p.m.")
    return " ".join(said)


# --- Fractions, versions and the rest ---


def _simple_fraction(text: str) -> str | None:
    if text in _VULGAR:
        over, under = _VULGAR[text]
    elif match := re.fullmatch(r"(\d{1,2})[/⁄](\d{1,2})", text):
        over, under = int(match[1]), int(match[2])
    else:
        return None
    if under not in _FRACTIONS or not 0 < over < under:
        return None
    return f"{'one' if over == 1 else over} {_FRACTIONS[under][over > 1]}"


def _say_fraction(match: re.Match[str], british: bool) -> str | None:
    fraction = _simple_fraction(match["fraction"])
    if fraction is None:
        return None
    return f"{match['whole']} and {fraction}" if match["whole"] else fraction


def _say_version(match: re.Match[str], british: bool) -> str:
    numbers = " point ".join(
        str(int(number)) if len(number) < 5 else _digits(number) for number in match["numbers"].split(".")
    )
    rest = f" {match['rest'].strip('-')}" if match["rest"] else ""
    return f"{'version ' if match['v'] else ''}{numbers}{rest}"


def _say_dotted(match: re.Match[str], british: bool) -> str:
    return " dot ".join(match[0].split("."))


def _say_feet(match: re.Match[str], british: bool) -> str:
    inches = f" {match['inches']} {'inch' if match['inches'] == '1' else 'inches'}" if match["inches"] else ""
    return f"{match['feet']} {'foot' if match['feet'] == '1' else 'feet'}{inches}"


def _say_power(match: re.Match[str], british: bool) -> str:
    return f"{match[1]} {'squared' if match[2] == '²' else 'cubed'}"


_RULES: tuple[tuple[re.Pattern[str], _Rule], ...] = tuple(
    (re.compile(pattern) if isinstance(pattern, str) else pattern, say)
    for pattern, say in (
        (EMAIL, lambda match, _: speak_url(match[0], "a")),
        (r"(?P<year>\d{4})(?P<sep>-)(?P<month>\d\d)-(?P<day>\d\d)", _say_date),
        (r"(?P<month>\d{1,2})(?P<sep>/)(?P<day>\d{1,2})/(?P<year>\d{4})", _say_date),
        (r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d))?(?P<half>[ap]\.?m)?", _say_time),
        (r"(\d{1,3}):(\d{1,3})", lambda match, _: f"{match[1]} to {match[2]}"),
        (r"(?:\d{1,3}\.){3}\d{1,3}", _say_dotted),
        (
            r"\+?(?:\d{1,3}[-.])?\(?\d{3}\)?[-.]?\d{3}[-.]\d{4}|\d{3}-\d{4}|\d+(?:-\d+){2,}",
            lambda match, _: _groups(match[0]),
        ),
        (r"\+\d{7,15}", lambda match, _: f"plus {_digits(match[0])}"),
        (r"(?P<v>)(?P<numbers>\d+(?:\.\d+){2,})(?P<rest>(?:-?[^\W\d_]+\d*)?)", _say_version),
        (r"(?P<v>[vV]\.?(?=\d+\.)|v)(?P<numbers>\d+(?:\.\d+)*)(?P<rest>(?:-?[^\W\d_]+\d*)?)", _say_version),
        (URL, lambda match, _: speak_url(match[0], "a")),
        (_AMOUNT, _say_amount),
        (_AMOUNT_RANGE, _say_amount_range),
        (_AMOUNT_BEFORE_SIGN, _say_amount_before_sign),
        (rf"(?P<whole>\d*)(?P<fraction>[{''.join(_VULGAR)}])", _say_fraction),
        (r"(?P<whole>)(?P<fraction>\d{1,2}[/⁄]\d{1,2})", _say_fraction),
        (rf"(?P<sign>{_SIGN})(?P<number>{_NUM})-?(?P<unit>{_UNIT}){_PER_UNIT}", _say_unit),
        (rf"(?P<from>{_NUM})%?[-–—](?P<to>{_NUM})(?P<rest>[^\d,.–—-]*)", _say_range),
        (rf"({_NUM})[x×]({_NUM})", lambda match, _: f"{_decimal(match[1])} by {_decimal(match[2])}"),
        (r"(?P<feet>\d{1,3})['′’](?P<inches>\d{1,2})?(?:[\"″”]|'')?", _say_feet),
        (r"([^\W\d_]+|\d+)([²³])", _say_power),
        (r"[#№](\d+)", lambda match, _: f"number {_integer(match[1])}"),
        (rf"(?P<sign>{_SIGN})(?P<number>{_NUM})", _say_signed),
        (r"([A-G])#", lambda match, _: f"{match[1]} sharp"),
        (r"#([^\W\d_]\w+)", lambda match, _: f"hashtag {match[1].replace('_', ' ')}"),
    )
)


# --- Whatever no rule knows: character by character ---

_OPENING, _CLOSING = str.maketrans({"[": "(", "{": "(", "⟨": "("}), str.maketrans({"]": ")", "}": ")", "⟩": ")"})
_KEPT_SIGNS = frozenset("-'’‘\"“”.,;:!?()—–…%&+@/$#")


def _plain(text: str) -> str:
    """Letters, digits and the marks that misaki knows; signs by their names, pictures and the rest as blanks."""
    if text.isascii() and text.isalpha():
        return text
    text = _ELIDED.sub("", _DECADE.sub("'", text))
    text = _AMOUNT.sub(lambda amount: _say_amount(amount, False), text)
    text = _TIMES.sub(" times ", text)
    text = _OPERATOR.sub(lambda sign: f" {_OPERATORS[sign[0]]} ", text)
    text = text.translate(_OPENING).translate(_CLOSING)
    return " ".join("".join(_plain_character(character) for character in text).split())


def _plain_character(character: str) -> str:
    if character in _KEPT_SIGNS or character.isalpha() or character.isdecimal():
        return character
    if unicodedata.category(character) in ("Mn", "Mc"):
        return character
    value = unicodedata.numeric(character, None)
    if value is not None:
        return f" {int(value)} " if value == int(value) else " "
    return " "
