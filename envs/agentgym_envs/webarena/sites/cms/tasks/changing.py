"""Families that change something: products, reviews, orders, customers, content pages."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from agentgym_envs.webarena.sites.base import Instance, Script, TaskTemplate
from agentgym_envs.webarena.sites.cms.tasks.reading import open_customer, open_order
from agentgym_envs.webarena.sites.shopping.catalog import CARRIERS, GROUPS, ORDER_COMMENTS, PAGES
from agentgym_envs.webarena.sites.shopping.scripts import Walk, choose, click, entries, fill, holds, plain, some, unchanged

if TYPE_CHECKING:
    from agentgym_envs.webarena.page import Page

Check = tuple[str, Sequence[Sequence[Any]]]
_PRODUCTS = "SELECT * FROM shop_product ORDER BY id"
_REVIEWS = """SELECT r.*, p.name AS product FROM shop_review r JOIN shop_product p ON p.id = r.product_id
    WHERE {where} GROUP BY r.product_id, r.nickname HAVING COUNT(*) = 1 ORDER BY r.id"""
_DESCRIPTIONS = (
    "Now with a better grip and a longer guarantee.",
    "Last pieces of this series, no returns.",
    "New edition, made of recycled material.",
    "Back in our range after two years.",
)


# ---- products ----


def _product_checks(connection: sqlite3.Connection, row: sqlite3.Row, **changes: object) -> tuple[Check, Check]:
    """The product has the new values and keeps the others; sums over all other products stay."""
    columns = ("name", "description", "price", "stock", "enabled")
    query = f"SELECT {', '.join(columns)} FROM shop_product WHERE id = {row['id']}"
    sums = "COUNT(DISTINCT name), COUNT(DISTINCT description), SUM(price), SUM(stock), SUM(enabled)"
    others = f"SELECT {sums} FROM shop_product WHERE id != {row['id']}"
    return (query, [[changes.get(column, row[column]) for column in columns]]), unchanged(connection, others)


def _open_product(page: Page, name: str) -> Walk:
    page = yield from click(page, "link", "Products")
    page = yield from fill(page, {"Name or SKU": name})
    return (yield from click(page, "link", name))


def _prices(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for place, row in enumerate(some("price", connection.execute(_PRODUCTS).fetchall())):
        off = (place % 4 + 1) * 50
        checks = _product_checks(connection, row, price=row["price"] - off)
        found.append(Instance({"product": row["name"], "off": plain(off)}, holds(*checks)))
    return found


def _lower(page: Page, product: str, off: str) -> Script:
    page = yield from _open_product(page, product)
    price = float(page.node(page.find("textbox", "Price")).text) - float(off)
    page = yield from fill(page, {"Price": f"{price:.2f}"})
    yield page.stop()


def _deliveries(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for place, row in enumerate(some("stock", connection.execute(_PRODUCTS).fetchall())):
        units = 5 * (place % 7 + 1)
        checks = _product_checks(connection, row, stock=row["stock"] + units)
        found.append(Instance({"product": row["name"], "units": str(units)}, holds(*checks)))
    return found


def _receive(page: Page, product: str, units: str) -> Script:
    page = yield from _open_product(page, product)
    stock = int(page.node(page.find("textbox", "Stock")).text) + int(units)
    page = yield from fill(page, {"Stock": str(stock)})
    yield page.stop()


def _withdrawals(connection: sqlite3.Connection) -> list[Instance]:
    rows = [row for row in connection.execute(_PRODUCTS).fetchall() if row["enabled"]]
    return [Instance({"product": row["name"]}, holds(*_product_checks(connection, row, enabled=0))) for row in some("disable", rows)]


def _disable(page: Page, product: str) -> Script:
    page = yield from _open_product(page, product)
    page = yield from click(page, "checkbox", "Enabled")
    page = yield from click(page, "button", "Save")
    yield page.stop()


def _new_texts(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for place, row in enumerate(some("text", connection.execute(_PRODUCTS).fetchall())):
        text = _DESCRIPTIONS[place % len(_DESCRIPTIONS)]
        found.append(Instance({"sku": row["sku"], "text": text}, holds(*_product_checks(connection, row, description=text))))
    return found


def _describe(page: Page, sku: str, text: str) -> Script:
    page = yield from click(page, "link", "Products")
    page = yield from fill(page, {"Name or SKU": sku})
    page = yield page.click(entries(page, sku + r": .*")[0][0].id)
    page = yield from fill(page, {"Description": text}, "Save")
    yield page.stop()


# ---- reviews ----


def _review_checks(connection: sqlite3.Connection, ids: Sequence[int], status: str) -> tuple[Check, Check]:
    """These reviews have the status (or are gone, if it is empty), no other review changes."""
    listed = ", ".join(map(str, ids))
    now = [[status]] * len(ids) if status else []
    others = f"SELECT status, COUNT(*) FROM shop_review WHERE id NOT IN ({listed}) GROUP BY status ORDER BY status"
    return (f"SELECT status FROM shop_review WHERE id IN ({listed})", now), unchanged(connection, others)


def _waiting(connection: sqlite3.Connection) -> list[Instance]:
    sql = """SELECT p.name, GROUP_CONCAT(r.id) AS ids FROM shop_review r JOIN shop_product p ON p.id = r.product_id
             WHERE r.status = 'Pending' GROUP BY p.id HAVING COUNT(*) <= 2 ORDER BY COUNT(*) DESC, p.id LIMIT 60"""
    found = []
    for row in some("approve", connection.execute(sql).fetchall()):
        checks = _review_checks(connection, [int(number) for number in row["ids"].split(",")], "Approved")
        found.append(Instance({"product": row["name"]}, holds(*checks)))
    return found


def _filter_reviews(page: Page, status: str = "", **texts: str) -> Walk:
    page = yield from click(page, "link", "Reviews")
    if status:
        page = yield from choose(page, "Status", status)
    return (yield from fill(page, {label.capitalize(): text for label, text in texts.items()}))


def _approve_all(page: Page, product: str) -> Script:
    page = yield from _filter_reviews(page, "Pending", product=product)
    names = [node.name for node, _ in entries(page, r".+ of 5, .+")]
    for place, name in enumerate(names):
        if place:  # back to the list, past the review as it was before the click
            page = yield page.go_back()
            page = yield page.go_back()
        page = yield from click(page, "link", name)
        page = yield from click(page, "button", "Approve")
    yield page.stop()


def _moderations(where: str, status: str, family: str) -> Callable[[sqlite3.Connection], list[Instance]]:
    def instances(connection: sqlite3.Connection) -> list[Instance]:
        rows = some(family, connection.execute(_REVIEWS.format(where=where)).fetchall())
        return [
            Instance({"nickname": row["nickname"], "product": row["product"]}, holds(*_review_checks(connection, [row["id"]], status)))
            for row in rows
        ]

    return instances


def _moderate(button: str) -> Callable[..., Script]:
    def solve(page: Page, nickname: str, product: str) -> Script:
        page = yield from _filter_reviews(page, product=product, nickname=nickname)
        ((node, _),) = entries(page, r".+ of 5, .+")
        page = yield page.click(node.id)
        page = yield from click(page, "button", button)
        yield page.stop()

    return solve


# ---- orders ----


def _order_checks(connection: sqlite3.Connection, number: str, status: str) -> tuple[Check, Check]:
    others = f"SELECT status, COUNT(*) FROM shop_order WHERE number != '{number}' GROUP BY status ORDER BY status"
    return (f"SELECT status FROM shop_order WHERE number = '{number}'", [[status]]), unchanged(connection, others)


def _orders(connection: sqlite3.Connection, family: str, *statuses: str) -> list[str]:
    rows = connection.execute("SELECT number, status FROM shop_order ORDER BY id").fetchall()
    return some(family, [row["number"] for row in rows if row["status"] in statuses])


def _cancellations(connection: sqlite3.Connection) -> list[Instance]:
    numbers = _orders(connection, "cancel", "Pending", "Processing")
    return [Instance({"number": number}, holds(*_order_checks(connection, number, "Canceled"))) for number in numbers]


def _cancel(page: Page, number: str) -> Script:
    page = yield from open_order(page, number)
    page = yield from click(page, "button", "Cancel order")
    yield page.stop()


def _advances(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for place, number in enumerate(_orders(connection, "status", "Pending")):
        status = ("Processing", "Complete")[place % 2]
        found.append(Instance({"number": number, "status": status}, holds(*_order_checks(connection, number, status))))
    return found


def _advance(page: Page, number: str, status: str) -> Script:
    page = yield from open_order(page, number)
    page = yield from choose(page, "Status", status)
    page = yield from click(page, "button", "Change status")
    yield page.stop()


def _remarks(connection: sqlite3.Connection) -> list[Instance]:
    sql = """SELECT o.id, c.first_name || ' ' || c.last_name AS name, MAX(o.created) FROM shop_order o
             JOIN shop_customer c ON c.id = o.customer_id GROUP BY c.id ORDER BY c.id"""
    found = []
    for place, row in enumerate(some("comment", connection.execute(sql).fetchall())):
        text = ORDER_COMMENTS[place % len(ORDER_COMMENTS)]
        newest = connection.execute("SELECT COALESCE(MAX(id), 0), COUNT(*) FROM shop_order_comment").fetchone()
        checks = ((f"SELECT order_id, text FROM shop_order_comment WHERE id > {newest[0]}", [[row["id"], text]]),)
        found.append(Instance({"customer": row["name"], "text": text}, holds(*checks)))
    return found


def _comment(page: Page, customer: str, text: str) -> Script:
    page = yield from click(page, "link", "Orders")
    page = yield from fill(page, {"Number or customer": customer})
    page = yield page.click(entries(page, rf".+, {customer}, .+")[0][0].id)
    page = yield from fill(page, {"Comment": text})
    yield page.stop()


def _shipments(connection: sqlite3.Connection) -> list[Instance]:
    count = connection.execute("SELECT COUNT(*) FROM shop_shipment").fetchone()[0]
    found = []
    for place, number in enumerate(_orders(connection, "ship", "Processing")):
        carrier, tracking = CARRIERS[place % len(CARRIERS)], f"{7300458811 + 977 * place}"
        query = f"SELECT carrier, tracking FROM shop_shipment WHERE order_id = (SELECT id FROM shop_order WHERE number = '{number}')"
        checks = ((query, [[carrier, tracking]]), ("SELECT COUNT(*) FROM shop_shipment", [[count + 1]]))
        found.append(Instance({"number": number, "carrier": carrier, "tracking": tracking}, holds(*checks)))
    return found


def _ship(page: Page, number: str, carrier: str, tracking: str) -> Script:
    page = yield from open_order(page, number)
    page = yield from choose(page, "Carrier", carrier)
    page = yield from fill(page, {"Tracking number": tracking})
    yield page.stop()


# ---- customers and pages ----


def _promotions(connection: sqlite3.Connection) -> list[Instance]:
    rows = connection.execute("SELECT id, first_name || ' ' || last_name AS name, customer_group FROM shop_customer ORDER BY id").fetchall()
    found = []
    for place, row in enumerate(some("group", rows)):
        group = [group for group in GROUPS if group != row["customer_group"]][place % 2]
        others = f"SELECT customer_group, COUNT(*) FROM shop_customer WHERE id != {row['id']} GROUP BY 1 ORDER BY 1"
        checks = ((f"SELECT customer_group FROM shop_customer WHERE id = {row['id']}", [[group]]), unchanged(connection, others))
        found.append(Instance({"customer": row["name"], "group": group}, holds(*checks)))
    return found


def _promote(page: Page, customer: str, group: str) -> Script:
    page = yield from open_customer(page, customer)
    page = yield from choose(page, "Group", group)
    page = yield from click(page, "button", "Save")
    yield page.stop()


def _titles(connection: sqlite3.Connection) -> list[Instance]:
    found = []
    for old in PAGES:
        for new in (f"{old} (new)", f"{old} 2023"):
            titles = [[new if row[0] == old else row[0]] for row in connection.execute("SELECT title FROM shop_page ORDER BY id")]
            found.append(Instance({"old": old, "new": new}, holds(("SELECT title FROM shop_page ORDER BY id", titles))))
    return found


def _rename(page: Page, old: str, new: str) -> Script:
    page = yield from click(page, "link", "Pages")
    page = yield from click(page, "link", old)
    page = yield from fill(page, {"Title": new})
    yield page.stop()


def _template(
    name: str, intent: str, instances: Callable[[sqlite3.Connection], Sequence[Instance]], solve: Callable[..., Script]
) -> TaskTemplate:
    return TaskTemplate(f"cms.{name}", "cms", intent, True, instances, solve)


TEMPLATES = (
    _template("lower-price", "Lower the price of the {product} by ${off}.", _prices, _lower),
    _template("add-stock", "{units} units of the {product} have arrived. Add them to its stock.", _deliveries, _receive),
    _template("disable-product", "Disable the product {product}.", _withdrawals, _disable),
    _template("describe", "Replace the description of the product with the SKU {sku} by '{text}'", _new_texts, _describe),
    _template("approve-all", "Approve every pending review of the {product}.", _waiting, _approve_all),
    _template(
        "reject-review",
        "Reject the review of the {product} that {nickname} wrote.",
        _moderations("r.status = 'Pending'", "Rejected", "reject"),
        _moderate("Reject"),
    ),
    _template(
        "delete-review",
        "Delete the review of the {product} that {nickname} wrote.",
        _moderations("r.rating <= 2", "", "delete"),
        _moderate("Delete"),
    ),
    _template("cancel-order", "Cancel order {number}.", _cancellations, _cancel),
    _template("order-status", "Change the status of order {number} to {status}.", _advances, _advance),
    _template("comment", "Add the comment '{text}' to the most recent order of {customer}.", _remarks, _comment),
    _template("ship", "Order {number} was sent with {carrier}, tracking number {tracking}. Enter the shipment.", _shipments, _ship),
    _template("customer-group", "Move the customer {customer} to the group {group}.", _promotions, _promote),
    _template("page-title", "Change the title of the page '{old}' to '{new}'", _titles, _rename),
)
