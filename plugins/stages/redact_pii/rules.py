"""The rules for personal data and secrets: a pattern each, and a check sum where the data has one."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Final, TypeAlias

from gateway.plugin.stream_redactor import Finder, Span

#: No match is longer, with what stands behind it.
WIDTH: Final = 320
#: What a match can consist of, besides blanks between groups that have a digit or are short and in capitals.
_MEMBERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._%+-:@()/&#; "
_GROUP: Final = re.compile(r"[^ ]*[0-9][^ ]*|[A-Z]{0,4}")

_NO_DIGITS: Final = re.compile("[^0-9]+")
#: The values of digits, and of doubled ones (Luhn).
_VALUES: Final = bytes.maketrans(b"0123456789", bytes(range(10)))
_DOUBLED: Final = bytes.maketrans(b"0123456789", bytes((0, 2, 4, 6, 8, 1, 3, 5, 7, 9)))
#: The values of letters in an IBAN.
_LETTER_VALUES: Final = str.maketrans({chr(55 + value): str(value) for value in range(10, 36)})
_GAPS: Final = " .-"
_GAP: Final = re.compile("(?<=[A-Z0-9])[ .-]{1,2}(?=[A-Z0-9])")
_WITHOUT_GAPS: Final = str.maketrans("", "", _GAPS)

#: Returns the spans of data in what a pattern found.
Check: TypeAlias = Callable[[str], bool]
#: Returns the places in a text where data may end that was found between two others.
Ends: TypeAlias = Callable[[str, int, int], Iterable[int]]


@dataclass(frozen=True, slots=True)
class DataRule:
    """A rule: a match of `regex` is data if `check` accepts it. An end of the match may lie before the pattern's.

    Python's engine skips quickly to the first character of a pattern where that is one of a few. So patterns begin with
    what is rare in a text, such as a digit; `behind` characters in front of it belong to the data, too. `needs`: the
    rule finds nothing in texts without it.
    """

    name: str
    regex: re.Pattern[str]
    check: Check = bool
    ends: Ends | None = None  # where the data may end, within what was found
    behind: int = 0
    needs: str = ""

    def build_finder(self, text: str, starts: Sequence[int]) -> Finder:
        """Return the finder of this data (`ScreenRule.build_finder`)."""
        del starts

        def find(at: int) -> Span | None:
            if text.find(self.needs, at) < 0:
                return None
            at += self.behind
            while (found := self.regex.search(text, at)) is not None:
                start = found.start() - self.behind
                ends = (found.end(),) if self.ends is None else self.ends(text, start, found.end())
                for end in ends:
                    if self.check(text[start:end]):
                        return start, end
                at = found.start() + 1
            return None

        return find

    @staticmethod
    def count_stable_chars(text: str) -> int:
        """Return where the last group begins, which may become data or go on (`Rule.settled`)."""
        end = len(text)
        tail = text[max(0, end - WIDTH) :]
        *before, last = tail[len(tail.rstrip(_MEMBERS)) :].split(" ")
        begin = end - len(last)
        for group in reversed(before):
            if _GROUP.fullmatch(group) is None:
                break
            begin -= len(group) + 1
        return begin


def _extract_digits(text: str) -> str:
    return _NO_DIGITS.sub("", text)


def is_card_number(text: str) -> bool:
    """Return whether the digits are a card's number: 13 to 19 of them, an issuer's first one, the check digit."""
    digits = _extract_digits(text).encode()
    if not 13 <= len(digits) <= 19 or digits[0] not in b"23456":
        return False
    return (sum(digits[-1::-2].translate(_VALUES)) + sum(digits[-2::-2].translate(_DOUBLED))) % 10 == 0


#: Length of the IBANs of a country (ISO 13616); others are taken at any length.
_IBAN_CHARS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "AD": 24,
        "AE": 23,
        "AT": 20,
        "BE": 16,
        "BG": 22,
        "BR": 29,
        "CH": 21,
        "CY": 28,
        "CZ": 24,
        "DE": 22,
        "DK": 18,
        "EE": 20,
        "ES": 24,
        "FI": 18,
        "FR": 27,
        "GB": 22,
        "GR": 27,
        "HR": 21,
        "HU": 28,
        "IE": 22,
        "IL": 23,
        "IS": 26,
        "IT": 27,
        "LI": 21,
        "LT": 20,
        "LU": 20,
        "LV": 21,
        "MC": 27,
        "MT": 31,
        "NL": 18,
        "NO": 15,
        "PL": 28,
        "PT": 25,
        "RO": 24,
        "SA": 24,
        "SE": 24,
        "SI": 19,
        "SK": 24,
        "SM": 27,
        "TR": 26,
    }
)


def is_iban(text: str) -> bool:
    """Return whether the text is an IBAN: a length of its country, and the check digits (ISO 7064, mod 97)."""
    plain = text.translate(_WITHOUT_GAPS).upper()
    if not 15 <= len(plain) <= 34 or len(plain) != _IBAN_CHARS.get(plain[:2], len(plain)):
        return False
    return int((plain[4:] + plain[:4]).translate(_LETTER_VALUES)) % 97 == 1


def _iterate_iban_ends(text: str, start: int, end: int) -> Iterable[int]:
    """Return where an IBAN in groups of four may end: where its country's do."""
    chars = _IBAN_CHARS.get(text[start : start + 2])
    if chars is None:
        return _iterate_group_ends(text, start, end)
    stop = start + chars + (chars - 1) // 4
    return (stop,) if stop == end or (stop < end and text[stop] in _GAPS) else ()


