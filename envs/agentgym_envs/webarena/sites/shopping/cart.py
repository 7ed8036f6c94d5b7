"""Shopping cart, wish list and checkout."""

from __future__ import annotations

import sqlite3

from flask import Blueprint, render_template
from werkzeug.wrappers import Response

from agentgym_envs.webarena.sites.base import NOW, db
from agentgym_envs.webarena.sites.listing import Refused
from agentgym_envs.webarena.sites.shopping.seed import charges, stamp
from agentgym_envs.webarena.sites.shopping.store import MAX_QUANTITY, customer, form_id, form_integer, one, to

pages = Blueprint("cart", __name__)

_LINES = """
SELECT p.*, c.quantity, c.quantity * p.price AS amount FROM shop_cart_line c JOIN shop_product p ON p.id = c.product_id
WHERE c.customer_id = ? ORDER BY p.name
"""
_ADDRESS = "SELECT *, street || ', ' || city || ', ' || state || ' ' || zip AS text FROM shop_address WHERE customer_id = ?"


def _on_sale(slug: str) -> sqlite3.Row:
    return one("SELECT * FROM shop_product WHERE slug = ? AND enabled", slug)


def _put(customer_id: int, product: sqlite3.Row, quantity: int) -> None:
    """Set a cart line. Raises :class:`Refused` if there is not enough of the product."""
    if quantity > min(product["stock"], MAX_QUANTITY):
        raise Refused(f"Only {min(product['stock'], MAX_QUANTITY)} of {product['name']} can be ordered, not {quantity}.")
    db().execute("INSERT OR REPLACE INTO shop_cart_line VALUES (?, ?, ?)", (customer_id, product["id"], quantity))


def _in_cart(customer_id: int, product_id: int) -> int:
    sql = "SELECT quantity FROM shop_cart_line WHERE customer_id = ? AND product_id = ?"
    row = db().execute(sql, (customer_id, product_id)).fetchone()
    return row["quantity"] if row else 0


@pages.post("/product/<slug>/cart")
def add(slug: str) -> Response:
    """Put some of a product into the cart, on top of what is there."""
    product, owner = _on_sale(slug), customer()
    quantity = form_integer("quantity", "Quantity", 1, MAX_QUANTITY)
    _put(owner["id"], product, _in_cart(owner["id"], product["id"]) + quantity)
    return to("/cart", "cart")


@pages.get("/cart")
def cart() -> str:
    """The cart's lines and their sum."""
    lines = db().execute(_LINES, (customer()["id"],)).fetchall()
    return render_template("cart.html", lines=lines, subtotal=sum(line["amount"] for line in lines))


@pages.post("/cart/update")
def update() -> Response:
    """Change the quantity of a line."""
    owner = customer()
    sql = "SELECT p.* FROM shop_cart_line c JOIN shop_product p ON p.id = c.product_id WHERE c.customer_id = ? AND p.id = ?"
    product = one(sql, owner["id"], form_id("product"))
    _put(owner["id"], product, form_integer("quantity", "Quantity", 1, MAX_QUANTITY))
    return to("/cart", "cart-changed")


@pages.post("/cart/remove")
def remove() -> Response:
    """Take a line out of the cart."""
    db().execute("DELETE FROM shop_cart_line WHERE customer_id = ? AND product_id = ?", (customer()["id"], form_id("product")))
    return to("/cart", "cart-changed")


@pages.get("/wishlist")
def wish_list() -> str:
    """The wish list, oldest wish first."""
    sql = "SELECT p.*, w.added FROM shop_wish_line w JOIN shop_product p ON p.id = w.product_id WHERE customer_id = ? ORDER BY added, p.id"
    return render_template("wish_list.html", wishes=db().execute(sql, (customer()["id"],)).fetchall())


@pages.post("/product/<slug>/wish")
def wish(slug: str) -> Response:
    """Put a product on the wish list."""
    line = (customer()["id"], _on_sale(slug)["id"], stamp(NOW))
    db().execute("INSERT OR IGNORE INTO shop_wish_line VALUES (?, ?, ?)", line)
    return to("/wishlist", "wish")


@pages.post("/wishlist/remove")
def unwish() -> Response:
    """Take a product off the wish list."""
    db().execute("DELETE FROM shop_wish_line WHERE customer_id = ? AND product_id = ?", (customer()["id"], form_id("product")))
    return to("/wishlist", "wish-removed")


@pages.post("/orders/<number>/reorder")
def reorder(number: str) -> Response:
    """Put what can still be had of an order into the cart."""
    owner = customer()
    order = one("SELECT id FROM shop_order WHERE number = ? AND customer_id = ?", number, owner["id"])
    sql = """SELECT p.*, l.quantity FROM shop_order_line l JOIN shop_product p ON p.id = l.product_id
             WHERE l.order_id = ? AND p.enabled AND p.stock > 0"""
    for product in db().execute(sql, (order["id"],)).fetchall():
        wanted = _in_cart(owner["id"], product["id"]) + product["quantity"]
        _put(owner["id"], product, min(wanted, product["stock"], MAX_QUANTITY))
    return to("/cart", "reorder")


@pages.get("/checkout")
def checkout() -> str:
    """What the cart will cost, and where it is to go."""
    owner = customer()
    lines = db().execute(_LINES, (owner["id"],)).fetchall()
    if not lines:
        raise Refused("Your shopping cart is empty.")
    subtotal = sum(line["amount"] for line in lines)
    shipping, tax, total = charges(subtotal)
    addresses = db().execute(_ADDRESS + " ORDER BY id", (owner["id"],)).fetchall()
    return render_template("checkout.html", lines=lines, subtotal=subtotal, shipping=shipping, tax=tax, total=total, addresses=addresses)


@pages.post("/checkout")
def place_order() -> Response:
    """Turn the cart into an order."""
    owner, connection = customer(), db()
    address = connection.execute(_ADDRESS + " AND id = ?", (owner["id"], form_id("address"))).fetchone()
    if address is None:
        raise Refused("Choose one of your addresses.")
    lines = connection.execute(_LINES, (owner["id"],)).fetchall()
    if not lines:
        raise Refused("Your shopping cart is empty.")
    for line in lines:
        if not line["enabled"] or line["quantity"] > line["stock"]:
            raise Refused(f"{line['name']} is not available in this quantity. Change your shopping cart.")
    subtotal = sum(line["amount"] for line in lines)
    number = str(connection.execute("SELECT MAX(CAST(number AS INTEGER)) + 1 FROM shop_order").fetchone()[0])
    cursor = connection.execute(
        "INSERT INTO shop_order (number, customer_id, created, status, subtotal, shipping, tax, total, ship_to)"
        " VALUES (?, ?, ?, 'Pending', ?, ?, ?, ?, ?)",
        (number, owner["id"], stamp(NOW), subtotal, *charges(subtotal), address["text"]),
    )
    rows = [(cursor.lastrowid, line["id"], line["name"], line["price"], line["quantity"]) for line in lines]
    connection.executemany("INSERT INTO shop_order_line VALUES (?, ?, ?, ?, ?)", rows)
    connection.executemany("UPDATE shop_product SET stock = stock - ? WHERE id = ?", [(line["quantity"], line["id"]) for line in lines])
    connection.execute("DELETE FROM shop_cart_line WHERE customer_id = ?", (owner["id"],))
    return to(f"/orders/{number}", "placed")
