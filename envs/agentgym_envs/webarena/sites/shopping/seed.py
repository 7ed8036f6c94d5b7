"""Content of the shop: catalogue, customers, orders, reviews. Everything follows from the generator that is passed in."""

from __future__ import annotations

import itertools
import random
import re
import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from agentgym_envs.webarena.sites.base import NOW
from agentgym_envs.webarena.sites.shopping import catalog

#: The logged-in customer is the first one.
EMMA = 1
EMMA_USER = "emma.lopez"
FIRST_DAY = datetime(2022, 1, 3)
_DAYS = (NOW.replace(hour=0) - FIRST_DAY).days  # orders are placed on days 0 .. _DAYS - 1, that is before the day of NOW
_CUSTOMERS = 90
_ORDERS = 560
_EMMA_ORDERS = 42
_FREE_SHIPPING = 10_000
SHIPPING = 500


def seed(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Fill the tables of ``schema.sql``."""
    _catalogue(connection, rng)
    _customers(connection, rng)
    _orders(connection, rng)
    _reviews(connection, rng)
    _belongings(connection, rng)
    _office(connection, rng)


def slugify(name: str) -> str:
    """Lower case letters and digits of ``name``, joined by hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def stamp(moment: datetime) -> str:
    """A time as the tables hold it."""
    return moment.strftime("%Y-%m-%d %H:%M")


def charges(subtotal: int) -> tuple[int, int, int]:
    """``(shipping, tax, total)`` of an order in cents: flat shipping, free from $100; 8 % tax on the goods."""
    shipping = 0 if subtotal >= _FREE_SHIPPING else SHIPPING
    tax = (subtotal * 8 + 50) // 100
    return shipping, tax, subtotal + shipping + tax


def insert(connection: sqlite3.Connection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert full rows; ``table`` is a literal of the seeding code."""
    marks = ", ".join("?" * len(rows[0]))
    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


def _moment(rng: random.Random, day: int) -> datetime:
    return FIRST_DAY + timedelta(days=day, hours=rng.randrange(7, 22), minutes=rng.randrange(60))


def _catalogue(connection: sqlite3.Connection, rng: random.Random) -> None:
    categories: list[tuple[Any, ...]] = []
    products: list[tuple[Any, ...]] = []
    attributes: list[tuple[Any, ...]] = []
    for top, (brands, adjectives, children) in catalog.CATALOG.items():
        top_id = len(categories) + 1
        categories.append((top_id, None, top, slugify(top)))
        for child, nouns in children.items():
            child_id = len(categories) + 1
            categories.append((child_id, top_id, child, slugify(child)))
            low, high = catalog.PRICES[top]
            prices = rng.sample(range(low * 100 + 99, high * 100, 50), catalog.PRODUCTS_PER_SUBCATEGORY)
            names = rng.sample([(b, a, n) for b in brands for a in adjectives for n in nouns], catalog.PRODUCTS_PER_SUBCATEGORY)
            for (brand, adjective, noun), price in zip(names, prices, strict=True):
                identity = len(products) + 1
                name = f"{brand} {adjective} {noun}"
                material = rng.choice(catalog.MATERIALS[top])
                text = f"{adjective} {noun.lower()} for {rng.choice(catalog.USES)}. {rng.choice(catalog.PROMISES)}"
                stock = 0 if rng.random() < 0.15 else rng.randrange(1, 10) if rng.random() < 0.15 else rng.randrange(10, 200)
                created = stamp(FIRST_DAY - timedelta(days=rng.randrange(20, 400)))
                sku = f"{brand[:2].upper()}{identity:04d}"
                row = (identity, sku, slugify(name), name, child_id, brand, text, price, stock, int(rng.random() > 0.06), created)
                products.append(row)
                attributes += [(identity, "Color", rng.choice(catalog.COLORS)), (identity, "Material", material)]
                attributes.append((identity, "Warranty", rng.choice(catalog.WARRANTIES)))
    insert(connection, "shop_category", categories)
    insert(connection, "shop_product", products)
    insert(connection, "shop_attribute", attributes)


def _customers(connection: sqlite3.Connection, rng: random.Random) -> None:
    pairs = [(first, last) for first in catalog.FIRST_NAMES.split() for last in catalog.LAST_NAMES.split()]
    customers: list[tuple[Any, ...]] = []
    addresses: list[tuple[Any, ...]] = []
    phones = rng.sample(range(1000, 9999), _CUSTOMERS)
    for identity, (first, last) in enumerate([("Emma", "Lopez"), *rng.sample(pairs, _CUSTOMERS - 1)], start=1):
        user = f"{first}.{last}".lower()
        joined = stamp(FIRST_DAY - timedelta(days=rng.randrange(1, 700)))
        group = "General" if identity == EMMA else rng.choices(catalog.GROUPS, (7, 2, 1))[0]
        customers.append((identity, user, first, last, f"{user}@mail.test", f"555-{phones[identity - 1]}", group, joined))
        for label in ("Home", "Work") if identity == EMMA or rng.random() < 0.2 else ("Home",):
            city, state, prefix = rng.choice(catalog.CITIES)
            street = f"{rng.randrange(1, 990)} {rng.choice(catalog.STREETS)}"
            addresses.append((len(addresses) + 1, identity, label, street, city, state, f"{prefix}{rng.randrange(10, 99)}"))
    insert(connection, "shop_customer", customers)
    insert(connection, "shop_address", addresses)


def _status(rng: random.Random, age: int) -> str:
    """Orders of the last weeks are still open, older ones are closed one way or the other."""
    if age < 50:
        return rng.choices(("Pending", "Processing", "Complete", "Canceled"), (6, 4, 1, 1))[0]
    if age < 110:
        return rng.choices(("Pending", "Processing", "Complete", "Canceled", "Refunded"), (1, 3, 6, 2, 1))[0]
    return rng.choices(("Complete", "Canceled", "Refunded"), (14, 3, 2))[0]


def _orders(connection: sqlite3.Connection, rng: random.Random) -> None:
    products = connection.execute("SELECT id, name, price FROM shop_product ORDER BY id").fetchall()
    homes = dict(
        connection.execute(
            "SELECT customer_id, street || ', ' || city || ', ' || state || ' ' || zip FROM shop_address WHERE label = 'Home'"
        )
    )
    favor = [1 / (1 + rank) ** 0.45 for rank in range(len(products))]  # some products sell more than others
    rng.shuffle(favor)
    loyal = [1 / (3 + rank) for rank in range(_CUSTOMERS - 1)]
    plan = [(_moment(rng, day), EMMA) for day in rng.sample(range(_DAYS), _EMMA_ORDERS)]  # never two of hers on one day
    others = rng.choices(range(2, _CUSTOMERS + 1), loyal, k=_ORDERS - _EMMA_ORDERS)
    plan += [(_moment(rng, rng.randrange(_DAYS)), customer) for customer in others]
    orders: list[tuple[Any, ...]] = []
    lines: list[tuple[Any, ...]] = []
    papers: dict[str, list[tuple[Any, ...]]] = {"shop_invoice": [], "shop_refund": [], "shop_shipment": [], "shop_order_comment": []}
    for identity, (moment, customer) in enumerate(sorted(plan), start=1):
        chosen = dict.fromkeys(rng.choices(range(len(products)), favor, k=rng.choice((1, 1, 2, 2, 3, 4))))
        subtotal = 0
        for index in chosen:
            product, name, price = products[index]
            quantity = rng.choices((1, 2, 3, 4), (8, 3, 1, 1))[0]
            subtotal += price * quantity
            lines.append((identity, product, name, price, quantity))
        shipping, tax, total = charges(subtotal)
        status = _status(rng, (NOW - moment).days)
        number = f"{100000 + identity}"
        orders.append((identity, number, customer, stamp(moment), status, subtotal, shipping, tax, total, homes[customer]))
        _papers(rng, papers, identity, moment, status, total)
    insert(connection, "shop_order", orders)
    insert(connection, "shop_order_line", lines)
    for table, rows in papers.items():
        insert(connection, table, rows)


def _papers(rng: random.Random, papers: dict[str, list[tuple[Any, ...]]], order: int, moment: datetime, status: str, total: int) -> None:
    """What goes with an order: invoice once paid, shipment once sent, refund, a remark on some."""

    def later(days: int) -> str:
        return stamp(min(moment + timedelta(days=days, hours=1), NOW - timedelta(minutes=1)))

    if status in ("Processing", "Complete", "Refunded"):
        invoices = papers["shop_invoice"]
        invoices.append((f"INV{20001 + len(invoices)}", order, later(0), total))
    if status in ("Complete", "Refunded"):
        papers["shop_shipment"].append((order, later(2), rng.choice(catalog.CARRIERS), f"{rng.randrange(10**9, 10**10)}"))
    if status == "Refunded":
        papers["shop_refund"].append((order, later(rng.randrange(5, 15)), total))
    if rng.random() < 0.1:
        comments = papers["shop_order_comment"]
        comments.append((len(comments) + 1, order, later(1), rng.choice(catalog.ORDER_COMMENTS)))


def _reviews(connection: sqlite3.Connection, rng: random.Random) -> None:
    products = [row[0] for row in connection.execute("SELECT id FROM shop_product ORDER BY id")]
    people = connection.execute(
        "SELECT id, first_name || ' ' || last_name FROM shop_customer WHERE id != ? ORDER BY id", (EMMA,)
    ).fetchall()
    rows: list[tuple[Any, ...]] = []
    for product in products:
        count = rng.choice((1, 2, 3, 3, 4, 5, 6, 8, 12, 14))
        bias = rng.choice(((1, 1, 2, 5, 6), (3, 3, 3, 3, 2), (1, 2, 4, 4, 2)))
        texts: set[str] = set()  # no two reviews of a product read the same
        for customer, nickname in rng.sample([tuple(person) for person in people], count):
            rating = rng.choices((1, 2, 3, 4, 5), bias)[0]
            day = rng.randrange(_DAYS)
            status = rng.choices(("Approved", "Pending", "Rejected"), (6, 4, 1) if day > _DAYS - 100 else (18, 1, 1))[0]
            title = rng.choice(catalog.TITLES[rating])
            text = next(text for text in (_review_text(rng, rating) for _ in itertools.count()) if text not in texts)
            texts.add(text)
            rows.append((product, customer, nickname, rating, title, text, status, stamp(_moment(rng, day))))
    rows.sort(key=lambda row: row[-1])
    insert(connection, "shop_review", [(identity, *row) for identity, row in enumerate(rows, start=1)])


def _review_text(rng: random.Random, rating: int) -> str:
    parts = [rng.choice(catalog.OPENERS[rating])]
    for aspect in rng.sample(sorted(catalog.ASPECTS), 2):
        praise = rng.random() < (rating - 1) / 4
        parts.append(catalog.ASPECTS[aspect][0 if praise else 1])
    return " ".join(parts)


def _belongings(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Cart, wish list and newsletters of the logged-in customer, newsletters of the others."""
    sold = [row[0] for row in connection.execute("SELECT id FROM shop_product WHERE enabled AND stock >= 20 ORDER BY id")]
    chosen = rng.sample(sold, 10)
    insert(connection, "shop_cart_line", [(EMMA, product, rng.randrange(1, 4)) for product in chosen[:4]])
    wishes = [(EMMA, product, stamp(NOW - timedelta(days=rng.randrange(2, 90)))) for product in chosen[4:]]
    insert(connection, "shop_wish_line", wishes)
    subscriptions = [(EMMA, topic) for topic in catalog.SUBSCRIBED]
    for customer in range(2, _CUSTOMERS + 1):
        subscriptions += [(customer, topic) for topic in rng.sample(catalog.TOPICS, rng.randrange(3))]
    insert(connection, "shop_subscription", subscriptions)


def _office(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Search terms and content pages."""
    nouns = [noun.lower() for _, _, children in catalog.CATALOG.values() for words in children.values() for noun in words]
    terms = rng.sample(nouns, 36)
    count = "SELECT COUNT(*) FROM shop_product WHERE enabled AND instr(lower(name), ?)"
    results = [connection.execute(count, (term,)).fetchone()[0] for term in terms]
    insert(connection, "shop_search_term", list(zip(terms, rng.sample(range(2, 400), len(terms)), results, strict=True)))
    pages = []
    for number, (title, content) in enumerate(catalog.PAGES.items(), start=1):
        updated = stamp(NOW - timedelta(days=rng.randrange(10, 500)))
        pages.append((number, slugify(title), title, content, int(title != "Careers"), updated))
    insert(connection, "shop_page", pages)