def _iterate_group_ends(text: str, start: int, end: int) -> Iterable[int]:
    """Return where the groups end, the last one first."""
    return (end, *(place.start() for place in reversed([*_GAP.finditer(text, start, end)])))


def _is_phone_number(text: str) -> bool:
    return 7 <= len(_extract_digits(text)) <= 15


def _is_chinese_id(text: str) -> bool:
    total = sum(int(digit) * (1 << (17 - i)) for i, digit in enumerate(text[:17]))
    return "10X98765432"[total % 11] == text[17].upper()


def _is_spanish_id(text: str) -> bool:
    number = str("XYZ".find(text[0].upper())) + text[1:8] if text[0].isalpha() else text[:8]
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(number) % 23] == text[-1].upper()


def _is_french_id(text: str) -> bool:
    plain = text.replace(" ", "").upper().replace("2A", "19", 1).replace("2B", "18", 1)
    return plain.isdigit() and 97 - int(plain[:13]) % 97 == int(plain[13:])


def _is_brazilian_id(text: str) -> bool:
    digits = [*map(int, _extract_digits(text))]
    return len(set(digits)) > 1 and all(
        sum(digit * (n + 1 - i) for i, digit in enumerate(digits[:n])) * 10 % 11 % 10 == digits[n] for n in (9, 10)
    )


def _build_rule(
    name: str, pattern: str, check: Check = bool, *, ends: Ends | None = None, behind: int = 0, needs: str = ""
) -> DataRule:
    return DataRule(name, re.compile(pattern), check, ends, behind, needs)


def _anchor(first: str, *, front: str = "", but: str = "A-Za-z0-9") -> str:
    """Return the pattern of the first character of data, with no letter or digit (or none of `but`) in front of it.

    `front` is what stands before this character, and belongs to the data.
    """
    return f"{first}(?<={front}{first})(?<![{but}]{front}{first})" if front else f"{first}(?<![{but}]{first})"


#: No letter or digit behind.
_OUT: Final = r"(?![A-Za-z0-9])"
_BYTE: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#: The rest of such a number behind its first digit.
_BYTE_REST: Final = r"(?:(?<=2)(?:5[0-5]|[0-4][0-9])|(?<=1)[0-9]{2}|(?<=[1-9])[0-9]|)"
_HEX: Final = r"[0-9A-Fa-f]{1,4}"
_HEX_GROUPS: Final = rf"{_HEX}(?::{_HEX}){{0,6}}"
_NINO: Final = "[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z]"
_NO_NINO: Final = ("BG", "GB", "NK", "KN", "TN", "NT", "ZZ")
_TAX_LETTER: Final = "[A-HJ-NP-TV-Za-hj-np-tv-z]"
_DIGITS_BEHIND: Final = rf"[0-9] ?[0-9]{{2}} ?[0-9]{{2}} ?[A-D]{_OUT}"


def _is_british_id(text: str) -> bool:
    return text[:2] not in _NO_NINO


