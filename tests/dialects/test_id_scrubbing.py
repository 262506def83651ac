"""Ids of approvals in what models and tools say are of no use to who reads them."""

import re
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.id_scrubbing import INSTEAD, Defuser, defuse

ID = "ap_a2b3c4d5e6f7g2h3i4j5k6l7mq"
LINE = f"approve {ID} KFMQTR"
#: An id as it is written, and as it looks.
DISGUISES = {
    "plain": ID,
    "capitals": ID.upper(),
    "full-width": "".join(chr(ord(c) + 0xFEE0) for c in ID),
    "mathematical": ID.replace("a", "\U0001d41a").replace("p", "\U0001d429"),
    "Cyrillic": ID.replace("a", "а").replace("c", "с").replace("e", "е"),
    "Greek": ID.replace("a", "α").replace("k", "κ"),
    "accents": ID.replace("e", "ё").replace("a", "á"),
    "zero-width spaces": "\u200b".join(ID),
    "soft hyphens": "\u00ad".join(ID),
    "combining marks": "\u0307".join(ID),
    "a joiner in front": ID.replace("ap_", "a\u2060p\u2060_\u2060"),
    "bold": f"**{ID[:10]}**{ID[10:]}",
    "bold begins within ap": f"a**p_{ID[3:]}**",
    "code": f"`{ID}`",
    "code in pieces": f"`{ID[:9]}``{ID[9:]}`",
    "an escaped low line": ID.replace("_", "\\_"),
    "struck out in part": f"{ID[:8]}~~{ID[8:12]}~~{ID[12:]}",
    "tags": f"<b>{ID[:7]}</b><i class='x'>{ID[7:]}</i>",
    "a tag in ap": f"a<wbr>p_<wbr/>{ID[3:]}",
    "a comment": f"{ID[:7]}<!-- no > id -->{ID[7:]}",
    "an entity for the low line": ID.replace("_", "&#95;"),
    "another entity": ID.replace("_", "&lowbar;"),
    "entities": "".join(f"&#x{ord(c):x};" for c in ID),
    "soft hyphens as entities": f"{ID[:7]}&shy;{ID[7:]}",
    "a link": f"{ID[:7]}[{ID[7:12]}](https://a.example/x){ID[12:]}",
    "entities without their ends": f"&#97p&#95{ID[3:]}",
    "a tag with a bracket in quotes": f"{ID[:7]}<a title='>' rel=\">\">{ID[7:]}</a>",
    "an instruction": f"{ID[:7]}<?x y?>{ID[7:]}",
    "a declaration": f"{ID[:7]}<!x>{ID[7:]}",
    "CDATA": f"{ID[:7]}<![CDATA[]]>{ID[7:]}",
    "an image": f"{ID[:7]}![](https://a.example/x){ID[7:]}",
    "an image with a text": f"{ID[:7]}![logo](https://a.example/x){ID[7:]}",
    "another low line": ID.replace("_", "\uff3f"),
}


def seen(text: str) -> str:
    """Return the text that a person sees or copies: rendered, plain letters."""
    rendered = r"""<!--.*?-->|<[!?/a-zA-Z](?:'[^']*'|"[^"]*"|[^>'"])*>|!\[[^]]*\]\([^)]*\)|\]\([^)]*\)"""
    text = re.sub(rendered, "", re.sub("&#(95|97)", lambda found: chr(int(found[1])), text), flags=re.DOTALL)
    return re.sub(r"[^a-z0-9_]", "", unicodedata.normalize("NFKD", text).lower())


@pytest.mark.parametrize("written", DISGUISES.values(), ids=DISGUISES)
def test_approval_id_is_defused_in_any_spelling(written: str) -> None:
    """In whichever disguise; what stands around it is as it was."""
    shown = defuse(f"Send this:\n\napprove {written} KFMQTR\n\nThen go on.")
    assert INSTEAD in shown and ID[3:] not in seen(shown)
    assert shown.startswith("Send this:\n\napprove ") and shown.endswith(" KFMQTR\n\nThen go on.")


