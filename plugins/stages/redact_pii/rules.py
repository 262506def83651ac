"""The rules for personal data and secrets: a pattern each, and a check sum where the data has one."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Final, TypeAlias

from gateway.plugin.screen import Finder, Span

#: No match is longer, with what stands behind it.
WIDTH: Final = 320
#: What a match can consist of, besides single blanks between groups that have a digit or are short and in capitals.
_MEMBERS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._%+-:@()/")
_GROUP: Final = re.compile(r"[^ ]*[0-9][^ ]*|[A-Z]{1,4}")

#: Returns the spans of data in what a pattern found.
Check: TypeAlias = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class DataRule:
    """A rule: what `regex` finds is data if `check` says so. An end of the match may lie before the pattern's."""

    name: str
    regex: re.Pattern[str]
    check: Check = bool
    ends: re.Pattern[str] | None = None  # where else the data may end, within what was found

    def finder(self, text: str) -> Finder:
        """Return the finder of this data (`Rule.finder`)."""

        def find(at: int) -> Span | None:
            while (found := self.regex.search(text, at)) is not None:
                for end in self._ends(text, *found.span()):
                    if self.check(text[found.start() : end]):
                        return found.start(), end
                at = found.start() + 1
            return None

        return find

    def settled(self, text: str) -> int:
        """Return where the last group begins, which may become data or go on (`Rule.settled`)."""
        at = end = len(text)
        lowest = max(0, end - WIDTH)
        while at > lowest and (text[at - 1] in _MEMBERS or text[at - 1] == " "):
            at -= 1
        *before, last = text[at:].split(" ")
        begin = end - len(last)
        for group in reversed(before):
            if _GROUP.fullmatch(group) is None:
                break
            begin -= len(group) + 1
        return begin

    def _ends(self, text: str, start: int, end: int) -> Iterator[int]:
        yield end
        if self.ends is not None:
            yield from (place.start() for place in reversed([*self.ends.finditer(text, start, end)]))


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def luhn(text: str) -> bool:
    """Return whether the digits are a card's number: 13 to 19 of them, an issuer's first one, the check digit."""
    digits = [*map(int, _digits(text))]
    if not 13 <= len(digits) <= 19 or digits[0] not in (2, 3, 4, 5, 6):
        return False
    doubled = (2 * digit - 9 * (digit > 4) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


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


def iban(text: str) -> bool:
    """Return whether the text is an IBAN: a length of its country, and the check digits (ISO 7064, mod 97)."""
    plain = text.replace(" ", "").upper()
    if not 15 <= len(plain) <= 34 or len(plain) != _IBAN_CHARS.get(plain[:2], len(plain)):
        return False
    return int("".join(str(int(char, 36)) for char in plain[4:] + plain[:4])) % 97 == 1


def _phone(text: str) -> bool:
    return 7 <= len(_digits(text)) <= 15


def _cn(text: str) -> bool:
    total = sum(int(digit) * (1 << (17 - i)) for i, digit in enumerate(text[:17]))
    return "10X98765432"[total % 11] == text[17].upper()


def _es(text: str) -> bool:
    number = str("XYZ".find(text[0].upper())) + text[1:8] if text[0].isalpha() else text[:8]
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(number) % 23] == text[-1].upper()


def _fr(text: str) -> bool:
    plain = text.replace(" ", "").upper().replace("2A", "19", 1).replace("2B", "18", 1)
    return plain.isdigit() and 97 - int(plain[:13]) % 97 == int(plain[13:])


def _br(text: str) -> bool:
    digits = [*map(int, _digits(text))]
    return len(set(digits)) > 1 and all(
        sum(digit * (n + 1 - i) for i, digit in enumerate(digits[:n])) * 10 % 11 % 10 == digits[n] for n in (9, 10)
    )


def _rule(name: str, pattern: str, check: Check = bool, *, ends: str | None = None) -> DataRule:
    return DataRule(name, re.compile(pattern), check, None if ends is None else re.compile(ends))


#: No letter or digit in front, and none behind.
_IN: Final = r"(?<![A-Za-z0-9])"
_OUT: Final = r"(?![A-Za-z0-9])"
_BYTE: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_HEX: Final = r"[0-9A-Fa-f]{1,4}"

