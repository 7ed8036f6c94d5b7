"""Families that change something: cart, orders, wish list, messages, reviews, account."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from agentgym_envs.webarena.sites.base import Instance, Script, TaskTemplate
from agentgym_envs.webarena.sites.shopping.catalog import CITIES, STREETS, TOPICS
from agentgym_envs.webarena.sites.shopping.scripts import Walk, choose, click, entries, fill, holds, some, unchanged
from agentgym_envs.webarena.sites.shopping.seed import EMMA, charges
from agentgym_envs.webarena.sites.shopping.tasks.reading import open_order, open_product

if TYPE_CHECKING:
    from agentgym_envs.webarena.page import Page

_CART = f"SELECT product_id, quantity FROM shop_cart_line WHERE customer_id = {EMMA} ORDER BY product_id"
_WISHES = f"SELECT product_id FROM shop_wish_line WHERE customer_id = {EMMA} ORDER BY product_id"
_MESSAGES = "SELECT order_number, subject, body FROM shop_message"
_PERSON = f"SELECT first_name, last_name, email, phone FROM shop_customer WHERE id = {EMMA}"
_ADDRESSES = f"SELECT label, street, city, state, zip FROM shop_address WHERE customer_id = {EMMA} ORDER BY id"
_TOPICS = f"SELECT topic FROM shop_subscription WHERE customer_id = {EMMA} ORDER BY topic"
_ORDERS = "SELECT COUNT(*) FROM shop_order"
_AVAILABLE = f"""SELECT * FROM shop_product WHERE enabled AND stock >= 20
    AND id NOT IN (SELECT product_id FROM shop_cart_line WHERE customer_id = {EMMA})
    AND id NOT IN (SELECT product_id FROM shop_wish_line WHERE customer_id = {EMMA}) ORDER BY id"""
_LINES = (
    "SELECT p.id, p.name, c.quantity FROM shop_cart_line c JOIN shop_product p ON p.id = c.product_id WHERE customer_id = ? ORDER BY p.id"
)
_CART_LINK = re.compile(r"Cart \(\d+\)")
_PROBLEMS = ("arrived broken", "never arrived", "came in the wrong color", "came without its box", "stopped working after a week")
_OPINIONS = (
    ("5", "Could not be happier", "It came early and works every day."),
    ("4", "Nearly as good as hoped", "It is sturdy, though a bit heavy."),
    ("3", "So so", "It works, but the old model was nicer."),
    ("2", "Rather flimsy", "One part bent on the first day."),
    ("1", "Please avoid", "It fell apart within an hour."),
)


def _pairs(connection: sqlite3.Connection, query: str) -> dict[int, int]:
    return dict(connection.execute(query).fetchall())


def _after(query: str, rows: dict[int, int]) -> tuple[str, list[list[Any]]]:
    return query, [[key, rows[key]] for key in sorted(rows)]


# ---- cart and orders ----


def _additions(connection: sqlite3.Connection) -> list[Instance]:
    cart, found = _pairs(connection, _CART), []
    for place, row in enumerate(some("add", connection.execute(_AVAILABLE).fetchall())):
        quantity = place % 3 + 1
        check = _after(_CART, {**cart, row["id"]: quantity})
        found.append(Instance({"quantity": str(quantity), "product": row["name"]}, holds(check)))
    return found


def _put(page: Page, quantity: str, product: str) -> Walk:
    page = yield from open_product(page, product)
    return (yield from fill(page, {"Quantity": quantity}, "Add to cart"))


def _add(page: Page, quantity: str, product: str) -> Script:
    page = yield from _put(page, quantity, product)
    yield page.stop()


def _quantities(connection: sqlite3.Connection) -> list[Instance]:
    cart, found = _pairs(connection, _CART), []
    for row in connection.execute(_LINES, (EMMA,)).fetchall():
        for quantity in (quantity for quantity in (2, 4, 5, 6, 7) if quantity != row["quantity"]):
            check = _after(_CART, {**cart, row["id"]: quantity})
            found.append(Instance({"product": row["name"], "quantity": str(quantity)}, holds(check)))
    return some("quantity", found)


def _cart_button(page: Page, product: str, button: str) -> str:
    """Click on the button of a line of the cart: the first one after the product's link."""
    start = page.nodes.index(page.node(page.find("link", product)))
    return page.click(next(node.id for node in page.nodes[start:] if node.matches("button", button)))


