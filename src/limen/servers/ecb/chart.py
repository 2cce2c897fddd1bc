"""A picture of rates over a window, in which what is missing is to be seen. Needs matplotlib."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Mapping
from datetime import date
from types import MappingProxyType

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from limen.answers.coverage import Span
from limen.servers.ecb.sources import SOURCE
from limen.servers.ecb.view import Window

SIZE = (9.0, 4.5)
"""Inches, at 100 dots each."""

FEW = 60
"""Rates up to which each gets a dot of its own."""

COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "no_such_observation": "#d62728",
        "not_yet_published": "#ff7f0e",
        "outside_the_source": "#9467bd",
        "series_suspended": "#8c564b",
        "before_the_series": "#7f7f7f",
        "after_the_series": "#7f7f7f",
        "in_the_future": "#bcbd22",
    }
)
"""The shade of each cause. Closed days have none: the line goes on over them."""

HALF = 0.5
"""Days. A day reaches from half a day before its place to half a day after it."""

EPOCH = date(1970, 1, 1).toordinal()

_drawing = threading.Lock()
"""The font cache of the library is one for all threads."""


def draw(window: Window) -> bytes:
    """Return a PNG of 900 by 450 dots. The line ends where a rate was to be expected and is not."""
    with _drawing:
        return _draw(window)


def _draw(window: Window) -> bytes:
    series, coverage = window.series, window.coverage
    figure = Figure(figsize=SIZE, dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    gaps = [span for span in coverage.spans if span.cause in COLOURS]
    marker = "o" if coverage.delivered_observations <= FEW else ""
    for days, rates in _runs(window, gaps):
        axes.plot(days, rates, color="#1f77b4", linewidth=1.2, marker=marker, markersize=3)
    named: set[str] = set()
    for span in gaps:
        label = None if span.cause in named else span.cause.replace("_", " ")
        named.add(span.cause)
        first, last = _place(span.first) - HALF, _place(span.last) + HALF
        axes.axvspan(first, last, color=COLOURS[span.cause], alpha=0.25, label=label)
    axes.set_xlim(_place(coverage.requested_from) - HALF, _place(coverage.requested_to) + HALF)
    axes.xaxis_date()
    axes.set_ylabel(f"{series.currency} for 1 EUR")
    axes.set_title(
        f"{series.title}: {coverage.delivered_observations} of"
        f" {coverage.expected_observations} expected rates,"
        f" {coverage.requested_from} to {coverage.requested_to}",
        fontsize=10,
    )
    axes.grid(visible=True, alpha=0.3)
    if named:
        axes.legend(loc="best", fontsize=8)
    figure.text(0.995, 0.005, SOURCE, ha="right", va="bottom", fontsize=7)
    written = io.BytesIO()
    figure.savefig(written, format="png", metadata={"Software": None})
    return written.getvalue()


def _place(day: date) -> float:
    """Return where a day is on the axis: whole days from 1970-01-01, as the library counts."""
    return float(day.toordinal() - EPOCH)


def _runs(window: Window, gaps: list[Span]) -> Iterator[tuple[list[float], list[float]]]:
    """Yield the rates in runs that no gap divides. A picture has room for floats."""
    days: list[float] = []
    rates: list[float] = []
    before: date | None = None
    left = sorted(gaps, key=lambda span: span.first)
    for day, rate in (window.body.rates if window.body is not None else {}).items():
        while left and left[0].last < (before or date.min):
            left.pop(0)
        if before is not None and left and left[0].first < day:
            yield days, rates
            days, rates = [], []
        days.append(_place(day))
        rates.append(float(rate))
        before = day
    if days:
        yield days, rates
