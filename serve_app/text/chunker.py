"""Cut text that is still being written into the pieces that are spoken one by one.

The text goes through two machines, a character at a time, so the pieces cannot depend on how the input was sliced, no
character is looked at twice (a short look-ahead apart) and nothing but the sentence in hand is kept.

1. `_Lines` reads the start of every line until it knows what the line is. It takes away what is layout and not speech
   (`_Lines` lists it) and tells the second machine where a line ends for good.
2. `_Sentences` looks for the end of a sentence:

       TEXT ---- . ! ? ... 。 ----> END      takes more marks, closing quotes and brackets, emoji, [1]
       END  ---- blank ----------> GAP      waits for the next character: it tells an end from an abbreviation
       GAP  ---- capital --------> LOOK     reads one word when the capital does not tell: "U.S. She", "U.S. Navy"
       END  ---- [ --------------> BRACKET  reads on to tell a citation or a pause mark from a word

When a piece is returned (the earliest character that makes it sure):
- after `。` `！` `।` and their like: with the next character, unless it still belongs to the end (`」`);
- after `!` and `?`: with the blank that follows; with the next character when a quote or bracket was closed in between,
  because `"Stop!" he said` goes on;
- after `.` and `...`: with the first character after the blank; after an abbreviation that may end a sentence, when
  the next word is known to be, or not to be, one that commonly starts a sentence;
- after a line break that follows a certain end, and at the end of a heading, a list item, a table row or a line of
  code: with the line break; before a list or a blank line: with the mark or the second line break;
- past `max_chars`: at once, at the last clause mark or else the last blank.

`flush` settles every question still open as "no end here" ("in the U.S. She" stays together), and every end that was
sure had been returned before; so one piece at most is left for it, whatever was fed and in whatever slices.

White space: a run of it becomes one blank (none for a line break between two CJK characters); everything else in a
piece is as it came. Inline marks (`**bold**`, `code`, links) stay; a later step reads them.
"""

import re
import unicodedata
from enum import Enum, auto

from serve_app.text.pauses import PAUSE, PAUSE_START

DEFAULT_MAX_CHARS = 400

# --- Abbreviations -------------------------------------------------------------------------------------------------
# Entries in lower case match any case, others only as written ("Sun." is a day, "sun." is not). Without the last dot.
# One table for all languages: their abbreviations do not get in each other's way.


class _Rule(Enum):
    """What a full stop after a word means; the word decides, then the character or word after the blank."""

    ORDINARY = auto()  # an end
    NEVER = auto()  # no end
    BEFORE_NUMBER = auto()  # no end before a digit, else ordinary
    AT_CAPITAL = auto()  # an end before a capital
    BEFORE_STARTER = auto()  # an end before a word that commonly starts a sentence
    UNLESS_DATE = auto()  # an end before a capital, unless a day, a month or a time zone follows
    ORDINAL = auto()  # a number of one or two digits: "3. Oktober", "am 3. 10.", "2. Bake."


_ABBREVIATIONS: dict[_Rule, str] = {
    _Rule.NEVER: """
        mr mrs ms mx dr prof messrs Rev Hon Gen Col Capt Lt Sgt Cpl Maj Adm Cmdr Gov Sen Rep Pres Supt Mt Ft
        e.g i.e eg ie vs v cf viz a.k.a w.r.t approx resp esp incl excl
        sra srta Dña D.ª Ud Uds EE ej aprox Gral Sto Sta mme mlle MM sig sig.ra dott dra bzw ggf ca z.B d.h डॉ""",
    _Rule.BEFORE_NUMBER: "no nos nr Núm núm Nº pp vol ch chap Fig fig figs Sec Art pág pag págs ver ext op Bd Tel tel",
    _Rule.AT_CAPITAL: "etc ecc usw al est ft oz lb lbs hr hrs min mins sec secs tbsp tsp avg max dept",
    _Rule.BEFORE_STARTER: """
        St Ave Av Blvd Rd Ln Sq Hwy Pkwy Ct Pl Apt Ste Bldg Inc Ltd Co Corp Bros Jr Sr Esq Ph.D UU""",
    _Rule.UNLESS_DATE: """
        a.m p.m Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Mon Tue Tues Wed Thu Thur Thurs Fri Sat Sun""",
}
_RULE_OF = {word: rule for rule, words in _ABBREVIATIONS.items() for word in words.split()}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STARTERS = _words(
    """A An The This That These Those There Here He She It We You They I My His Her Its Our Your Their What When Where
    Who Why How Which If In On At As After Before But And Or So Then Now Yes No Not Nobody Nothing Everyone Someone
    Some Many Most All Both Each Every For From With Without By To Is Are Was Were Do Does Did Can Could Would Should
    Let Please Also However Although Because Since While Once Until Meanwhile Finally Next Later Today Tomorrow
    Yesterday Still Just Only Maybe Perhaps Sure Well Thanks Thank Remember Try
    El Ella Ellos Pero Il Elle Ils Nous Vous Mais Lui Lei Ma Ele Ela Mas Não"""
)
_DATES = _words(
    """January February March April June July August September October November December Jan Feb Mar Apr Jun Jul Aug Sep
    Sept Oct Nov Dec Monday Tuesday Wednesday Thursday Friday Saturday Sunday Mon Tue Tues Wed Thu Thur Thurs Fri Sat
    Sun Eastern Central Mountain Pacific EST EDT ET CST CDT CT MST MDT MT PST PDT PT GMT UTC BST CET CEST IST JST"""
)
_AFTER_ORDINAL = _words(
    """Januar Jänner Februar März April Mai Juni Juli August September Oktober November Dezember Jahrhundert
    Weltkrieg"""
)


