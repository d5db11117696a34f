"""Text is measured and cut in any script."""

from bayestree._utils.wording import FIRST_STRONG, POP
from bayestree.plots import _style


def test_texts_are_cut_to_their_room():
    assert _style.cut("short", 10, 2.0) == "short"
    cut = _style.cut("a name that is much too long", 10, 0.8)
    assert cut.endswith("…")
    assert _style.inches(cut, 10) <= 0.8


def test_east_asian_letters_are_wider_and_marks_have_no_width():
    assert _style.inches("字字", 10) > 1.3 * _style.inches("ab", 10)
    assert _style.inches(f"{FIRST_STRONG}ab{POP}", 10) == _style.inches("ab", 10)


def test_a_cut_name_does_not_turn_what_follows():
    isolated = f"{FIRST_STRONG}{'و' * 40}{POP}"
    assert _style.cut(isolated, 12, 1.2).endswith(f"{POP}…")