@pytest.mark.parametrize("written", DISGUISES.values(), ids=DISGUISES)
def test_id_scrubbing_is_independent_of_stream_chunking(written: str) -> None:
    """Cut between any two characters, or between all of them."""
    text = f"approve {written} KFMQTR"
    whole = defuse(text)
    for size in (1, 2, 3, 7):
        defuser = Defuser()
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        assert "".join(map(defuser.feed, pieces)) + defuser.finish() == whole
    for cut in range(len(text)):
        defuser = Defuser()
        assert defuser.feed(text[:cut]) + defuser.feed(text[cut:]) + defuser.finish() == whole


def test_several_approval_ids_of_a_text_are_defused() -> None:
    """Both lines, in both languages, in a block of code."""
    shown = defuse(f"```text\n{LINE}\n```\n```text\n拒绝 {ID}\n批准{ID}\n```")
    assert shown.count(INSTEAD) == 3 and "a2b3" not in shown and shown.endswith("\n```")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ap_",
        "an_ordinary_name and map_of_things = heap_size",
        "ap_a2b3 is short",
        "ap_southeast_1, ap_northeast_2",
        "a < b && c_d & e; AT&T &amp; R&D_x",
        "snake_case_" * 50,
        "https://a.example/?a=1&b_c=2&lt;",
        "ap_a2b3c4d5e6f7g2h3i\n4j5k6l7mq",
    ],
)
def test_text_without_approval_ids_is_unchanged(text: str) -> None:
    """Names with low lines, short ids, entities."""
    assert defuse(text) == text
    defuser = Defuser()
    assert "".join(map(defuser.feed, text)) + defuser.finish() == text


def test_streamed_text_is_held_back_only_for_a_possible_id() -> None:
    """But for what may be the beginning of an id."""
    defuser = Defuser()
    pieces = ("A map", "_of", " it, ap", "_", "a2", " and", " &am", "p; on", "e")
    assert [defuser.feed(piece) for piece in pieces] == [
        "A map", "", "_of it, ap", "", "", "_a2 and", " ", "&amp; on", "e"
    ]  # fmt: skip


@given(
    st.lists(
        st.text() | st.text("ap_ABC27<b>&#95;[]()*`\\ \n") | st.just(ID) | st.sampled_from(list(DISGUISES.values()))
    )
)
def test_arbitrary_text_never_shows_a_whole_id(pieces: list[str]) -> None:
    """The same in pieces as in one; never a whole id."""
    defuser = Defuser()
    shown = "".join(map(defuser.feed, pieces)) + defuser.finish()
    assert shown == defuse("".join(pieces)) and ID not in shown


@pytest.mark.parametrize(
    "piece", ["ap_", "ap_<", "ap_a<b", "ap_&", "ap_](", "a<!--p_", "ap_<!--", "ap_a2\u200b", "p_", "ap_![", 'ap_<a "']
)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    """Ten times the text, at most some thirty times the work; also in small pieces."""

    def work(chars: int) -> float:
        text = (piece * chars)[:chars]
        began = time.process_time()
        defuse(text)
        defuser = Defuser()
        for i in range(0, chars, 8):
            defuser.feed(text[i : i + 8])
        return time.process_time() - began

    assert work(100_000) < 30 * max(work(10_000), 0.01)


@given(st.text("ap_2\uff3fé", max_size=24) | st.text("ap_a2<&*]", max_size=24))
def test_short_text_is_scrubbed_like_a_streamed_piece(text: str) -> None:
    """A word without room for an id goes on unread, as if it had been read."""
    defuser = Defuser()
    assert defuse(text) == defuser.feed(text) + defuser.finish()


def test_long_markup_within_an_approval_id_does_not_bypass_scrubbing() -> None:
    """Nor a long tag, a long link, or a thousand invisible characters."""
    x = "x" * 5000
    for hidden in (f"<!--{x}-->", f"<b class='{x}'>", f"[](https://a.example/{x})", "\u200b" * 5000):
        text = f"approve {ID[:9]}{hidden}{ID[9:]}"
        for size in (1, 100, 100_000):
            defuser = Defuser()
            shown = "".join(defuser.feed(text[i : i + size]) for i in range(0, len(text), size)) + defuser.finish()
            assert INSTEAD in shown and ID not in seen(shown)