#: By the names of `rules`, in the order in which they count where two begin together.
RULES: Final[Mapping[str, Sequence[DataRule]]] = MappingProxyType(
    {
        "api_key": [
            _build_rule("api_key", rf"{_anchor('[-_]', front='[spr]k')}[A-Za-z0-9_-]{{20,300}}+", behind=2),
            _build_rule("api_key", rf"{_anchor('A')}[KS]IA[0-9A-Z]{{16}}{_OUT}"),
            _build_rule(
                "api_key",
                rf"{_anchor('[ghnx]')}(?:(?<=g)(?:h[pousr]_|ithub_pat_|lpat-|sk_)|(?<=h)f_|(?<=n)pm_|(?<=x)ox[abeoprs]-)"
                r"[A-Za-z0-9_-]{20,300}+",
            ),
            _build_rule("api_key", rf"{_anchor('A')}Iza[0-9A-Za-z_-]{{35}}"),
            # The first 300 characters of a JSON Web Token: no server takes what is left of it.
            _build_rule(
                "api_key",
                rf"{_anchor('e')}yJ[A-Za-z0-9_-]{{8,150}}+\.[A-Za-z0-9_-]{{8,146}}+(?:\.[A-Za-z0-9_-]{{0,1}}+)?",
            ),
            _build_rule(
                "api_key", r":(?=//)//[A-Za-z0-9._%+-]{1,64}+:[A-Za-z0-9._%+-]{1,128}+(?=@[A-Za-z0-9])", needs="@"
            ),
        ],
        "email": [
            _build_rule(
                "email",
                rf"{_anchor('[A-Za-z0-9_%+]', but='A-Za-z0-9_%+')}[A-Za-z0-9._%+-]{{0,63}}+@"
                rf"(?:[A-Za-z0-9][A-Za-z0-9-]{{0,62}}+(?<!-)\.){{1,8}}[A-Za-z]{{2,24}}{_OUT}",
                lambda text: len(text) < WIDTH,
                needs="@",
            ),
            *(
                _build_rule(
                    "email",
                    rf"{_anchor('[A-Za-z0-9_+]', but='A-Za-z0-9_+')}[A-Za-z0-9._+-]{{0,63}}+{at}"
                    rf"(?:[A-Za-z0-9][A-Za-z0-9-]{{0,62}}+(?<!-)\.){{1,4}}[A-Za-z]{{2,24}}{_OUT}",
                    needs=at,
                )
                for at in ("%40", "&#64;")
            ),
        ],
        "iban": [
            _build_rule(
                "iban",
                rf"{_anchor('[0-9]', front='[A-Za-z]{2}')}[0-9][A-Za-z0-9]{{11,30}}+{_OUT}",
                is_iban,
                behind=2,
            ),
            _build_rule(
                "iban",
                rf"{_anchor('[0-9]', front='[A-Z]{2}')}[0-9](?:[ .-][A-Z0-9]{{4}}){{2,7}}"
                rf"(?:[ .-][A-Z0-9]{{1,3}})?{_OUT}",
                is_iban,
                ends=_iterate_iban_ends,
                behind=2,
            ),
            _build_rule(
                "iban",
                rf"{_anchor('[0-9]', front='[A-Z]{2} ')}[0-9](?: [A-Z0-9]{{4}}){{2,7}}(?: [A-Z0-9]{{1,3}})?{_OUT}",
                is_iban,
                ends=_iterate_group_ends,
                behind=3,
            ),
        ],
        "national_id": [
            _build_rule(
                "national_id",
                rf"{_anchor('[0-8]', but='0-9-')}[0-9]{{2}}(?<!000)(?<!666)-(?!00)[0-9]{{2}}-(?!0000)[0-9]{{4}}"
                r"(?![0-9-])",
            ),
            _build_rule("national_id", _anchor("[0-9]", front=_NINO) + _DIGITS_BEHIND, _is_british_id, behind=2),
            _build_rule(
                "national_id",
                _anchor("[0-9]", front=f"{_NINO} ") + _DIGITS_BEHIND,
                _is_british_id,
                behind=3,
            ),
            _build_rule(
                "national_id",
                rf"{_anchor('[1-9]')}[0-9]{{5}}(?:19|20)[0-9]{{2}}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])[0-9]{{3}}"
                rf"[0-9Xx]{_OUT}",
                _is_chinese_id,
            ),
            _build_rule(
                "national_id",
                rf"{_anchor('[1-9]')}[0-9]{{5}}[ -](?:19|20)[0-9]{{2}}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])[ -]"
                rf"[0-9]{{3}}[0-9Xx]{_OUT}",
                lambda text: _is_chinese_id(text.translate(_WITHOUT_GAPS)),
            ),
            _build_rule("national_id", rf"{_anchor('[0-9]')}[0-9]{{7}}{_TAX_LETTER}{_OUT}", _is_spanish_id),
            _build_rule(
                "national_id",
                rf"{_anchor('[0-9]', front='[XYZxyz]')}[0-9]{{6}}{_TAX_LETTER}{_OUT}",
                _is_spanish_id,
                behind=1,
            ),
            _build_rule(
                "national_id",
                rf"{_anchor('[12]')} ?[0-9]{{2}} ?(?:0[1-9]|1[0-2]) ?(?:[0-9]{{2}}|2[AB]) ?[0-9]{{3}} ?[0-9]{{3}} ?"
                rf"[0-9]{{2}}{_OUT}",
                _is_french_id,
            ),
            _build_rule(
                "national_id",
                rf"{_anchor('[0-9]', but='0-9.')}[0-9]{{2}}\.[0-9]{{3}}\.[0-9]{{3}}-[0-9]{{2}}(?![0-9])",
                _is_brazilian_id,
            ),
        ],
        "card": [
            _build_rule(
                "card",
                rf"{_anchor('[2-6]')}(?:(?: ?[ -])?[0-9]){{12,18}}{_OUT}",
                is_card_number,
                ends=_iterate_group_ends,
            ),
            _build_rule("card", rf"{_anchor('[2-6]')}[0-9]{{3}}(?:\.[0-9]{{4}}){{3}}{_OUT}", is_card_number),
        ],
        "ip": [
            _build_rule(
                "ip",
                rf"{_anchor('[0-9]', but='0-9A-Za-z.')}{_BYTE_REST}(?:\.{_BYTE}){{3}}(?![0-9A-Za-z]|\.[0-9])",
                needs=".",
            ),
            _build_rule(
                "ip",
                rf"{_anchor('[0-9A-Fa-f]', but='0-9A-Za-z:')}[0-9A-Fa-f]{{0,3}}(?::{_HEX}){{7}}(?![0-9A-Za-z:])",
                needs=":",
            ),
            _build_rule(
                "ip",
                rf"(?<![0-9A-Za-z:])(?:{_HEX_GROUPS})?::(?:{_HEX_GROUPS})?(?![0-9A-Za-z:])",
                lambda text: len(text) > 3 and text.count(":") <= 7 and _extract_digits(text) != "",
                needs="::",
            ),
        ],
        "phone": [
            _build_rule(
                "phone",
                rf"{_anchor('[+0]', but='A-Za-z0-9+')}(?:(?<=[+])|0)[1-9]"
                rf"(?:(?: ?[ ./-])?(?:[0-9]|\([0-9]{{1,4}}\))){{6,14}}{_OUT}",
                _is_phone_number,
            ),
            _build_rule(
                "phone",
                rf"{_anchor('[(]', but='A-Za-z0-9(')}[2-9][0-9]{{2}}\) ?[0-9]{{3}}[ .-][0-9]{{4}}{_OUT}",
            ),
            _build_rule(
                "phone",
                rf"{_anchor('[2-9]', but='A-Za-z0-9.-')}[0-9]{{2}} ?[ .-][2-9][0-9]{{2}} ?[ .-][0-9]{{4}}{_OUT}",
            ),
            _build_rule("phone", rf"{_anchor('1')}[3-9][0-9]{{9}}{_OUT}"),
            _build_rule("phone", rf"{_anchor('1')}[3-9][0-9](?: [0-9]{{4}} |-[0-9]{{4}}-)[0-9]{{4}}{_OUT}"),
            _build_rule("phone", rf"{_anchor('0')}1[5-7][0-9]{{8,9}}{_OUT}"),
            _build_rule("phone", rf"{_anchor('0')}[1-9](?:[ .-][0-9]{{2}}){{4}}{_OUT}"),
            _build_rule(
                "phone",
                rf"{_anchor('[(]', but='A-Za-z0-9(')}0[1-9][0-9]{{1,3}}\) ?[0-9]{{3,4}}"
                rf"(?:[ -]?[0-9]{{2,4}}){{0,3}}{_OUT}",
                _is_phone_number,
            ),
            _build_rule(
                "phone",
                rf"{_anchor('0')}[1-9][0-9]{{1,4}} ?/ ?[0-9]{{2,4}}(?:[ -]?[0-9]{{2,4}}){{1,3}}{_OUT}",
                _is_phone_number,
            ),
            _build_rule(
                "phone",
                rf"{_anchor('0')}[1-9][0-9]{{1,4}}[ /-][0-9]{{3,4}}(?:[ -]?[0-9]{{2,4}}){{0,2}}{_OUT}",
                _is_phone_number,
            ),
        ],
    }
)


def select_rules(names: Sequence[str]) -> list[DataRule]:
    """Return the rules of these names, in their fixed order."""
    return [*chain.from_iterable(rules for name, rules in RULES.items() if name in names)]