def _set_quantity(page: Page, product: str, quantity: str) -> Script:
    page = yield from click(page, "link", _CART_LINK)
    page = yield from fill(page, {f"Quantity of {product}": quantity})
    yield page.stop()


def _swaps(connection: sqlite3.Connection) -> list[Instance]:
    cart, found = _pairs(connection, _CART), []
    rows = connection.execute(_LINES, (EMMA,)).fetchall()
    for gone in rows:
        for other in rows:
            for quantity in (4, 5) if gone["id"] != other["id"] else ():
                left = {key: value for key, value in {**cart, other["id"]: quantity}.items() if key != gone["id"]}
                found.append(
                    Instance({"product": gone["name"], "other": other["name"], "quantity": str(quantity)}, holds(_after(_CART, left)))
                )
    return some("remove", found)


def _swap(page: Page, product: str, other: str, quantity: str) -> Script:
    page = yield from click(page, "link", _CART_LINK)
    page = yield _cart_button(page, product, "Remove")
    page = yield from fill(page, {f"Quantity of {other}": quantity})
    yield page.stop()


def _reorders(connection: sqlite3.Connection) -> list[Instance]:
    cart, found = _pairs(connection, _CART), []
    sql = """SELECT l.product_id, l.quantity, p.enabled, p.stock FROM shop_order_line l JOIN shop_product p ON p.id = l.product_id
             JOIN shop_order o ON o.id = l.order_id WHERE o.number = ?"""
    for order in connection.execute("SELECT number FROM shop_order WHERE customer_id = ? ORDER BY id", (EMMA,)).fetchall():
        lines = connection.execute(sql, (order["number"],)).fetchall()
        added = {line["product_id"]: cart.get(line["product_id"], 0) + line["quantity"] for line in lines}
        if all(line["enabled"] and line["stock"] >= added[line["product_id"]] for line in lines):
            found.append(Instance({"number": order["number"]}, holds(_after(_CART, {**cart, **added}))))
    return some("reorder", found)


def _reorder(page: Page, number: str) -> Script:
    page = yield from open_order(page, number)
    page = yield from click(page, "button", "Reorder")
    yield page.stop()


def _purchases(connection: sqlite3.Connection) -> list[Instance]:
    cart, found = _pairs(connection, _CART), []
    orders = connection.execute(_ORDERS).fetchone()[0]
    last = int(connection.execute("SELECT MAX(number) FROM shop_order").fetchone()[0])
    homes = dict(
        connection.execute(
            "SELECT label, street || ', ' || city || ', ' || state || ' ' || zip FROM shop_address WHERE customer_id = ?", (EMMA,)
        )
    )
    prices = dict(connection.execute("SELECT id, price FROM shop_product").fetchall())
    new = f"shop_order WHERE number = '{last + 1}'"
    for place, row in enumerate(some("buy", connection.execute(_AVAILABLE).fetchall())):
        label, quantity = ("home", "work")[place % 2], place % 2 + 1
        bought = {**cart, row["id"]: quantity}
        total = charges(sum(prices[product] * count for product, count in bought.items()))[2]
        lines = f"SELECT product_id, quantity FROM shop_order_line WHERE order_id = (SELECT id FROM {new}) ORDER BY product_id"
        checks: tuple[tuple[str, Sequence[Sequence[Any]]], ...] = (
            (f"SELECT customer_id, status, total, ship_to FROM {new}", [[EMMA, "Pending", total, homes[label.capitalize()]]]),
            _after(lines, bought),
            (_CART, []),
            (_ORDERS, [[orders + 1]]),
        )
        found.append(Instance({"quantity": str(quantity), "product": row["name"], "label": label}, holds(*checks)))
    return found


def _buy(page: Page, quantity: str, product: str, label: str) -> Script:
    page = yield from _put(page, quantity, product)
    page = yield from click(page, "link", "Go to checkout")
    address = next(node.name for node in page.find_all("option") if node.name.startswith(label.capitalize()))
    page = yield from choose(page, "Ship to", address)
    page = yield from click(page, "button", "Place order")
    yield page.stop()


# ---- wish list ----


