"""Products, reviews and content pages."""

from __future__ import annotations

import sqlite3

from flask import Blueprint, render_template, request
from werkzeug.wrappers import Response

from agentgym_envs.webarena.sites.base import NOW, db
from agentgym_envs.webarena.sites.listing import Refused, form_text, paginate
from agentgym_envs.webarena.sites.shopping.seed import stamp
from agentgym_envs.webarena.sites.shopping.store import REVIEW_STATUSES, Filter, form_integer, one, to, to_cents

pages = Blueprint("content", __name__)

_ENABLED = {"Enabled": "p.enabled", "Disabled": "NOT p.enabled"}
_REVIEWS = """
SELECT r.*, p.name AS product FROM shop_review r JOIN shop_product p ON p.id = r.product_id
WHERE {where} ORDER BY r.created DESC, r.id DESC
"""


@pages.get("/products")
def products() -> str:
    """All products, by name."""
    where = Filter()
    where.words("q", "p.name || ' ' || p.sku")
    if condition := _ENABLED.get(request.args.get("status", "")):
        where.add(condition)
    if text := request.args.get("stock", "").strip():
        if not (text.isascii() and text.isdigit() and len(text) < 7):
            raise Refused(f"Stock at most must be a whole number, not {text[:40]!r}.")
        where.add("p.stock <= ?", int(text))
    listing = paginate(f"SELECT p.* FROM shop_product p WHERE {where.sql} ORDER BY p.name", where.parameters)
    return render_template("products.html", listing=listing, statuses=tuple(_ENABLED))


@pages.get("/products/<sku>")
def product(sku: str) -> str:
    """The form of one product."""
    return render_template("product.html", product=one("SELECT * FROM shop_product WHERE sku = ?", sku))


@pages.post("/products/<sku>")
def save_product(sku: str) -> Response:
    """Change a product. Its address in the shop stays the same."""
    row = one("SELECT * FROM shop_product WHERE sku = ?", sku)
    name, description = form_text("name", "Name", 120), form_text("description", "Description", 1000)
    price, stock = to_cents(request.form.get("price", ""), "Price"), form_integer("stock", "Stock", 0, 100_000)
    if price == 0:
        raise Refused("Price must be more than 0.")
    if db().execute("SELECT 1 FROM shop_product WHERE name = ? AND id != ?", (name, row["id"])).fetchone():
        raise Refused(f"Another product is named {name!r} already.")
    sql = "UPDATE shop_product SET name = ?, description = ?, price = ?, stock = ?, enabled = ? WHERE id = ?"
    db().execute(sql, (name, description, price, stock, int("enabled" in request.form), row["id"]))
    return to(f"/products/{sku}", "saved")


@pages.get("/reviews")
def reviews() -> str:
    """All reviews, newest first."""
    where = Filter()
    where.phrase("q", "r.title || ' ' || r.body")
    where.words("product", "p.name")
    where.words("nickname", "r.nickname")
    where.equals("status", "r.status")
    where.equals("stars", "r.rating")
    return render_template("reviews.html", listing=paginate(_REVIEWS.format(where=where.sql), where.parameters), statuses=REVIEW_STATUSES)


def _review(identity: int) -> sqlite3.Row:
    return one(_REVIEWS.format(where="r.id = ?"), min(identity, 2**31))


@pages.get("/reviews/<int:identity>")
def review(identity: int) -> str:
    """One review, and what can be done with it."""
    return render_template("review.html", review=_review(identity))


@pages.post("/reviews/<int:identity>/<action>")
def moderate(identity: int, action: str) -> Response:
    """Approve, reject or delete a review."""
    row = _review(identity)
    if action == "delete":
        db().execute("DELETE FROM shop_review WHERE id = ?", (row["id"],))
        return to("/reviews", "deleted")
    status = {"approve": "Approved", "reject": "Rejected"}.get(action)
    if status is None:
        raise Refused("This page does not exist.", 404)
    db().execute("UPDATE shop_review SET status = ? WHERE id = ?", (status, row["id"]))
    return to(f"/reviews/{identity}", "saved")


@pages.get("/pages")
def content_pages() -> str:
    """The content pages of the shop."""
    return render_template("pages.html", pages=db().execute("SELECT * FROM shop_page ORDER BY id").fetchall())


@pages.get("/pages/<slug>")
def content_page(slug: str) -> str:
    """The form of one content page."""
    return render_template("page.html", page=one("SELECT * FROM shop_page WHERE slug = ?", slug))


@pages.post("/pages/<slug>")
def save_page(slug: str) -> Response:
    """Change a content page."""
    row = one("SELECT id FROM shop_page WHERE slug = ?", slug)
    title, content = form_text("title", "Title", 120), form_text("content", "Content", 2000)
    sql = "UPDATE shop_page SET title = ?, content = ?, enabled = ?, updated = ? WHERE id = ?"
    db().execute(sql, (title, content, int("enabled" in request.form), stamp(NOW), row["id"]))
    return to(f"/pages/{slug}", "saved")
