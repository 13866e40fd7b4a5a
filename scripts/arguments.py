"""Kinds of numbers on command lines."""

from argparse import ArgumentTypeError


def count(text: str) -> int:
    """1 or more."""
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def positive(text: str) -> float:
    """Above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not above 0")
    return value