def _wishes(connection: sqlite3.Connection) -> list[Instance]:
    now = [row[0] for row in connection.execute(_WISHES)]
    rows = some("wish", connection.execute(_AVAILABLE).fetchall())
    return [Instance({"product": row["name"]}, holds((_WISHES, [[key] for key in sorted([*now, row["id"]])]))) for row in rows]


def _wish(page: Page, product: str) -> Script:
    page = yield from open_product(page, product)
    page = yield from click(page, "button", "Add to wish list")
    yield page.stop()


def _cheap_wishes(connection: sqlite3.Connection) -> list[Instance]:
    now = [row[0] for row in connection.execute(_WISHES)]
    found = []
    for category in connection.execute("SELECT * FROM shop_category WHERE parent_id IS NOT NULL ORDER BY id").fetchall():
        rows = connection.execute(
            "SELECT * FROM shop_product WHERE category_id = ? AND enabled ORDER BY price", (category["id"],)
        ).fetchall()
        if rows[0]["price"] < rows[1]["price"] and rows[0]["id"] not in now:
            found.append(Instance({"category": category["name"]}, holds((_WISHES, [[key] for key in sorted([*now, rows[0]["id"]])]))))
    return some("cheap-wish", found)


def _wish_cheapest(page: Page, category: str) -> Script:
    page = yield from click(page, "link", category)
    page = yield from click(page, "link", "Price: low to high")
    page = yield page.click(entries(page, r"\w+: \$.*")[0][0].id)
    page = yield from click(page, "button", "Add to wish list")
    yield page.stop()


# ---- messages and reviews ----


def _messages(connection: sqlite3.Connection) -> list[Instance]:
    rows = connection.execute(
        "SELECT number FROM shop_order WHERE customer_id = ? AND status != 'Canceled' ORDER BY id", (EMMA,)
    ).fetchall()
    found = []
    for place, row in enumerate(some("message", rows)):
        subject = ("Refund", "Delivery", "Other")[place % 3]
        message = f"A product of this order {_PROBLEMS[place % len(_PROBLEMS)]}."
        expected = [[row["number"], subject, message]]
        found.append(Instance({"number": row["number"], "subject": subject, "message": message}, holds((_MESSAGES, expected))))
    return found


def _send(page: Page, number: str, subject: str, message: str) -> Script:
    page = yield from click(page, "link", "My account")
    page = yield from click(page, "link", "Contact us")
    page = yield from choose(page, "Subject", subject)
    page = yield from fill(page, {"Order number": number, "Message": message}, "Send")
    yield page.stop()


def _opinions(connection: sqlite3.Connection) -> list[Instance]:
    sql = """SELECT DISTINCT p.id, p.name FROM shop_order_line l JOIN shop_order o ON o.id = l.order_id
             JOIN shop_product p ON p.id = l.product_id WHERE o.customer_id = ? AND p.enabled ORDER BY p.id"""
    found = []
    for place, row in enumerate(some("review", connection.execute(sql, (EMMA,)).fetchall())):
        rating, title, text = _OPINIONS[place % len(_OPINIONS)]
        checks = (
            (
                f"SELECT product_id, rating, title, body, status FROM shop_review WHERE customer_id = {EMMA}",
                [[row["id"], int(rating), title, text, "Pending"]],
            ),
            unchanged(connection, f"SELECT COUNT(*) FROM shop_review WHERE customer_id != {EMMA}"),
        )
        found.append(Instance({"product": row["name"], "rating": rating, "title": title, "text": text}, holds(*checks)))
    return found


def _review(page: Page, product: str, rating: str, title: str, text: str) -> Script:
    page = yield from open_product(page, product)
    page = yield from click(page, "link", "Write a review")
    page = yield from choose(page, "Rating", rating)
    page = yield from fill(page, {"Summary": title, "Review": text}, "Submit review")
    yield page.stop()


# ---- account ----

_FIELDS = {"first name": "First name", "last name": "Last name", "email address": "Email", "phone number": "Phone"}