def _prefixes(words: frozenset[str]) -> frozenset[str]:
    return frozenset(word[:end] for word in words for end in range(1, len(word) + 1))


_PREFIXES = {words: _prefixes(words) for words in (_STARTERS, _DATES, _AFTER_ORDINAL)}
_ACRONYM = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]")
_VOWELS = frozenset("aeiouyáàâãäéèêëíìîïóòôõöúùûüæøœ")
_LONGEST_ABBREVIATION = 24

# --- Characters ----------------------------------------------------------------------------------------------------

_BANGS = frozenset("!?؟‼⁇⁈⁉‽")
_FULL_ENDS = frozenset("。｡．！？।॥۔።։။។")  # need no blank after them
_ENDS = _BANGS | _FULL_ENDS | frozenset(".…‥")
_EMPHASIS = frozenset("*_~`")
_CLOSERS = frozenset(")]}\"'”’“‘»«›‹）］｝」』】〉》〕＂＇") | _EMPHASIS
_CLOSERS_AFTER_BLANK = frozenset(")]}”’）］｝」』】〉》〕")
_OPENERS = frozenset("\"'“‘„‚«‹([{*_~`¿¡")
_CJK_CLAUSE_MARKS = frozenset("、，；：")
_CLAUSE_MARKS = frozenset(",;:—–-)]”»،؛") | _CJK_CLAUSE_MARKS
_NO_CJK_START = frozenset("、。，．・：；？！ー々）］｝」』】〉》〕…‥ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮ")
_NO_BREAK = frozenset("\u00a0\u202f\u2007")
_NO_SOFT_START = frozenset("!?;:»›)]}”") | _NO_BREAK
_IGNORED = frozenset("\ufeff\u200b\u2060\u00ad\r")
_LINE_BREAKS = frozenset("\n\u2028\u2029")
_SPOKEN_SYMBOLS = frozenset("%‰&@+=°§×÷±√∞≈≠≤≥№℃℉")  # besides letters, digits and currency signs
_TRACKED = frozenset("`[]()«»")

_LONGEST_SPAN = 300  # a bracket or code span still open after so many characters is a stray mark
_LONGEST_LOOK = 24


def _is_spoken(char: str) -> bool:
    return char.isalnum() or char in _SPOKEN_SYMBOLS or unicodedata.category(char) == "Sc"


def _is_cjk(char: str) -> bool:
    """Han, kana, full-width forms and their punctuation: scripts without blanks between words."""
    return (
        "\u2e80" <= char <= "\u9fff"
        or "\uf900" <= char <= "\ufaff"
        or "\uff00" <= char <= "\uffef"
        or ("\U00020000" <= char <= "\U0003ffff")
    )


def _is_emoji(char: str) -> bool:
    """A pictograph or what joins and colours one."""
    return char > "\u200c" and (char in "\u200d\ufe0f\ufe0e" or unicodedata.category(char) in ("So", "Sk"))


def _joins(char: str) -> bool:
    """Whether the character belongs to the one before it."""
    return unicodedata.category(char).startswith("M") or char in "\u200c\u200d"


