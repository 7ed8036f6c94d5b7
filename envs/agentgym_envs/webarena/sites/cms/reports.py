"""Reports: sales and refunds by period, best sellers and best customers of a period, search terms. Canceled orders do not count."""

from __future__ import annotations

from flask import Blueprint, render_template

from agentgym_envs.webarena.sites.listing import Listing, choice, paginate
from agentgym_envs.webarena.sites.shopping.store import Filter, money

pages = Blueprint("reports", __name__)

#: Value of the argument ``by`` -> SQL of the period that a time ``{column}`` lies in.
PERIODS = {
    "month": "substr({column}, 1, 7)",
    "quarter": "substr({column}, 1, 4) || '-Q' || ((CAST(substr({column}, 6, 2) AS INTEGER) + 2) / 3)",
    "year": "substr({column}, 1, 4)",
}
_SALES = """
SELECT {period}, COUNT(*), SUM(o.total), SUM(o.tax) FROM shop_order o WHERE {where} GROUP BY 1 ORDER BY 1 DESC
"""
_REFUNDS = "SELECT {period}, COUNT(*), SUM(r.total) FROM shop_refund r WHERE {where} GROUP BY 1 ORDER BY 1 DESC"
_BESTSELLERS = """
SELECT l.name, SUM(l.quantity), SUM(l.quantity * l.price) FROM shop_order_line l JOIN shop_order o ON o.id = l.order_id
WHERE {where} GROUP BY l.product_id ORDER BY 2 DESC, 1
"""
_CUSTOMERS = """
SELECT c.first_name || ' ' || c.last_name, COUNT(*), SUM(o.total) FROM shop_order o JOIN shop_customer c ON c.id = o.customer_id
WHERE {where} GROUP BY c.id ORDER BY 2 DESC, 1
"""


def _show(title: str, columns: tuple[str, ...], listing: Listing, amounts: tuple[int, ...], **options: object) -> str:
    rows = [[money(value) if place in amounts else value for place, value in enumerate(row)] for row in listing.rows]
    return render_template("report.html", heading=title, columns=columns, rows=rows, listing=listing, **options)


def _period(sql: str, where: Filter, column: str) -> tuple[Listing, str]:
    by = choice("by", tuple(PERIODS))
    where.days(column)
    period = PERIODS[by].format(column=column)
    return paginate(sql.format(period=period, where=where.sql), where.parameters), by


@pages.get("/reports")
def overview() -> str:
    """Links to the reports."""
    return render_template("reports.html")


@pages.get("/reports/sales")
def sales() -> str:
    """Orders, sales and tax by period."""
    listing, by = _period(_SALES, Filter("o.status != 'Canceled'"), "o.created")
    return _show("Sales report", ("Period", "Orders", "Sales", "Tax"), listing, (2, 3), periods=tuple(PERIODS), by=by, days=True)


@pages.get("/reports/refunds")
def refunds() -> str:
    """Refunds by period."""
    listing, by = _period(_REFUNDS, Filter(), "r.created")
    return _show("Refunds report", ("Period", "Refunds", "Amount"), listing, (2,), periods=tuple(PERIODS), by=by, days=True)


def _ranking(title: str, columns: tuple[str, ...], sql: str) -> str:
    where = Filter("o.status != 'Canceled'")
    where.days("o.created")
    return _show(title, columns, paginate(sql.format(where=where.sql), where.parameters), (2,), days=True)


@pages.get("/reports/bestsellers")
def bestsellers() -> str:
    """Products by the number sold."""
    return _ranking("Bestsellers report", ("Product", "Quantity", "Sales"), _BESTSELLERS)


@pages.get("/reports/customers")
def customers() -> str:
    """Customers by the number of their orders."""
    return _ranking("Customers report", ("Customer", "Orders", "Total"), _CUSTOMERS)


@pages.get("/reports/search-terms")
def search_terms() -> str:
    """What customers search for, most frequent first."""
    listing = paginate("SELECT term, uses, results FROM shop_search_term ORDER BY uses DESC, term")
    return _show("Search terms report", ("Term", "Uses", "Results"), listing, ())
