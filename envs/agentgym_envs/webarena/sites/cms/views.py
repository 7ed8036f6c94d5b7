"""The Flask application of the shop's administration."""

from __future__ import annotations

from flask import Flask, render_template

from agentgym_envs.webarena.sites.base import db, user
from agentgym_envs.webarena.sites.cms import content, people, reports, sales
from agentgym_envs.webarena.sites.listing import Refused
from agentgym_envs.webarena.sites.shopping import store

TITLE = "Tessaly Admin"
ORIGIN = "http://cms.test"
LOW_STOCK = 10

_FIGURES = f"""
SELECT (SELECT COUNT(*) FROM shop_order WHERE status = 'Pending') AS pending_orders,
       (SELECT COUNT(*) FROM shop_review WHERE status = 'Pending') AS pending_reviews,
       (SELECT COUNT(*) FROM shop_product WHERE stock < {LOW_STOCK}) AS low_stock,
       (SELECT COUNT(*) FROM shop_customer) AS customers,
       (SELECT SUM(total) FROM shop_order WHERE status != 'Canceled') AS sales
"""


def create_app() -> Flask:
    """All pages of the administration; nobody but the administrator may see them."""
    app = store.create_app(__name__, TITLE)
    for pages in (sales.pages, content.pages, people.pages, reports.pages):
        app.register_blueprint(pages)

    @app.before_request
    def _staff_only() -> None:
        if user() != "admin":
            raise Refused("Please log in as an administrator.", 403)

    @app.get("/")
    def dashboard() -> str:
        orders = db().execute(sales.ORDERS.format(where="1") + " LIMIT 5").fetchall()
        return render_template("dashboard.html", figures=db().execute(_FIGURES).fetchone(), orders=orders, low_stock=LOW_STOCK)

    return app
