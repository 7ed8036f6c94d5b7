"""Orders: the grid, one order, its status, comments and shipment."""

from __future__ import annotations

import re
import sqlite3

from flask import Blueprint, render_template
from werkzeug.wrappers import Response

from agentgym_envs.webarena.sites.base import NOW, db
from agentgym_envs.webarena.sites.listing import Refused, form_text, paginate
from agentgym_envs.webarena.sites.shopping.catalog import CARRIERS
from agentgym_envs.webarena.sites.shopping.seed import stamp
from agentgym_envs.webarena.sites.shopping.store import STATUSES, Filter, form_choice, one, to

pages = Blueprint("sales", __name__)

ORDERS = """
SELECT o.*, c.first_name || ' ' || c.last_name AS customer, c.email
FROM shop_order o JOIN shop_customer c ON c.id = o.customer_id WHERE {where} ORDER BY o.created DESC, o.id DESC
"""
_OPEN = ("Pending", "Processing")


def _order(number: str) -> sqlite3.Row:
    return one(ORDERS.format(where="o.number = ?"), number)


@pages.get("/orders")
def orders() -> str:
    """All orders, newest first."""
    where = Filter()
    where.words("q", "o.number || ' ' || c.first_name || ' ' || c.last_name")
    where.equals("status", "o.status")
    where.days("o.created")
    return render_template("orders.html", listing=paginate(ORDERS.format(where=where.sql), where.parameters), statuses=STATUSES)


@pages.get("/orders/<number>")
def order(number: str) -> str:
    """One order with its lines, papers and comments."""
    row = _order(number)

    def rows(table: str, order_by: str) -> list[sqlite3.Row]:
        return db().execute(f"SELECT * FROM {table} WHERE order_id = ? ORDER BY {order_by}", (row["id"],)).fetchall()

    return render_template(
        "order.html",
        order=row,
        lines=rows("shop_order_line", "name"),
        invoices=rows("shop_invoice", "number"),
        refunds=rows("shop_refund", "created"),
        shipments=rows("shop_shipment", "created"),
        comments=rows("shop_order_comment", "created, id"),
        statuses=STATUSES,
        carriers=CARRIERS,
        is_open=row["status"] in _OPEN,
    )


@pages.post("/orders/<number>/status")
def set_status(number: str) -> Response:
    """Change the status of an order."""
    row = _order(number)
    db().execute("UPDATE shop_order SET status = ? WHERE id = ?", (form_choice("status", "Status", STATUSES), row["id"]))
    return to(f"/orders/{number}", "saved")


@pages.post("/orders/<number>/cancel")
def cancel(number: str) -> Response:
    """Cancel an order that was not sent yet; the goods go back into stock."""
    row = _order(number)
    if row["status"] not in _OPEN:
        raise Refused(f"An order with status {row['status']} cannot be canceled.")
    db().execute("UPDATE shop_order SET status = 'Canceled' WHERE id = ?", (row["id"],))
    for line in db().execute("SELECT * FROM shop_order_line WHERE order_id = ?", (row["id"],)).fetchall():
        db().execute("UPDATE shop_product SET stock = stock + ? WHERE id = ?", (line["quantity"], line["product_id"]))
    return to(f"/orders/{number}", "canceled")


@pages.post("/orders/<number>/comment")
def comment(number: str) -> Response:
    """Add a comment to an order."""
    sql = "INSERT INTO shop_order_comment (order_id, created, text) VALUES (?, ?, ?)"
    db().execute(sql, (_order(number)["id"], stamp(NOW), form_text("text", "Comment", 500)))
    return to(f"/orders/{number}", "saved")


@pages.post("/orders/<number>/shipment")
def ship(number: str) -> Response:
    """Enter or change carrier and tracking number."""
    row, carrier = _order(number), form_choice("carrier", "Carrier", CARRIERS)
    tracking = form_text("tracking", "Tracking number", 20)
    if not re.fullmatch(r"[0-9A-Z]{6,20}", tracking):
        raise Refused(f"A tracking number has 6 to 20 digits or capitals, not {tracking!r}.")
    db().execute("INSERT OR REPLACE INTO shop_shipment VALUES (?, ?, ?, ?)", (row["id"], stamp(NOW), carrier, tracking))
    return to(f"/orders/{number}", "saved")