# --- The second machine: sentences ---------------------------------------------------------------------------------


class _State(Enum):
    TEXT = auto()
    END = auto()
    GAP = auto()
    LOOK = auto()
    BRACKET = auto()


class _Kind(Enum):
    """The marks of an end, the strongest one of a run."""

    DOT = auto()
    ELLIPSIS = auto()
    BANG = auto()
    FULL = auto()


class _Sentences:
    """Characters, blanks and breaks in; finished pieces in `pieces`."""

    def __init__(self, max_chars: int) -> None:
        self.pieces: list[str] = []
        self._max = max_chars
        self._hard_max = 4 * max_chars
        self._guillemets = 0
        self._released = False  # a piece of this text was returned
        self._start()

    def _start(self) -> None:
        self._buffer: list[str] = []
        self._gap = ""  # white space not yet written: a piece never ends in one
        self._first_spoken = -1  # index in the buffer, as all that follow; -1: none
        self._word_at = 0
        self._soft_clause = self._soft_blank = self._soft_border = -1
        self._ticks = 0  # length of the run of backticks being read
        self._code = 0  # length of the run that opened the code span we are in
        self._brackets = self._target = 0  # depth in [text] and in the (target) of a link
        self._span_at = 0
        self._link_at = -1  # where a "(" would make the bracket before it a link
        self._leave_end()

    def _leave_end(self) -> None:
        self._state = _State.TEXT
        self._kind = _Kind.DOT
        self._end_at = -1
        self._closed = False
        self._broken = False  # a line break is in the gap
        self._look = self._look_word = ""
        self._look_words: frozenset[str] = frozenset()

    # What the first machine calls

    @property
    def mid_sentence(self) -> bool:
        return self._first_spoken >= 0 and self._buffer[-1] not in ":："

    def char(self, char: str) -> None:
        """Take one character that is no white space."""
        if self._state is _State.TEXT:
            self._text(char)
        elif self._state is _State.END:
            self._end(char)
        elif self._state is _State.GAP:
            self._after_gap(char)
        elif self._state is _State.LOOK:
            self._look_on(char)
        else:
            self._bracket(char)

    def blank(self, char: str) -> None:
        if self._state is _State.LOOK:
            self._look_on(char)
        elif self._state is _State.BRACKET:
            self._bracket(char)
        elif self._state is _State.END and not self._target:
            certain = self._kind is _Kind.FULL or (
                self._kind is _Kind.BANG and not self._closed and not self._guillemets
            )
            if not self._may_cut():
                self._leave_end()
                self._widen(char)
            elif certain:
                self._cut()
            else:
                self._state = _State.GAP
                self._widen(char)
        else:
            self._widen(char)

    def line_break(self) -> None:
        """A line break that may be a soft one; `hard_break` may still follow it."""
        if self._state in (_State.LOOK, _State.BRACKET):
            self.blank("\n")
        if self._state in (_State.END, _State.GAP) and self._may_cut():
            certain = self._kind in (_Kind.BANG, _Kind.FULL) or (
                self._kind is _Kind.DOT
                and (
                    (rule := self._rule()) in (_Rule.ORDINARY, _Rule.BEFORE_NUMBER)
                    or (rule is _Rule.ORDINAL and not self._enumerates())
                )
            )
            if certain:
                self._cut()
                return
            self._state = _State.GAP
            self._broken = True
        elif self._state is _State.END:
            self._leave_end()
        self._widen("\n")

    def hard_break(self, heading: bool = False) -> None:
        """Nothing goes on beyond this point."""
        if self._state in (_State.LOOK, _State.BRACKET):
            self.blank("\n")
        text = "".join(self._buffer)
        if heading:
            text = re.sub(r"\s#+$", "", text)
        spoken = self._first_spoken >= 0
        self._start()
        self._guillemets = 0
        if spoken:
            self._release(text)
        elif pauses := _pauses(text):
            self._buffer = list(pauses)
            self._gap = " "

    def number(self, mark: str) -> None:
        """Take the mark of a numbered list item, whose full stop ends nothing."""
        for char in mark:
            self._append(char)
        self._widen(" ")

    def finish(self, tail: str) -> str | None:
        """Return what is left as one piece, None where nothing of it is spoken or paused for; start anew.

        tail: the begun line that `_Lines` still held.
        """
        text, held, gap = "".join(self._buffer), self._look.rstrip(), self._gap.replace("\n", " ")
        spoken = self._first_spoken >= 0 or any(_is_spoken(char) for char in held + tail)
        released, self._released = self._released, False
        self._start()
        self._guillemets = 0
        rest = text + gap + held if held else text
        whole = " ".join(part for part in (rest, tail) if part)
        if spoken:
            return whole
        return (_pauses(whole) or None) if released else None

    # The states

    def _text(self, char: str) -> None:
        self._append(char)
        if char in _ENDS and not self._target and self._buffer:
            self._state = _State.END
            self._end_at = len(self._buffer) - 1
            self._closed = self._broken = False
            self._kind = _kind_of(char)

    def _end(self, char: str) -> None:
        if self._target:  # of a link whose text ended the sentence: [Read on.](https://...)
            self._append(char)
        elif char in _ENDS:
            self._append(char)
            kind = _Kind.ELLIPSIS if char == "." and self._kind is _Kind.DOT and not self._closed else _kind_of(char)
            self._kind = max(self._kind, kind, key=lambda k: k.value)
        elif char in _CLOSERS or (char == "(" and len(self._buffer) == self._link_at):
            self._append(char)
            self._closed |= char not in _EMPHASIS
        elif _is_emoji(char):
            self._append(char)
        elif char == "[":
            self._state = _State.BRACKET
            self._look = char
        else:
            self._settle(self._ends_without_blank(char), char)

    def _after_gap(self, char: str) -> None:
        if char in _CLOSERS_AFTER_BLANK or (char == "»" and self._guillemets):
            self._append(char)
            self._state = _State.END
            self._closed = True
            return
        ends = self._ends_before(char)
        if ends is None:
            self._state = _State.LOOK
            self._look_on(char)
        else:
            self._settle(ends, char)

    def _look_on(self, char: str) -> None:
        """Read the word after a full stop: a starter makes it an end, a date or what an ordinal counts does not."""
        word = self._look_word + char
        if char.isalpha() and word in _PREFIXES[self._look_words]:
            self._look_word = word
            self._look += char
        elif not self._look_word and char in _OPENERS and len(self._look) < _LONGEST_LOOK:
            self._look += char
        elif not self._look_word and not char.isupper():
            self._settle(False, char)
        else:
            starter = self._look_words is _STARTERS
            goes_on = char in "-_/@" or (char == "." and len(self._look_word) <= 2)  # "U.S. All-Stars", "J. A. Smith"
            whole = not char.isalpha() and not (starter and goes_on)
            listed = whole and self._look_word in self._look_words
            self._settle(listed == starter, char)

    def _bracket(self, char: str) -> None:
        """Tell apart "end.[1] Next" (the citation closes), "end.[pause:1s] Next" (an end) and "end.[x" (no end)."""
        self._look += char
        inner = self._look[1:]
        if char == "]" and inner[:1].isdigit():
            for held in self._look:
                self._widen(held) if held.isspace() else self._append(held)
            self._state, self._look = _State.END, ""
        elif len(inner) < _LONGEST_LOOK and inner[0].isdigit() and (char.isdigit() or char in ", -–"):
            return
        elif self._look.lower() == PAUSE_START:
            self._look = self._look[:-1]
            self._settle(self._kind is not _Kind.DOT or self._rule() is _Rule.ORDINARY, char)
        elif not PAUSE_START.startswith(self._look.lower()):
            self._look = self._look[:-1]
            self._settle(self._kind is _Kind.FULL, char)

    def _settle(self, ends: bool, char: str) -> None:
        """Cut here or go on; either way read what was held back, then this character."""
        held = self._look
        if ends and self._may_cut():
            self._cut()
        else:
            self._leave_end()
        for earlier in (*held, char):
            self.blank(earlier) if earlier.isspace() else self.char(earlier)

    # What ends a sentence

    def _ends_without_blank(self, char: str) -> bool:
        before = self._buffer[self._end_at - 1] if self._end_at > 0 else ""
        if self._kind is _Kind.FULL:
            if self._buffer[self._end_at] == "．" and char.isdigit():
                return False
            speech = self._closed or self._buffer[self._end_at] in "！？"
            return not (speech and char in "とっ")  # 「はい。」と言った。
        if self._kind is _Kind.BANG:
            return (_is_cjk(char) or (before != "" and _is_cjk(before))) and "://" not in "".join(
                self._buffer[self._word_at : self._end_at]
            )
        return self._kind is _Kind.DOT and _is_cjk(char) and before != "" and _is_cjk(before)

    def _ends_before(self, char: str) -> bool | None:
        """Whether the sentence ends before `char`, which follows the blank; None: the next word tells."""
        if char in ",;:":
            return False
        if self._kind in (_Kind.BANG, _Kind.FULL):
            return not char.islower()
        if self._kind is _Kind.ELLIPSIS or self._word_at == self._end_at:  # "Wait . . . what?"
            return not char.islower() and (char.isalpha() or char in '"“‘„«¿¡' or _is_emoji(char))
        rule = self._rule()
        if rule is _Rule.NEVER or (rule is _Rule.BEFORE_NUMBER and (char.isdigit() or char == "#")):
            return False
        if rule is _Rule.ORDINAL:
            if self._enumerates() or char.isdigit() or char.islower():
                return False
            self._look_words = _AFTER_ORDINAL
            return None if char.isupper() else True
        if rule in (_Rule.ORDINARY, _Rule.BEFORE_NUMBER):
            return not (char.islower() and (self._closed or self._looks_shortened()))
        if char in "¿¡" or _is_emoji(char):
            return True
        if char.isupper() and (rule is _Rule.AT_CAPITAL or self._broken):
            return True
        self._look_words = _STARTERS if rule is _Rule.BEFORE_STARTER else _DATES
        return None if char.isupper() or char in _OPENERS else False

    def _word(self) -> str:
        """The word before the end, without what opens it; "" for one too long to be an abbreviation."""
        if self._end_at - self._word_at > _LONGEST_ABBREVIATION:
            return ""
        return "".join(self._buffer[self._word_at : self._end_at]).lstrip("([{\"'“‘„«*_~`¿¡")

    def _rule(self) -> _Rule:
        word = self._word()
        if word.isdecimal():
            return _Rule.ORDINAL if len(word) <= 2 else _Rule.ORDINARY
        if word in _RULE_OF:
            return _RULE_OF[word]
        if len(word) == 1 and word.isascii() and word.isalpha():
            if word.islower():
                return _Rule.BEFORE_NUMBER  # "p. 5"
            return _Rule.ORDINARY if word == "I" and self._word_at else _Rule.BEFORE_STARTER  # an initial
        core = re.split(r"[^\w.ªº]+", word)[-1].strip("_").lstrip("0123456789")  # "mid-Jan", "a.m./p.m", "7p.m"
        rule = _RULE_OF.get(core) or _RULE_OF.get(core.lower())
        if rule is None and _ACRONYM.fullmatch(core):
            rule = _Rule.BEFORE_STARTER
        return rule or _Rule.ORDINARY

    def _looks_shortened(self) -> bool:
        """Whether the word has no vowel, as an abbreviation that is in no table; acronyms in capitals do not count."""
        word = self._word()
        return 0 < len(word) <= 4 and word.isalpha() and not word.isupper() and not _VOWELS & set(word.lower())

    def _enumerates(self) -> bool:
        """Whether the number opens its sentence, and so numbers it: `Steps: 1. Mix. 2. Bake.`"""
        return self._word_at < 2 or self._buffer[self._word_at - 2] in ":："

    # The buffer

    def _widen(self, char: str) -> None:
        if self._buffer and (not self._gap or char == "\n"):
            self._gap = char

    def _append(self, char: str) -> None:
        buffer = self._buffer
        if self._gap:
            self._write_gap(char)
        elif buffer and _is_cjk(buffer[-1]) and not self._protected() and char not in _NO_CJK_START:
            if buffer[-1] in _CJK_CLAUSE_MARKS and not char.isdigit():
                self._soft_clause = len(buffer)
            if _is_cjk(char) and not char.isdigit():
                self._soft_border = len(buffer)
        if self._ticks and char != "`":
            self._close_ticks()
        if self._first_spoken < 0 and _is_spoken(char):
            self._first_spoken = len(buffer)
        buffer.append(char)
        if char in _TRACKED:
            self._track(char)
        if len(buffer) > self._max:
            self._overflow()

    def _write_gap(self, char: str) -> None:
        gap, self._gap = self._gap, ""
        at, before = len(self._buffer), self._buffer[-1]
        if (
            gap not in _NO_BREAK
            and char not in _NO_SOFT_START
            and before != "."  # of "Mr." or of a question still open
            and not (char.isdigit() and self._ends_in_number())
            and not self._protected()
        ):
            self._soft_blank = at
            if before in _CLAUSE_MARKS:
                self._soft_clause = at
        if gap == "\n" and _is_cjk(before) and _is_cjk(char):
            return
        self._buffer.append(gap if gap in _NO_BREAK else " ")
        self._word_at = at + 1

    def _ends_in_number(self) -> bool:
        """Whether a digit that comes next may belong to a number begun here: 48 250, 48, 250."""
        last = self._buffer[-2:]
        return last[-1].isdigit() or (last[-1] == "," and last[0].isdigit())

    def _track(self, char: str) -> None:
        """Know where code spans, links and guillemets are open."""
        at = len(self._buffer) - 1
        if char == "`":
            self._ticks += 1
        elif self._protected() and self._code:
            return
        elif char == "[" and not self._target:
            if not self._brackets:
                self._span_at = at
            self._brackets += 1
        elif char == "]" and self._brackets:
            self._brackets -= 1
            if not self._brackets:
                self._link_at = at + 1
                if self._first_spoken >= self._span_at and PAUSE.fullmatch("".join(self._buffer[self._span_at :])):
                    self._first_spoken = -1
        elif char == "(":
            self._target += 1 if self._target or at == self._link_at else 0
        elif char == ")" and self._target:
            self._target -= 1
        elif char == "«":
            self._guillemets += 1
        elif char == "»":
            self._guillemets = max(0, self._guillemets - 1)

    def _close_ticks(self) -> None:
        if not self._code:
            self._code = self._ticks
            self._span_at = len(self._buffer)
        elif self._code == self._ticks:
            self._code = 0
        self._ticks = 0

    def _protected(self) -> bool:
        """Whether a cut here would be inside a link, a bracket or a code span."""
        if self._ticks:
            self._close_ticks()
        if not (self._code or self._brackets or self._target):
            return False
        if len(self._buffer) - self._span_at > _LONGEST_SPAN:
            self._code = self._brackets = self._target = 0
            return False
        return True

    def _may_cut(self) -> bool:
        return self._first_spoken >= 0 and not self._protected()

    def _cut(self) -> None:
        self._release("".join(self._buffer))
        self._start()

    def _release(self, piece: str) -> None:
        self.pieces.append(piece)
        self._released = True

    def _overflow(self) -> None:
        """Release a part of a sentence that has become too long, at a clause mark if that leaves no stub."""
        if self._first_spoken < 0:
            self._start()
            return
        if self._soft_clause >= self._max // 4:
            at = self._soft_clause
        elif self._soft_blank > 0:
            at = self._soft_blank
        elif self._soft_border > 0:
            at = self._soft_border
        elif len(self._buffer) > self._hard_max:
            at = self._last_resort()
        else:
            return
        if self._first_spoken < at:
            self._release("".join(self._buffer[:at]).rstrip())
        shift = at + 1 if self._buffer[at].isspace() else at
        del self._buffer[:shift]
        for name in ("_soft_clause", "_soft_blank", "_soft_border", "_link_at"):
            index = getattr(self, name) - shift
            setattr(self, name, index if index > 0 else -1)
        self._word_at = max(0, self._word_at - shift)
        self._span_at = max(0, self._span_at - shift)
        self._first_spoken = next((i for i, char in enumerate(self._buffer) if _is_spoken(char)), -1)
        self._end_at -= shift
        if self._end_at < 0:
            self._leave_end()

    def _last_resort(self) -> int:
        """Where to cut what offers no good place: any blank, else before the last letter of an endless "word"."""
        buffer = self._buffer
        blanks = (at for at in range(len(buffer) - 2, self._max // 4, -1) if buffer[at] == " ")
        letters = (at for at in range(len(buffer) - 1, len(buffer) // 2, -1) if not _joins(buffer[at]))
        return next(blanks, next(letters, len(buffer) - 1))


def _pauses(text: str) -> str:
    return " ".join(mark[0] for mark in PAUSE.finditer(text))


def _kind_of(char: str) -> _Kind:
    if char in _FULL_ENDS:
        return _Kind.FULL
    if char in _BANGS:
        return _Kind.BANG
    return _Kind.DOT if char == "." else _Kind.ELLIPSIS


# --- The first machine: lines --------------------------------------------------------------------------------------

_LOOSE_BULLETS = frozenset("-*+–—")  # a mark only with a blank after it
_TIGHT_BULLETS = frozenset("•‣◦▪●■·・⁃")
_NUMBER = re.compile(r"\d{1,3}[.)]|\(\d{1,2}\)|\(?(?:[a-z]|[ivx]{2,4})\)")
_NUMBER_BEGUN = re.compile(r"\d{1,3}[.)]?|\(\d{0,2}\)?|\(?(?:[a-z]|[ivx]{2,4})\)?")
_FENCES = ("```", "~~~")
_RULER = "-*_=+|: \t"
_LONGEST_RULER = 200
_LONGEST_FENCE = 100


class _Lines:
    """Characters in; speech to `_Sentences`, told where lines end for good.

    Not spoken, and the only characters of the text that never reach a piece: bullets (`-`, `*`, `+`, a dash, `•`) and
    task boxes, the `#` of headings, the `>` of quotations, lines of only `---`, `***`, `===`, `|---|`, the lines that
    open (with the language) and close a code block, zero-width blanks and soft hyphens. The number of a list item is
    spoken. Code is spoken line by line.
    """

    def __init__(self, sentences: _Sentences) -> None:
        self._out = sentences
        self._fence = ""  # the run that opened the code block we are in
        self._last_depth = 0
        self._start()

    def _start(self) -> None:
        self._head = ""  # of this line, while it is not known what the line is
        self._in_head = True
        self._ends = False  # the line break at its end is a hard one
        self._heading = False
        self._depth = 0  # of quotation
        self._bold = ""  # last characters of a line that began with "**"

    def char(self, char: str) -> None:
        if char in _LINE_BREAKS:
            self._line_break()
        elif char in _IGNORED:
            return
        elif self._in_head:
            self._head_char(char)
        else:
            self._speak(char)

    def finish(self) -> str:
        """The text ends here, within a line; return its head if that turned out to be speech."""
        head = "" if self._is_mark(self._head) else self._head
        self._fence = ""
        self._last_depth = 0
        self._start()
        return head.rstrip()

    def _speak(self, char: str) -> None:
        if char.isspace():
            self._out.blank(char)
            return
        if self._bold:
            self._bold = (self._bold + char)[-3:]
        self._out.char(char)

    def _line_break(self) -> None:
        head = self._head.rstrip()
        in_code = self._fence != ""
        mark = self._in_head and self._is_mark(head)
        if mark and in_code and head:
            self._fence = ""
        elif mark and head[:3] in _FENCES:
            self._fence = head[: len(head) - len(head.lstrip(head[0]))]
        elif self._in_head and not mark:
            self._plain(head)
        title = self._bold.endswith("**") or self._bold in ("**:", "**：")
        if mark or in_code or self._ends or title:
            self._out.hard_break(self._heading)
        else:
            self._out.line_break()
        self._last_depth = self._depth
        self._start()

    def _is_mark(self, head: str) -> bool:
        """Whether a line that is no more than this is layout, or blank."""
        head = head.rstrip()
        if self._fence:
            return head == "" or self._closes_code(head)
        return not head.strip("#") or head == ">" or head in _LOOSE_BULLETS or head[:3] in _FENCES or _is_ruler(head)

    def _closes_code(self, head: str) -> bool:
        return not head.strip(self._fence[0]) and len(head) >= len(self._fence)

    def _head_char(self, char: str) -> None:
        head, blank = self._head, char.isspace()
        if blank and not head:
            return  # indentation
        if self._fence:
            if (head + char).strip().strip(self._fence[0]):
                self._plain(head + char)
            elif len(head) < _LONGEST_FENCE:
                self._head += char
        elif head == ">" and char != "=":
            self._enter_quotation()
            self._head_char(char)
        elif blank:
            self._head_blank(char)
        elif head + char == "|" or not (head + char).strip(_RULER):
            if len(head) < _LONGEST_RULER:
                self._head += char
        elif self._undecided(head + char):
            self._head += char
        elif char in _TIGHT_BULLETS and not head:
            self._enter_item()
        else:
            if (head + char)[0] == "|" or (not head and unicodedata.category(char) == "So"):
                self._enter_item()  # a table row; a line that an emoji opens
            self._plain(head + char)

    def _head_blank(self, char: str) -> None:
        head = self._head
        if not head.strip("#"):
            self._enter_item()
            self._heading = True
        elif head in _LOOSE_BULLETS or (self._ends and head in ("[ ]", "[x]", "[X]")):
            self._enter_item()
        elif _NUMBER.fullmatch(head) and (not self._out.mid_sentence or head.strip("().") in ("1", "a", "i")):
            self._enter_item()
            self._in_head = False
            self._out.number(head)
        elif self._undecided(head + char) or not head.strip(_RULER):
            self._head += char
        else:
            self._plain(head + char)

    def _undecided(self, head: str) -> bool:
        """Whether what was read of the line may still become a mark (rulers are looked at apart)."""
        if head[0] in "`~":
            info = head.lstrip(head[0])
            whole = len(head) - len(info) >= 3 and head[0] not in info
            return len(head) <= _LONGEST_FENCE and (info == "" or whole)
        if head[0] == "#":
            return len(head) <= 6 and not head.strip("#")
        if head[0] == "[":
            return self._ends and not self._heading and head in ("[", "[ ", "[x", "[X", "[ ]", "[x]", "[X]")
        return head in (">", "–", "—") or _NUMBER_BEGUN.fullmatch(head) is not None

    def _enter_item(self) -> None:
        self._out.hard_break()
        self._ends = True
        self._head = ""

    def _enter_quotation(self) -> None:
        self._depth += 1
        if self._depth > self._last_depth:
            self._out.hard_break()
        self._head = ""

    def _plain(self, text: str) -> None:
        self._head = ""
        self._in_head = False
        self._bold = text[-3:] if text.startswith("**") and not self._fence else ""
        for char in text:
            self._speak(char)


def _is_ruler(head: str) -> bool:
    if head.strip(_RULER):
        return False
    return ("|" in head and "-" in head) or any(head.count(mark) >= 3 for mark in "-*_=+")


# --- What others use -----------------------------------------------------------------------------------------------


class IncrementalSentenceChunker:
    """Sentences out of text that arrives in slices of any size; the module says how and when.

    Every spoken character of the input is in exactly one piece, in order (`_Lines` names the exceptions). Pieces are
    never empty, never begin or end with white space and always hold something that is spoken; pauses after the last
    spoken piece, and nothing else, are a piece of their own. Not thread-safe: one object a text.

    Args:
        max_chars: past so many characters without an end, a sentence is released in parts. Never inside a number, an
            address, a link or a word, unless one of these is four times as long. The model's own limit counts
            phonemes and is kept elsewhere; this one bounds memory and waiting.
    Raises:
        ValueError: `max_chars` below 8.
    """

    def __init__(self, max_chars: int = DEFAULT_MAX_CHARS) -> None:
        if max_chars < 8:
            raise ValueError("max_chars must be at least 8")
        self._sentences = _Sentences(max_chars)
        self._lines = _Lines(self._sentences)

    def feed(self, text: str) -> list[str]:
        """Take the next slice; return the pieces that are now sure, often none."""
        char = self._lines.char
        for each in text:
            char(each)
        pieces, self._sentences.pieces = self._sentences.pieces, []
        return pieces

    def flush(self) -> str | None:
        """End the text: return the rest, None where nothing of it is to be heard. The object is as new afterwards."""
        return self._sentences.finish(self._lines.finish())


def split_sentences(text: str, max_chars: int = DEFAULT_MAX_CHARS) -> list[str]:
    """The pieces of a whole text: those that any slicing of it gives."""
    chunker = IncrementalSentenceChunker(max_chars)
    pieces = chunker.feed(text)
    rest = chunker.flush()
    return pieces if rest is None else [*pieces, rest]


def is_cut_short(piece: str, max_chars: int = DEFAULT_MAX_CHARS) -> bool:
    """Whether a piece that another one follows was cut for its length between two words of a sentence.

    Headings and list items end without punctuation as well, but are not as long.
    """
    return len(piece) >= max_chars // 2 and piece[-1].isalnum()


def is_speakable(text: str) -> bool:
    """Whether any piece would come of this text: it holds, outside of layout and pause marks, a letter or digit of any
    script, a currency sign or another symbol that is usually read aloud (`%`, `&`, `@`, `+`, `=`, `°` ...).
    """
    chunker = IncrementalSentenceChunker()
    slices = (text[at : at + 512] for at in range(0, len(text), 512))
    return any(chunker.feed(part) for part in slices) or chunker.flush() is not None