#: By the names of `rules`, in the order in which they count where two begin together.
RULES: Final[Mapping[str, Sequence[DataRule]]] = MappingProxyType(
    {
        "api_key": [
            _rule("api_key", pattern)
            for pattern in (
                rf"{_IN}(?:sk|pk|rk)[-_][A-Za-z0-9_-]{{20,300}}",
                rf"{_IN}(?:AKIA|ASIA)[0-9A-Z]{{16}}(?![0-9A-Za-z])",
                rf"{_IN}(?:gh[pousr]_|github_pat_|glpat-|hf_|xox[abeoprs]-|gsk_)[A-Za-z0-9_-]{{20,300}}",
                rf"{_IN}AIza[0-9A-Za-z_-]{{35}}",
            )
        ],
        "email": [
            _rule(
                "email",
                r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9_%+][A-Za-z0-9._%+-]{0,63}@"
                rf"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{{0,61}}[A-Za-z0-9])?\.){{1,8}}[A-Za-z]{{2,24}}{_OUT}",
                lambda text: len(text) < WIDTH,
            )
        ],
        "iban": [
            _rule("iban", rf"{_IN}[A-Za-z]{{2}}[0-9]{{2}}[A-Za-z0-9]{{11,30}}{_OUT}", iban),
            _rule(
                "iban",
                rf"{_IN}[A-Z]{{2}}[0-9]{{2}}(?: [A-Z0-9]{{4}}){{2,7}}(?: [A-Z0-9]{{1,3}})?{_OUT}",
                iban,
                ends=" ",
            ),
        ],
        "national_id": [
            _rule("national_id", r"(?<![0-9-])(?!000|666|9)[0-9]{3}-(?!00)[0-9]{2}-(?!0000)[0-9]{4}(?![0-9-])"),
            _rule(
                "national_id",
                rf"{_IN}(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?"
                rf"[0-9]{{2}} ?[0-9]{{2}} ?[0-9]{{2}} ?[A-D]{_OUT}",
            ),
            _rule(
                "national_id",
                rf"{_IN}[1-9][0-9]{{5}}(?:19|20)[0-9]{{2}}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])[0-9]{{3}}[0-9Xx]"
                rf"{_OUT}",
                _cn,
            ),
            _rule(
                "national_id",
                rf"{_IN}(?:[0-9]{{8}}|[XYZxyz][0-9]{{7}})[A-HJ-NP-TV-Za-hj-np-tv-z]{_OUT}",
                _es,
            ),
            _rule(
                "national_id",
                rf"{_IN}[12] ?[0-9]{{2}} ?(?:0[1-9]|1[0-2]) ?(?:[0-9]{{2}}|2[AB]) ?[0-9]{{3}} ?[0-9]{{3}} ?[0-9]{{2}}"
                rf"{_OUT}",
                _fr,
            ),
            _rule("national_id", r"(?<![0-9.])[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}(?![0-9])", _br),
        ],
        "card": [
            _rule(
                "card",
                rf"{_IN}[2-6](?:[ -]?[0-9]){{12,18}}{_OUT}",
                luhn,
                ends="(?<=[0-9])[ -](?=[0-9])",
            )
        ],
        "ip": [
            _rule("ip", rf"(?<![0-9A-Za-z.])(?:{_BYTE}\.){{3}}{_BYTE}(?![0-9A-Za-z]|\.[0-9])"),
            _rule("ip", rf"(?<![0-9A-Za-z:])(?:{_HEX}:){{7}}{_HEX}(?![0-9A-Za-z:])"),
            _rule(
                "ip",
                rf"(?<![0-9A-Za-z:])(?:{_HEX}(?::{_HEX}){{0,6}})?::(?:{_HEX}(?::{_HEX}){{0,6}})?(?![0-9A-Za-z:])",
                lambda text: len(text) > 3 and text.count(":") <= 7 and _digits(text) != "",
            ),
        ],
        "phone": [
            _rule(
                "phone",
                rf"(?<![A-Za-z0-9+])(?:\+|00)[1-9](?:[ ./-]?(?:[0-9]|\([0-9]{{1,4}}\))){{6,14}}{_OUT}",
                _phone,
            ),
            _rule("phone", rf"(?<![A-Za-z0-9(])\([2-9][0-9]{{2}}\) ?[0-9]{{3}}[ .-][0-9]{{4}}{_OUT}"),
            _rule("phone", rf"(?<![A-Za-z0-9.-])[2-9][0-9]{{2}}[ .-][2-9][0-9]{{2}}[ .-][0-9]{{4}}{_OUT}"),
            _rule("phone", rf"{_IN}1[3-9][0-9]{{9}}{_OUT}"),
            _rule(
                "phone",
                rf"{_IN}0[1-9][0-9]{{1,4}}[ /-][0-9]{{3,4}}(?:[ -]?[0-9]{{2,4}}){{0,2}}{_OUT}",
                _phone,
            ),
        ],
    }
)


def rules_of(names: Sequence[str]) -> list[DataRule]:
    """Return the rules of these names, in their fixed order."""
    return [*chain.from_iterable(rules for name, rules in RULES.items() if name in names)]
