"""Families that leave the shop as it is: facts about orders, spending, prices, reviews, and pages to show."""

from __future__ import annotations

import sqlite3
from calendar import month_name, monthrange
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agentgym_envs.webarena.sites.base import Instance, Script, TaskTemplate
from agentgym_envs.webarena.sites.shopping.catalog import ASPECTS, CATALOG
from agentgym_envs.webarena.sites.shopping.scripts import (
    NUMBER_ONLY,
    UNACHIEVABLE,
    Walk,
    all_pages,
    between,
    cents,
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
from agentgym_envs.webarena.sites.shopping.seed import EMMA
from agentgym_envs.webarena.sites.shopping.views import ORIGIN

if TYPE_CHECKING:
    from agentgym_envs.webarena.page import Page

_ORDER = r"(?P<day>[\d-]{10}), (?P<status>\w+), (?P<items>\d+) items?, (?P<total>\$[\d.]+)"
_BOUGHT = r"(?P<day>[\d-]{10}), order (?P<number>\d+) \((?P<status>\w+)\): .* = (?P<amount>\$[\d.]+)"
_LISTED = r"\w+: (?P<price>\$[\d.]+), .*"
_REVIEW = r"(?P<nickname>.+), [\d-]{10}, (?P<stars>\d) of 5: (?P<title>.+)"
_CATEGORIES = "SELECT * FROM shop_category WHERE parent_id IS NOT NULL ORDER BY id"
_SORT_LINKS = {"price from low to high": "price_asc", "price from high to low": "price_desc", "rating": "rating"}


def periods() -> list[tuple[str, str, str]]:
    """``(words, first day, last day)`` of the months, quarters and years of the content."""
    found = []
    for year in (2022, 2023):
        months = 12 if year == 2022 else 5
        found += [
            (f"{month_name[m]} {year}", f"{year}-{m:02d}-01", f"{year}-{m:02d}-{monthrange(year, m)[1]}") for m in range(1, months + 1)
        ]
        for quarter in range(1, months // 3 + 1):
            last = 3 * quarter
            words = f"the {('first', 'second', 'third', 'fourth')[quarter - 1]} quarter of {year}"
            found.append((words, f"{year}-{last - 2:02d}-01", f"{year}-{last:02d}-{monthrange(year, last)[1]}"))
    return [*found, ("2022", "2022-01-01", "2022-12-31")]


def open_product(page: Page, name: str) -> Walk:
    """Search for a product and open its page."""
    page = yield from fill(page, {"Search products": name})
    return (yield from click(page, "link", name))


def open_category(page: Page, name: str) -> Walk:
    """Open a category from the start page."""
    return (yield from click(page, "link", name))


def open_order(page: Page, number: str) -> Walk:
    """Find an order in the order history and open it."""
    page = yield from click(page, "link", "My orders")
    while not page.has("link", f"Order {number}"):
        page = yield from click(page, "link", "Next page")
    return (yield from click(page, "link", f"Order {number}"))


def _orders_between(page: Page, first: str, last: str) -> Walk:
    page = yield from click(page, "link", "My orders")
    return (yield from between(page, first, last))


# ---- orders ----


def _statuses(connection: sqlite3.Connection) -> list[Instance]:
    rows = connection.execute("SELECT number, status FROM shop_order WHERE customer_id = ? ORDER BY id", (EMMA,)).fetchall()
    return [Instance({"number": row["number"]}, exactly(row["status"])) for row in some("status", rows)]


def _tell_status(page: Page, number: str) -> Script:
    page = yield from open_order(page, number)
    yield page.stop(page.value("Status"))


def _dated_totals(connection: sqlite3.Connection) -> list[Instance]:
    rows = connection.execute(
        "SELECT substr(created, 1, 10) AS day, total FROM shop_order WHERE customer_id = ? ORDER BY id", (EMMA,)
    ).fetchall()
    return [Instance({"day": row["day"]}, includes(plain(row["total"]))) for row in some("total", rows)]


def _tell_total(page: Page, day: str) -> Script:
    page = yield from _orders_between(page, day, day)
    ((_, order),) = entries(page, _ORDER)
    yield page.stop(order["total"])


def _spending(connection: sqlite3.Connection) -> list[Instance]:
    sql = """SELECT SUM(total), COUNT(*) FROM shop_order
             WHERE customer_id = ? AND status != 'Canceled' AND substr(created, 1, 10) BETWEEN ? AND ?"""
    found = []
    for words, first, last in periods():
        spent, orders = connection.execute(sql, (EMMA, first, last)).fetchone()
        if orders:
            found.append(Instance({"period": words, "first": first, "last": last}, includes(plain(spent))))
    return found


def _tell_spending(page: Page, period: str, first: str, last: str) -> Script:
    page = yield from _orders_between(page, first, last)
    pages = yield from all_pages(page)
    orders = [order for page in pages for _, order in entries(page, _ORDER)]
    yield page.stop("$" + plain(sum(cents(order["total"]) for order in orders if order["status"] != "Canceled")))


def _category_spending(connection: sqlite3.Connection) -> list[Instance]:
    sql = """SELECT SUM(l.price * l.quantity) FROM shop_order_line l JOIN shop_order o ON o.id = l.order_id
             JOIN shop_product p ON p.id = l.product_id JOIN shop_category c ON c.id = p.category_id
             JOIN shop_category t ON t.id = c.parent_id
             WHERE o.customer_id = ? AND o.status != 'Canceled' AND t.name = ? AND substr(o.created, 1, 4) = ?"""
    found = []
    for category in CATALOG:
        for year in ("2022", "2023"):
            spent = connection.execute(sql, (EMMA, category, year)).fetchone()[0]
            if spent:
                found.append(Instance({"category": category, "year": year}, includes(plain(spent))))
    return found


def _tell_category_spending(page: Page, category: str, year: str) -> Script:
    page = yield from click(page, "link", "My account")
    page = yield from click(page, "link", "Purchased products")
    page = yield from choose(page, "Category", category)
    page = yield from between(page, f"{year}-01-01", f"{year}-12-31")
    pages = yield from all_pages(page)
    lines = [line for page in pages for _, line in entries(page, _BOUGHT)]
    yield page.stop("$" + plain(sum(cents(line["amount"]) for line in lines if line["status"] != "Canceled")))


def _purchase_days(connection: sqlite3.Connection) -> list[Instance]:
    sql = """SELECT l.name, substr(MIN(o.created), 1, 10) AS day FROM shop_order_line l JOIN shop_order o ON o.id = l.order_id
             WHERE o.customer_id = ? GROUP BY l.product_id HAVING COUNT(*) = 1 ORDER BY l.name"""
    rows = connection.execute(sql, (EMMA,)).fetchall()
    return [Instance({"product": row["name"]}, includes(row["day"])) for row in some("bought", rows)]


def _tell_purchase_day(page: Page, product: str) -> Script:
    page = yield from click(page, "link", "My account")
    page = yield from click(page, "link", "Purchased products")
    page = yield from fill(page, {"Product name": product})
    yield page.stop(next(line["day"] for node, line in entries(page, _BOUGHT) if node.name == product))


# ---- prices ----


def _listed_products(connection: sqlite3.Connection, category: int, order: str) -> Sequence[sqlite3.Row]:
    return connection.execute(f"SELECT * FROM shop_product WHERE category_id = ? AND enabled ORDER BY {order}", (category,)).fetchall()


def _extreme_prices(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for category in connection.execute(_CATEGORIES).fetchall():
        for extreme, order in (("least expensive", "price"), ("most expensive", "price DESC")):
            for row in extremes(_listed_products(connection, category["id"], order), "price"):
                found.append(Instance({"extreme": extreme, "category": category["name"]}, includes(row["name"])))
    return some("extreme", found)


def _tell_extreme(page: Page, extreme: str, category: str) -> Script:
    page = yield from open_category(page, category)
    page = yield from click(page, "link", "Price: low to high" if extreme == "least expensive" else "Price: high to low")
    yield page.stop(entries(page, _LISTED)[0][0].name)


def _price_ranges(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for category in connection.execute(_CATEGORIES).fetchall():
        rows = _listed_products(connection, category["id"], "price")
        found.append(Instance({"category": category["name"]}, includes(plain(rows[0]["price"]), plain(rows[-1]["price"]))))
    return some("range", found)


def _tell_range(page: Page, category: str) -> Script:
    page = yield from open_category(page, category)
    prices = []
    for order in ("Price: low to high", "Price: high to low"):
        page = yield from click(page, "link", order)
        prices.append(entries(page, _LISTED)[0][1]["price"])
    yield page.stop(" to ".join(prices))


def _price_counts(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for category in connection.execute(_CATEGORIES).fetchall():
        rows = _listed_products(connection, category["id"], "price")
        low, high = rows[2]["price"] // 100, rows[-3]["price"] // 100 + 1
        count = sum(low * 100 <= row["price"] <= high * 100 for row in rows)
        found.append(Instance({"category": category["name"], "low": str(low), "high": str(high)}, exactly(count)))
    return some("count", found)


def _tell_price_count(page: Page, category: str, low: str, high: str) -> Script:
    page = yield from open_category(page, category)
    page = yield from fill(page, {"Min price": low, "Max price": high})
    yield page.stop(str(total(page)))


# ---- reviews ----


def _mentions(connection: sqlite3.Connection) -> list[Instance]:
    sql = """SELECT p.name, GROUP_CONCAT(r.nickname, '|') AS people FROM shop_review r JOIN shop_product p ON p.id = r.product_id
             WHERE p.enabled AND r.status = 'Approved' AND instr(lower(r.title || ' ' || r.body), ?)
             GROUP BY p.id HAVING COUNT(*) BETWEEN 2 AND 4 ORDER BY p.id"""
    found = []
    for topic in ASPECTS:
        for row in connection.execute(sql, (topic,)).fetchall():
            found.append(Instance({"product": row["name"], "topic": topic}, includes(*sorted(row["people"].split("|")))))
    return some("mention", found)


def _open_reviews(page: Page, product: str) -> Walk:
    page = yield from open_product(page, product)
    return (yield from click(page, "link", "Read reviews"))


def _tell_mentions(page: Page, product: str, topic: str) -> Script:
    page = yield from _open_reviews(page, product)
    page = yield from fill(page, {"Reviews that mention": topic})
    pages = yield from all_pages(page)
    yield page.stop(", ".join(review["nickname"] for page in pages for _, review in entries(page, _REVIEW)))


def _criticism(connection: sqlite3.Connection) -> list[Instance]:
    sql = """SELECT p.name, GROUP_CONCAT(r.title, '|') AS titles FROM shop_review r JOIN shop_product p ON p.id = r.product_id
             WHERE p.enabled AND r.status = 'Approved' AND r.rating <= 2 GROUP BY p.id HAVING COUNT(*) BETWEEN 2 AND 5 ORDER BY p.id"""
    rows = connection.execute(sql).fetchall()
    return [Instance({"product": row["name"]}, includes(*sorted(set(row["titles"].split("|"))))) for row in some("criticism", rows)]


def _tell_criticism(page: Page, product: str) -> Script:
    page = yield from _open_reviews(page, product)
    pages = yield from all_pages(page)
    reviews = [review for page in pages for _, review in entries(page, _REVIEW)]
    yield page.stop("; ".join(review["title"] for review in reviews if int(review["stars"]) <= 2))


# ---- pages to show ----


def _sorted_categories(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for row in connection.execute("SELECT * FROM shop_category ORDER BY id").fetchall():
        for words, sort in _SORT_LINKS.items():
            found.append(Instance({"category": row["name"], "order": words}, shows(f"{ORIGIN}/category/{row['slug']}?sort={sort}")))
    return some("sorted", found)


def _show_sorted(page: Page, category: str, order: str) -> Script:
    page = yield from open_category(page, category)
    names = dict(zip(_SORT_LINKS, ("Price: low to high", "Price: high to low", "Rating"), strict=True))
    page = yield from click(page, "link", names[order])
    yield page.stop()


def _latest(connection: sqlite3.Connection) -> list[Instance]:
    sql = """SELECT p.id, p.name, MAX(o.created), o.number FROM shop_order_line l JOIN shop_order o ON o.id = l.order_id
             JOIN shop_product p ON p.id = l.product_id WHERE o.customer_id = ? GROUP BY p.id ORDER BY p.id"""
    rows = connection.execute(sql, (EMMA,)).fetchall()
    return [Instance({"product": row["name"]}, shows(f"{ORIGIN}/orders/{row['number']}")) for row in some("latest", rows)]


def _show_latest(page: Page, product: str) -> Script:
    page = yield from click(page, "link", "My orders")
    page = yield from click(page, "link", "Purchased products")
    page = yield from fill(page, {"Product name": product})
    number = next(line["number"] for node, line in entries(page, _BOUGHT) if node.name == product)
    page = yield from open_order(page, number)
    yield page.stop()


# ---- what cannot be done ----


def _brand_phones(connection: sqlite3.Connection) -> list[Instance]:
    brands = [row[0] for row in connection.execute("SELECT DISTINCT brand FROM shop_product ORDER BY brand")]
    return [Instance({"brand": brand}, UNACHIEVABLE) for brand in some("phone", brands, 6)]


def _no_answer(page: Page, brand: str) -> Script:
    page = yield from fill(page, {"Search products": brand})
    page = yield page.click(entries(page, _LISTED)[0][0].id)
    yield page.stop("N/A")


def _template(
    name: str, intent: str, instances: Callable[[sqlite3.Connection], Sequence[Instance]], solve: Callable[..., Script]
) -> TaskTemplate:
    return TaskTemplate(f"shopping.{name}", "shopping", intent, False, instances, solve)


TEMPLATES = (
    _template("order-status", "What is the status of my order {number}? Answer with the status only.", _statuses, _tell_status),
    _template(
        "order-total", "What was the total of the order that I placed on {day}, shipping and tax included?", _dated_totals, _tell_total
    ),
    _template(
        "spending",
        "How much did I spend in {period}? Add up the totals of my orders, leaving out canceled ones.",
        _spending,
        _tell_spending,
    ),
    _template(
        "category-spending",
        "How much did I pay for {category} products in {year}, before shipping and tax, without canceled orders?",
        _category_spending,
        _tell_category_spending,
    ),
    _template("purchase-day", "On which day did I order the {product}? Answer as YYYY-MM-DD.", _purchase_days, _tell_purchase_day),
    _template("extreme-price", "Which is the {extreme} product in the category {category}?", _extreme_prices, _tell_extreme),
    _template("price-range", "What are the lowest and the highest price in the category {category}?", _price_ranges, _tell_range),
    _template(
        "price-count",
        "How many products of the category {category} cost at least ${low} and at most ${high}?" + NUMBER_ONLY,
        _price_counts,
        _tell_price_count,
    ),
    _template(
        "review-mentions", "Who wrote reviews of the {product} that mention the word '{topic}'? List the names.", _mentions, _tell_mentions
    ),
    _template(
        "review-criticism", "What are the titles of all reviews of the {product} that give it 1 or 2 stars?", _criticism, _tell_criticism
    ),
    _template("show-sorted", "Show me the products of the category {category} sorted by {order}.", _sorted_categories, _show_sorted),
    _template("show-latest-order", "Open my most recent order that contains the {product}.", _latest, _show_latest),
    _template("brand-phone", "What is the phone number of the repair service of {brand}?", _brand_phones, _no_answer),
)
