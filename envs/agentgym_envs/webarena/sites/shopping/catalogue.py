"""Home, categories, search, products and their reviews."""

from __future__ import annotations

from flask import Blueprint, render_template, request
from werkzeug.wrappers import Response

from agentgym_envs.webarena.sites.base import NOW, db
from agentgym_envs.webarena.sites.listing import Refused, choice, form_text, paginate
from agentgym_envs.webarena.sites.shopping.seed import stamp
from agentgym_envs.webarena.sites.shopping.store import Filter, customer, form_integer, one, to

pages = Blueprint("catalogue", __name__)

#: Value of the argument ``sort`` -> (text of the link, ORDER BY).
SORTS = {
    "name": ("Name", "p.name"),
    "price_asc": ("Price: low to high", "p.price, p.name"),
    "price_desc": ("Price: high to low", "p.price DESC, p.name"),
    "rating": ("Rating", "rating DESC, reviews DESC, p.name"),
}
_LISTED = """
SELECT p.*, COUNT(r.id) AS reviews, AVG(r.rating) AS rating
FROM shop_product p LEFT JOIN shop_review r ON r.product_id = p.id AND r.status = 'Approved'
WHERE {where} GROUP BY p.id ORDER BY {order}
"""
_PRODUCT = _LISTED.format(where="p.slug = ? AND p.enabled", order="p.id")


@pages.get("/")
def home() -> str:
    """All categories."""
    rows = db().execute("SELECT * FROM shop_category ORDER BY id").fetchall()
    tree = [(top, [row for row in rows if row["parent_id"] == top["id"]]) for top in rows if top["parent_id"] is None]
    return render_template("home.html", tree=tree)


def _products(where: Filter, **values: object) -> str:
    where.amounts("p.price")
    sort = choice("sort", tuple(SORTS))
    listing = paginate(_LISTED.format(where=where.sql, order=SORTS[sort][1]), where.parameters)
    return render_template("products.html", listing=listing, sorts=SORTS, sort=sort, **values)


@pages.get("/category/<slug>")
def category(slug: str) -> str:
    """Products of a category; those of a top category are all of its subcategories."""
    here = one("SELECT * FROM shop_category WHERE slug = ?", slug)
    children = db().execute("SELECT * FROM shop_category WHERE parent_id = ? ORDER BY id", (here["id"],)).fetchall()
    parent = db().execute("SELECT * FROM shop_category WHERE id = ?", (here["parent_id"],)).fetchone()
    where = Filter("p.enabled")
    where.add("p.category_id IN (SELECT id FROM shop_category WHERE id = ? OR parent_id = ?)", here["id"], here["id"])
    return _products(where, heading=here["name"], children=children, parent=parent)


@pages.get("/search")
def search() -> str:
    """Products whose name holds every word of ``q``."""
    where = Filter("p.enabled")
    where.words("q", "p.name")
    return _products(where, heading=f"Search results for '{request.args.get('q', '').strip()[:80]}'", children=(), parent=None)


@pages.get("/product/<slug>")
def product(slug: str) -> str:
    """One product."""
    row = one(_PRODUCT, slug)
    attributes = db().execute("SELECT name, value FROM shop_attribute WHERE product_id = ? ORDER BY name", (row["id"],)).fetchall()
    place = one("SELECT * FROM shop_category WHERE id = ?", row["category_id"])
    return render_template("product.html", product=row, attributes=attributes, category=place)


@pages.get("/product/<slug>/reviews")
def reviews(slug: str) -> str:
    """The approved reviews of a product, newest first."""
    row = one(_PRODUCT, slug)
    where = Filter("product_id = ? AND status = 'Approved'")
    where.parameters.append(row["id"])
    where.phrase("q", "title || ' ' || body")
    where.equals("stars", "rating")
    listing = paginate(f"SELECT * FROM shop_review WHERE {where.sql} ORDER BY created DESC, id", where.parameters)
    return render_template("reviews.html", product=row, listing=listing)


@pages.get("/product/<slug>/review")
def write_review(slug: str) -> str:
    """The form of a new review."""
    return render_template("review_form.html", product=one(_PRODUCT, slug), customer=customer())


@pages.post("/product/<slug>/review")
def submit_review(slug: str) -> Response:
    """A new review waits for moderation; one per customer and product."""
    row, author = one(_PRODUCT, slug), customer()
    if db().execute("SELECT 1 FROM shop_review WHERE product_id = ? AND customer_id = ?", (row["id"], author["id"])).fetchone():
        raise Refused("You have already reviewed this product.")
    nickname = form_text("nickname", "Nickname", 60)
    rating = form_integer("rating", "Rating", 1, 5)
    title, body = form_text("title", "Summary", 120), form_text("body", "Review", 2000)
    db().execute(
        "INSERT INTO shop_review (product_id, customer_id, nickname, rating, title, body, status, created)"
        " VALUES (?, ?, ?, ?, ?, ?, 'Pending', ?)",
        (row["id"], author["id"], nickname, rating, title, body, stamp(NOW)),
    )
    return to(f"/product/{slug}", "review")