def _account_changes(connection: sqlite3.Connection) -> list[Instance]:
    values = {
        "first name": ("Emmeline", "Em", "Emily", "Emma Rose"),
        "last name": ("Lopez-Hart", "Hart", "Lopez Garcia", "Novak"),
        "email address": ("emma@post.test", "lopez.e@home.test", "e.lopez@work.test", "emma.lopez@new.test"),
        "phone number": ("555-0117", "555-0142", "555-0188", "555-0199"),
    }
    now = list(connection.execute(_PERSON).fetchone())
    others = unchanged(connection, f"SELECT COUNT(DISTINCT email), COUNT(DISTINCT phone) FROM shop_customer WHERE id != {EMMA}")
    found = []
    for place, (name, choices) in enumerate(values.items()):
        for value in choices:
            expected = [*now[:place], value, *now[place + 1 :]]
            found.append(Instance({"field": name, "value": value}, holds((_PERSON, [expected]), others)))
    return some("account", found)


def _change_account(page: Page, field: str, value: str) -> Script:
    page = yield from click(page, "link", "My account")
    page = yield from click(page, "link", "Edit account")
    page = yield from fill(page, {_FIELDS[field]: value})
    yield page.stop()


def _moves(connection: sqlite3.Connection) -> list[Instance]:
    now = [list(row) for row in connection.execute(_ADDRESSES)]
    rng, found = random.Random("move"), []
    for place in range(16):
        city, state, prefix = rng.choice(CITIES)
        street, zip_code = f"{rng.randrange(1, 990)} {rng.choice(STREETS)}", f"{prefix}{rng.randrange(10, 99)}"
        label = ("home", "work")[place % 2]
        expected = [[row[0], street, city, state, zip_code] if row[0].lower() == label else row for row in now]
        params = {"label": label, "street": street, "city": city, "state": state, "zip": zip_code}
        found.append(Instance(params, holds((_ADDRESSES, expected))))
    return found


def _move(page: Page, label: str, street: str, city: str, state: str, zip: str) -> Script:
    page = yield from click(page, "link", "My account")
    page = yield from click(page, "link", f"Edit {label} address")
    page = yield from fill(page, {"Street": street, "City": city, "State": state, "ZIP code": zip})
    yield page.stop()


def _newsletters(connection: sqlite3.Connection) -> list[Instance]:
    now = {row[0] for row in connection.execute(_TOPICS)}
    found = []
    for on in (topic for topic in TOPICS if topic not in now):
        for off in sorted(now):
            expected = [[topic] for topic in sorted(now - {off} | {on})]
            found.append(Instance({"on": on, "off": off}, holds((_TOPICS, expected))))
    return found


def _subscribe(page: Page, on: str, off: str) -> Script:
    page = yield from click(page, "link", "My account")
    page = yield from click(page, "link", "Newsletters")
    for topic in (on, off):
        page = yield from click(page, "checkbox", topic)
    page = yield from click(page, "button", "Save")
    yield page.stop()


def _template(
    name: str, intent: str, instances: Callable[[sqlite3.Connection], Sequence[Instance]], solve: Callable[..., Script]
) -> TaskTemplate:
    return TaskTemplate(f"shopping.{name}", "shopping", intent, True, instances, solve)


TEMPLATES = (
    _template("add-to-cart", "Add {quantity} of the {product} to my shopping cart.", _additions, _add),
    _template("cart-quantity", "Change the quantity of the {product} in my shopping cart to {quantity}.", _quantities, _set_quantity),
    _template(
        "cart-remove", "Remove the {product} from my shopping cart and set the quantity of the {other} to {quantity}.", _swaps, _swap
    ),
    _template("reorder", "Put everything from my order {number} into my shopping cart again.", _reorders, _reorder),
    _template(
        "buy",
        "Add {quantity} of the {product} to what is in my shopping cart, then order everything, shipped to my {label} address.",
        _purchases,
        _buy,
    ),
    _template("wish", "Add the {product} to my wish list.", _wishes, _wish),
    _template(
        "wish-cheapest", "Put the least expensive product of the category {category} on my wish list.", _cheap_wishes, _wish_cheapest
    ),
    _template(
        "contact", "Send the shop a message about order {number} with the subject {subject} and the text '{message}'", _messages, _send
    ),
    _template(
        "write-review", "Review the {product} with {rating} stars. Use the summary '{title}' and the text '{text}'", _opinions, _review
    ),
    _template("edit-account", "Change the {field} of my account to {value}.", _account_changes, _change_account),
    _template("move", "I have moved. Change my {label} address to {street}, {city}, {state} {zip}.", _moves, _move),
    _template("newsletters", "Subscribe me to the newsletter '{on}' and cancel the newsletter '{off}'.", _newsletters, _subscribe),
)
