"""Families that leave the shop as it is: sales, best sellers, customers, invoices, stock, reviews, and grids to show."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from agentgym_envs.webarena.sites.base import Instance, Script, TaskTemplate
from agentgym_envs.webarena.sites.cms.views import ORIGIN
from agentgym_envs.webarena.sites.shopping.catalog import ASPECTS, CITIES, GROUPS
from agentgym_envs.webarena.sites.shopping.scripts import (
    NUMBER_ONLY,
    UNACHIEVABLE,
    Walk,
    all_pages,
    between,
    choose,
    click,
    entries,
    exactly,
    extremes,
    fill,
    includes,
    plain,
    shows,
    some,
    total,
)
from agentgym_envs.webarena.sites.shopping.store import REVIEW_STATUSES, STATUSES
from agentgym_envs.webarena.sites.shopping.tasks.reading import periods

if TYPE_CHECKING:
    from agentgym_envs.webarena.page import Page

_BETWEEN = "o.created >= ? AND o.created < ? || '~'"
_REVIEW = r"(?P<nickname>.+) on (?P<product>.+), (?P<stars>\d) of 5, [\d-]{10}, (?P<status>\w+): .+"
_CUSTOMER = r"(?P<email>\S+@\S+), (?P<phone>[\d-]+), .+"


def _spans() -> list[tuple[str, str, str]]:
    """The periods, and every two months in a row."""
    months = [period for period in periods() if period[1][:7] == period[2][:7]]
    return [*periods(), *((f"{a[0]} and {b[0]}", a[1], b[2]) for a, b in pairwise(months))]


def _report(page: Page, name: str, first: str, last: str, by: str = "month") -> Walk:
    """Open a report on a period."""
    page = yield from click(page, "link", "Reports")
    page = yield from click(page, "link", name)
    if page.has("combobox", "Period"):
        page = yield from choose(page, "Period", by)
    return (yield from between(page, first, last))


def _kind(period: str) -> str:
    return "quarter" if "quarter" in period else "year" if period.isdigit() else "month"


def _best(connection: sqlite3.Connection, sql: str, family: str) -> list[Instance]:
    """Instances whose answer is the first row's name, where the second row has a smaller number."""
    found = []
    for words, first, last in _spans():
        for row in extremes(connection.execute(sql, (first, last)).fetchall(), "number"):
            found.append(Instance({"period": words, "first": first, "last": last}, includes(row["name"])))
    return some(family, found)


def _bestsellers(connection: sqlite3.Connection) -> list[Instance]:
    sql = f"""SELECT l.name, SUM(l.quantity) AS number FROM shop_order_line l JOIN shop_order o ON o.id = l.order_id
              WHERE o.status != 'Canceled' AND {_BETWEEN} GROUP BY l.product_id ORDER BY 2 DESC LIMIT 2"""
    return _best(connection, sql, "bestseller")


def _best_customers(connection: sqlite3.Connection) -> list[Instance]:
    sql = f"""SELECT c.first_name || ' ' || c.last_name AS name, COUNT(*) AS number
              FROM shop_order o JOIN shop_customer c ON c.id = o.customer_id
              WHERE o.status != 'Canceled' AND {_BETWEEN} GROUP BY c.id ORDER BY 2 DESC LIMIT 2"""
    return _best(connection, sql, "best-customer")


def _tell_first(report: str) -> Callable[..., Script]:
    def solve(page: Page, period: str, first: str, last: str) -> Script:
        page = yield from _report(page, report, first, last)
        yield page.stop(page.rows()[0].texts[0])

    return solve


def _sums(connection: sqlite3.Connection, sql: str) -> list[Instance]:
    found = []
    for words, first, last in periods():
        amount = connection.execute(sql, (first, last)).fetchone()[0]
        if amount:
            found.append(Instance({"period": words, "first": first, "last": last}, includes(plain(amount))))
    return found


def _sales(connection: sqlite3.Connection) -> list[Instance]:
    return _sums(connection, f"SELECT SUM(o.total) FROM shop_order o WHERE o.status != 'Canceled' AND {_BETWEEN}")


def _refunds(connection: sqlite3.Connection) -> list[Instance]:
    return _sums(connection, f"SELECT SUM(o.total) FROM shop_refund o WHERE {_BETWEEN}")


def _tell_sum(report: str) -> Callable[..., Script]:
    def solve(page: Page, period: str, first: str, last: str) -> Script:
        page = yield from _report(page, report, first, last, _kind(period))
        yield page.stop(page.rows()[0].texts[2])

    return solve


# ---- orders ----


