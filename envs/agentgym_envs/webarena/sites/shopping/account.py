"""The customer's account: orders, purchases, personal data, addresses, newsletters, contact form."""

from __future__ import annotations

import re
import sqlite3

from flask import Blueprint, render_template, request
from werkzeug.wrappers import Response

from agentgym_envs.webarena.sites.base import NOW, db
from agentgym_envs.webarena.sites.listing import Refused, form_text, paginate
from agentgym_envs.webarena.sites.shopping.catalog import SUBJECTS, TOPICS
from agentgym_envs.webarena.sites.shopping.seed import stamp
from agentgym_envs.webarena.sites.shopping.store import STATUSES, Filter, customer, form_choice, one, to

pages = Blueprint("account", __name__)

_ORDERS = """
SELECT o.*, (SELECT SUM(quantity) FROM shop_order_line WHERE order_id = o.id) AS items
FROM shop_order o WHERE {where} ORDER BY created DESC, o.id DESC
"""
_PURCHASES = """
SELECT l.*, o.number, o.created, o.status, p.slug, p.enabled, l.price * l.quantity AS amount
FROM shop_order_line l JOIN shop_order o ON o.id = l.order_id JOIN shop_product p ON p.id = l.product_id
JOIN shop_category c ON c.id = p.category_id JOIN shop_category t ON t.id = c.parent_id
WHERE {where} ORDER BY o.created DESC, l.name
"""


def _mine() -> Filter:
    where = Filter("o.customer_id = ?")
    where.parameters.append(customer()["id"])
    return where


@pages.get("/orders")
def orders() -> str:
    """Order history, newest first."""
    where = _mine()
    where.equals("status", "o.status")
    where.days("o.created")
    return render_template("orders.html", listing=paginate(_ORDERS.format(where=where.sql), where.parameters), statuses=STATUSES)


@pages.get("/orders/<number>")
def order(number: str) -> str:
    """One order with its lines."""
    row = one("SELECT * FROM shop_order WHERE number = ? AND customer_id = ?", number, customer()["id"])
    sql = (
        "SELECT l.*, p.slug, p.enabled FROM shop_order_line l JOIN shop_product p ON p.id = l.product_id WHERE order_id = ? ORDER BY l.name"
    )
    lines = db().execute(sql, (row["id"],)).fetchall()
    shipment = db().execute("SELECT * FROM shop_shipment WHERE order_id = ?", (row["id"],)).fetchone()
    return render_template("order.html", order=row, lines=lines, shipment=shipment)


@pages.get("/purchases")
def purchases() -> str:
    """Every product ever ordered, newest first."""
    where = _mine()
    where.words("q", "l.name")
    where.equals("category", "t.name")
    where.days("o.created")
    tops = db().execute("SELECT name FROM shop_category WHERE parent_id IS NULL ORDER BY id").fetchall()
    listing = paginate(_PURCHASES.format(where=where.sql), where.parameters)
    return render_template("purchases.html", listing=listing, categories=[row["name"] for row in tops])


@pages.get("/account")
def overview() -> str:
    """Personal data and the ways to change them."""
    return render_template("account.html", customer=customer(), addresses=_addresses())


@pages.get("/account/edit")
def edit() -> str:
    """The form of the personal data."""
    return render_template("account_form.html", customer=customer())


@pages.post("/account/edit")
def save() -> Response:
    """Change the personal data."""
    owner = customer()
    first, last = form_text("first_name", "First name", 60), form_text("last_name", "Last name", 60)
    email, phone = form_text("email", "Email", 120), form_text("phone", "Phone", 20)
    if not re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+", email):
        raise Refused(f"{email!r} is not an email address.")
    if not re.fullmatch(r"[0-9 +()-]{5,20}", phone):
        raise Refused(f"{phone!r} is not a phone number.")
    sql = "UPDATE shop_customer SET first_name = ?, last_name = ?, email = ?, phone = ? WHERE id = ?"
    db().execute(sql, (first, last, email, phone, owner["id"]))
    return to("/account", "account")


def _addresses() -> list[sqlite3.Row]:
    return db().execute("SELECT * FROM shop_address WHERE customer_id = ? ORDER BY id", (customer()["id"],)).fetchall()


@pages.get("/account/addresses/<int:address_id>")
def address(address_id: int) -> str:
    """The form of one address."""
    row = one("SELECT * FROM shop_address WHERE id = ? AND customer_id = ?", min(address_id, 2**31), customer()["id"])
    return render_template("address_form.html", address=row)


@pages.post("/account/addresses/<int:address_id>")
def save_address(address_id: int) -> Response:
    """Change one address."""
    row = one("SELECT id FROM shop_address WHERE id = ? AND customer_id = ?", min(address_id, 2**31), customer()["id"])
    fields = [form_text(name, name.capitalize(), 80) for name in ("street", "city", "state")]
    zip_code = form_text("zip", "ZIP code", 5)
    if not re.fullmatch(r"[0-9]{5}", zip_code):
        raise Refused(f"The ZIP code must have five digits, not {zip_code!r}.")
    db().execute("UPDATE shop_address SET street = ?, city = ?, state = ?, zip = ? WHERE id = ?", (*fields, zip_code, row["id"]))
    return to("/account", "address")


@pages.get("/account/newsletters")
def newsletters() -> str:
    """Which newsletters the customer receives."""
    rows = db().execute("SELECT topic FROM shop_subscription WHERE customer_id = ?", (customer()["id"],)).fetchall()
    return render_template("newsletters.html", topics=TOPICS, chosen={row["topic"] for row in rows})


@pages.post("/account/newsletters")
def save_newsletters() -> Response:
    """Receive exactly the ticked newsletters."""
    owner = customer()["id"]
    db().execute("DELETE FROM shop_subscription WHERE customer_id = ?", (owner,))
    chosen = [(owner, topic) for topic in TOPICS if topic in request.form.getlist("topic")]
    db().executemany("INSERT INTO shop_subscription VALUES (?, ?)", chosen)
    return to("/account", "newsletters")


@pages.get("/contact")
def contact() -> str:
    """The contact form."""
    return render_template("contact.html", subjects=SUBJECTS, number=request.args.get("order", "")[:10])


@pages.post("/contact")
def send() -> Response:
    """A message to the shop, about an order or in general."""
    owner = customer()["id"]
    number = form_text("order", "Order number", 10, required=False)
    if number and not db().execute("SELECT 1 FROM shop_order WHERE number = ? AND customer_id = ?", (number, owner)).fetchone():
        raise Refused(f"You have no order {number!r}.")
    subject, body = form_choice("subject", "Subject", SUBJECTS), form_text("body", "Message", 2000)
    sql = "INSERT INTO shop_message (customer_id, order_number, subject, body, created) VALUES (?, ?, ?, ?, ?)"
    db().execute(sql, (owner, number, subject, body, stamp(NOW)))
    return to("/account", "contact")
