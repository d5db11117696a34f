"""Text is measured and cut in any script, and times have ticks."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from bayestree._utils.wording import FIRST_STRONG, POP
from bayestree.plots import _style


def test_texts_are_cut_to_their_room():
    assert _style.cut("short", 10, 2.0) == "short"
    cut = _style.cut("a name that is much too long", 10, 0.8)
    assert cut.endswith("…")
    assert _style.inches(cut, 10) <= 0.8


def test_a_long_text_is_cut_as_fast_as_a_short_one(monkeypatch):
    measured = []
    monkeypatch.setattr(_style, "inches", lambda text, _: measured.append(text) or len(text))
    assert _style.cut("ACGT" * 10_000, 10, 12) == "ACGTACGTACG…"
    assert sum(map(len, measured)) < 3 * _style.LONGEST  # the sum of a half, a quarter, ...


def test_east_asian_letters_are_wider_and_marks_have_no_width():
    assert _style.inches("字字", 10) > 1.3 * _style.inches("ab", 10)
    assert _style.inches(f"{FIRST_STRONG}ab{POP}", 10) == _style.inches("ab", 10)


def test_a_cut_name_does_not_turn_what_follows():
    isolated = f"{FIRST_STRONG}{'و' * 40}{POP}"
    assert _style.cut(isolated, 12, 1.2).endswith(f"{POP}…")


@pytest.mark.parametrize("n_ticks", [5, 6])
@pytest.mark.parametrize("days", [0.1, 4, 1000, 1500, 50_000])
def test_every_range_of_time_has_two_ticks_or_more_and_no_warning(days, n_ticks):
    ax = Figure().subplots()
    begin = np.datetime64("2012-01-01T00:00:00")
    ax.plot([begin, begin + np.timedelta64(int(days * 86400), "s")], [0, 1])
    _style.date_ticks(ax.xaxis, n_ticks)

    ax.figure.canvas.draw()

    low, high = ax.get_xlim()
    assert 2 <= sum(low <= place <= high for place in ax.get_xticks()) <= n_ticks


def test_notebooks_show_a_figure_that_pyplot_does_not_know():
    ax = _style.new_axes(2.0, 1.0)
    assert ax.figure._repr_png_().startswith(b"\x89PNG")