def _order_counts(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for words, first, last in _spans():
        for status in STATUSES:
            count = connection.execute(
                f"SELECT COUNT(*) FROM shop_order o WHERE status = ? AND {_BETWEEN}", (status, first, last)
            ).fetchone()[0]
            if count:
                found.append(Instance({"status": status, "period": words, "first": first, "last": last}, exactly(count)))
    return some("order-count", found)


def _filter_orders(page: Page, status: str, first: str, last: str) -> Walk:
    page = yield from click(page, "link", "Orders")
    page = yield from choose(page, "Status", status)
    return (yield from between(page, first, last, "Filter"))


def _count_orders(page: Page, status: str, period: str, first: str, last: str) -> Script:
    page = yield from _filter_orders(page, status, first, last)
    yield page.stop(str(total(page)))


def _grids(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for status in STATUSES:
        for words, first, last in periods():
            if not connection.execute(f"SELECT 1 FROM shop_order o WHERE status = ? AND {_BETWEEN}", (status, first, last)).fetchone():
                continue
            url = f"{ORIGIN}/orders?status={status}&from={first}&to={last}"
            found.append(Instance({"status": status, "period": words, "first": first, "last": last}, shows(url)))
    return some("grid", found)


def _show_orders(page: Page, status: str, period: str, first: str, last: str) -> Script:
    page = yield from _filter_orders(page, status, first, last)
    yield page.stop()


def _invoices(connection: sqlite3.Connection) -> list[Instance]:
    sql = """SELECT o.number AS number, i.number AS invoice, substr(i.created, 1, 10) AS day FROM shop_invoice i
             JOIN shop_order o ON o.id = i.order_id ORDER BY o.id"""
    rows = some("invoice", connection.execute(sql).fetchall())
    return [Instance({"number": row["number"]}, includes(row["invoice"], row["day"])) for row in rows]


def open_order(page: Page, number: str) -> Walk:
    """Search for an order and open it."""
    page = yield from click(page, "link", "Orders")
    page = yield from fill(page, {"Number or customer": number})
    return (yield from click(page, "link", f"Order {number}"))


def _tell_invoice(page: Page, number: str) -> Script:
    page = yield from open_order(page, number)
    yield page.stop(page.value("Invoice"))


# ---- customers ----


def _phones(connection: sqlite3.Connection) -> list[Instance]:
    rows = connection.execute("SELECT first_name || ' ' || last_name AS name, email, phone FROM shop_customer ORDER BY id").fetchall()
    return [Instance({"phone": row["phone"]}, includes(row["name"], row["email"])) for row in some("phone", rows)]


def _tell_customer(page: Page, phone: str) -> Script:
    page = yield from click(page, "link", "Customers")
    page = yield from fill(page, {"Name, email or phone": phone})
    ((name, customer),) = entries(page, _CUSTOMER)
    yield page.stop(f"{name.name}, {customer['email']}")


def _residents(connection: sqlite3.Connection) -> list[Instance]:
    sql = """SELECT COUNT(*) FROM shop_customer c JOIN shop_address a ON a.customer_id = c.id AND a.label = 'Home'
             WHERE a.state = ? AND c.customer_group = ?"""
    found = []
    for _, state, _ in CITIES:
        for group in GROUPS:
            count = connection.execute(sql, (state, group)).fetchone()[0]
            if count:
                found.append(Instance({"group": group, "state": state}, exactly(count)))
    return some("residents", found)


def _count_residents(page: Page, group: str, state: str) -> Script:
    page = yield from click(page, "link", "Customers")
    page = yield from choose(page, "Group", group)
    page = yield from fill(page, {"State": state})
    yield page.stop(str(total(page)))


def _birthdays(connection: sqlite3.Connection) -> list[Instance]:
    rows = connection.execute("SELECT first_name || ' ' || last_name AS name FROM shop_customer ORDER BY id").fetchall()
    return [Instance({"customer": row["name"]}, UNACHIEVABLE) for row in some("birthday", rows, 6)]


def _no_birthday(page: Page, customer: str) -> Script:
    page = yield from open_customer(page, customer)
    yield page.stop("N/A")


def open_customer(page: Page, name: str) -> Walk:
    """Search for a customer and open the page."""
    page = yield from click(page, "link", "Customers")
    page = yield from fill(page, {"Name, email or phone": name})
    return (yield from click(page, "link", name))


# ---- products, search terms, reviews ----


def _sold_out(connection: sqlite3.Connection) -> list[Instance]:
    sql = (
        "SELECT brand, GROUP_CONCAT(name, '|') AS names FROM shop_product WHERE stock = 0 GROUP BY brand HAVING COUNT(*) < 6 ORDER BY brand"
    )
    rows = some("sold-out", connection.execute(sql).fetchall())
    return [Instance({"brand": row["brand"]}, includes(*sorted(row["names"].split("|")))) for row in rows]


def _tell_sold_out(page: Page, brand: str) -> Script:
    page = yield from click(page, "link", "Products")
    page = yield from fill(page, {"Name or SKU": brand, "Stock at most": "0"})
    yield page.stop(", ".join(node.name for node, _ in entries(page, r"\w+: \$[\d.]+, stock 0.*")))


def _terms(connection: sqlite3.Connection) -> list[Instance]:
    rows = connection.execute("SELECT term, uses FROM shop_search_term ORDER BY term").fetchall()
    return [Instance({"term": row["term"]}, exactly(row["uses"])) for row in some("term", rows)]


def _tell_uses(page: Page, term: str) -> Script:
    page = yield from click(page, "link", "Reports")
    page = yield from click(page, "link", "Search terms")
    pages = yield from all_pages(page)
    yield page.stop(next(row.texts[1] for page in pages for row in page.rows() if row.texts[0] == term))


def _review_counts(connection: sqlite3.Connection) -> list[Instance]:
    sql = "SELECT COUNT(*) FROM shop_review WHERE status = ? AND instr(lower(title || ' ' || body), ?)"
    found = []
    for status in REVIEW_STATUSES:
        for topic in ASPECTS:
            count = connection.execute(sql, (status, topic)).fetchone()[0]
            found.append(Instance({"status": status.lower(), "topic": topic}, exactly(count)))
    return some("review-count", found)


def _count_reviews(page: Page, status: str, topic: str) -> Script:
    page = yield from click(page, "link", "Reviews")
    page = yield from choose(page, "Status", status.capitalize())
    page = yield from fill(page, {"Text": topic})
    yield page.stop(str(total(page)))


def _unhappy(connection: sqlite3.Connection) -> list[Instance]:
    sql = """SELECT p.name, GROUP_CONCAT(r.nickname, '|') AS people FROM shop_review r JOIN shop_product p ON p.id = r.product_id
             WHERE r.rating <= 2 GROUP BY p.id HAVING COUNT(*) BETWEEN 2 AND 5 ORDER BY p.id"""
    rows = some("unhappy", connection.execute(sql).fetchall())
    return [Instance({"product": row["name"]}, includes(*sorted(row["people"].split("|")))) for row in rows]


def _tell_unhappy(page: Page, product: str) -> Script:
    page = yield from click(page, "link", "Reviews")
    page = yield from fill(page, {"Product": product})
    pages = yield from all_pages(page)
    reviews = [review for page in pages for _, review in entries(page, _REVIEW)]
    yield page.stop(", ".join(review["nickname"] for review in reviews if int(review["stars"]) <= 2))


def _template(
    name: str, intent: str, instances: Callable[[sqlite3.Connection], Sequence[Instance]], solve: Callable[..., Script]
) -> TaskTemplate:
    return TaskTemplate(f"cms.{name}", "cms", intent, False, instances, solve)


TEMPLATES = (
    _template("bestseller", "Which product sold the most units in {period}?", _bestsellers, _tell_first("Bestsellers")),
    _template("best-customer", "Which customer placed the most orders in {period}?", _best_customers, _tell_first("Customers by orders")),
    _template("sales", "What were our total sales in {period} according to the sales report?", _sales, _tell_sum("Sales")),
    _template("refunds", "How much money did we refund in {period}?", _refunds, _tell_sum("Refunds")),
    _template(
        "order-count", "How many orders that were placed in {period} have the status {status}?" + NUMBER_ONLY, _order_counts, _count_orders
    ),
    _template("show-orders", "Show me the orders placed in {period} that have the status {status}.", _grids, _show_orders),
    _template("invoice", "What are the number and the date of the invoice of order {number}?", _invoices, _tell_invoice),
    _template("phone", "What are the name and the email address of the customer with the phone number {phone}?", _phones, _tell_customer),
    _template("residents", "How many customers in the group {group} live in {state}?" + NUMBER_ONLY, _residents, _count_residents),
    _template("sold-out", "Which products of {brand} have no stock left? List all, also disabled ones.", _sold_out, _tell_sold_out),
    _template("search-term", "How many times did customers search for '{term}'?" + NUMBER_ONLY, _terms, _tell_uses),
    _template("review-count", "How many {status} reviews mention the word '{topic}'?" + NUMBER_ONLY, _review_counts, _count_reviews),
    _template(
        "unhappy", "Who gave the {product} 1 or 2 stars? List the nicknames, whatever the status of the review.", _unhappy, _tell_unhappy
    ),
    _template("birthday", "What is the birthday of the customer {customer}?", _birthdays, _no_birthday),
)
