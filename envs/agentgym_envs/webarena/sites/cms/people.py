"""Customers: the grid, one customer, the customer group."""

from __future__ import annotations

from flask import Blueprint, render_template
from werkzeug.wrappers import Response

from agentgym_envs.webarena.sites.base import db
from agentgym_envs.webarena.sites.listing import paginate
from agentgym_envs.webarena.sites.shopping.catalog import GROUPS
from agentgym_envs.webarena.sites.shopping.store import Filter, form_choice, one, to

pages = Blueprint("people", __name__)

_CUSTOMERS = """
SELECT c.*, a.street, a.city, a.state, a.zip FROM shop_customer c
JOIN shop_address a ON a.customer_id = c.id AND a.label = 'Home' WHERE {where} ORDER BY c.last_name, c.first_name
"""


@pages.get("/customers")
def customers() -> str:
    """All customers, by last name."""
    where = Filter()
    where.words("q", "c.first_name || ' ' || c.last_name || ' ' || c.email || ' ' || c.phone")
    where.words("state", "a.state")
    where.equals("group", "c.customer_group")
    return render_template("customers.html", listing=paginate(_CUSTOMERS.format(where=where.sql), where.parameters), groups=GROUPS)


@pages.get("/customers/<username>")
def customer(username: str) -> str:
    """One customer with the sums of the orders."""
    row = one(_CUSTOMERS.format(where="c.username = ?"), username)
    sql = "SELECT status, COUNT(*) AS orders, SUM(total) AS total FROM shop_order WHERE customer_id = ? GROUP BY status ORDER BY status"
    return render_template("customer.html", customer=row, sums=db().execute(sql, (row["id"],)).fetchall(), groups=GROUPS)


@pages.post("/customers/<username>")
def save_customer(username: str) -> Response:
    """Change the group of a customer."""
    row = one("SELECT id FROM shop_customer WHERE username = ?", username)
    db().execute("UPDATE shop_customer SET customer_group = ? WHERE id = ?", (form_choice("group", "Group", GROUPS), row["id"]))
    return to(f"/customers/{username}", "saved")
