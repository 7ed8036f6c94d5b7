"""The Flask application of the shop."""

from __future__ import annotations

from flask import Flask

from agentgym_envs.webarena.sites.base import db, user
from agentgym_envs.webarena.sites.shopping import account, cart, catalogue, store

TITLE = "Tessaly"
ORIGIN = "http://shopping.test"


def create_app() -> Flask:
    """All pages of the shop."""
    app = store.create_app(__name__, TITLE)
    for pages in (catalogue.pages, cart.pages, account.pages):
        app.register_blueprint(pages)

    @app.context_processor
    def _cart_size() -> dict[str, int]:
        sql = "SELECT COUNT(*) FROM shop_cart_line WHERE customer_id = (SELECT id FROM shop_customer WHERE username = ?)"
        return {"cart_size": db().execute(sql, (user(),)).fetchone()[0]}

    return app
