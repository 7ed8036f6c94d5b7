"""What the customers' site and the staff's site share: the Flask application's frame, money, dates, checked values, the customer."""

from __future__ import annotations

import re
import sqlite3
from datetime import date
from pathlib import Path

from flask import Flask, redirect, render_template, request
from jinja2 import ChoiceLoader, FileSystemLoader
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

from agentgym_envs.webarena.sites.base import db, user
from agentgym_envs.webarena.sites.listing import Refused, with_arguments

STATUSES = ("Pending", "Processing", "Complete", "Canceled", "Refunded")
REVIEW_STATUSES = ("Approved", "Pending", "Rejected")
MAX_QUANTITY = 99
_MAX_CENTS = 100_000_000
_MONEY = re.compile(r"\$?([0-9]{1,6})(?:\.([0-9]{1,2}))?")

#: What a page says after a redirect (query argument ``done``). Keys, so that a link cannot put words into the shop's mouth.
MESSAGES = {
    "cart": "The product was added to your shopping cart.",
    "cart-changed": "Your shopping cart was updated.",
    "wish": "The product was added to your wish list.",
    "wish-removed": "The product was removed from your wish list.",
    "reorder": "The available products of the order were added to your shopping cart.",
    "placed": "Thank you. Your order was placed.",
    "account": "Your account was saved.",
    "address": "The address was saved.",
    "newsletters": "Your newsletters were saved.",
    "contact": "Your message was sent.",
    "review": "Your review was submitted for moderation.",
    "saved": "The changes were saved.",
    "canceled": "The order was canceled.",
    "deleted": "The review was deleted.",
}


def create_app(package: str, title: str) -> Flask:
    """A Flask application with the filters and the error pages that both sites use."""
    app = Flask(package)
    shared = Path(__file__).parent / "templates"  # macros and the error page, for the staff's site too
    app.jinja_loader = ChoiceLoader([FileSystemLoader(Path(app.root_path) / "templates"), FileSystemLoader(shared)])
    app.jinja_env.filters.update(money=money, day=day)
    app.jinja_env.globals.update(site=title, here=with_arguments)
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True

    @app.context_processor
    def _message() -> dict[str, str | None]:
        return {"message": MESSAGES.get(request.args.get("done", ""))}

    @app.errorhandler(Refused)
    def _refused(error: Refused) -> tuple[str, int]:
        return render_template("error.html", text=str(error)), error.status

    @app.errorhandler(HTTPException)
    def _http_error(error: HTTPException) -> tuple[str, int]:
        text = "This page does not exist." if error.code == 404 else error.description or error.name
        return render_template("error.html", text=text), error.code or 400

    return app


def to(path: str, done: str = "") -> Response:
    """Redirect after a POST, with the key of a message to show."""
    return redirect(f"{path}?done={done}" if done else path, 303)


def money(cents: int) -> str:
    """``1250`` as ``$12.50``."""
    return f"${cents / 100:.2f}"


def day(moment: str) -> str:
    """The date of a stored time."""
    return moment[:10]


def to_cents(text: str, label: str) -> int:
    """``12.5``, ``$12.50`` or ``12`` in cents. Raises :class:`Refused`."""
    match = _MONEY.fullmatch(text.strip())
    cents = int(match[1]) * 100 + int((match[2] or "").ljust(2, "0")) if match else -1
    if not 0 <= cents <= _MAX_CENTS:
        raise Refused(f"{label} must be an amount such as 12.50, not {text.strip()[:40]!r}.")
    return cents


def form_integer(name: str, label: str, low: int, high: int) -> int:
    """A whole number of the submitted form. Raises :class:`Refused`."""
    text = request.form.get(name, "").strip()
    if re.fullmatch(r"[0-9]{1,9}", text) and low <= int(text) <= high:
        return int(text)
    raise Refused(f"{label} must be a whole number from {low} to {high}, not {text[:40]!r}.")


def form_choice(name: str, label: str, allowed: tuple[str, ...]) -> str:
    """A value of the submitted form that must be one of those allowed. Raises :class:`Refused`."""
    value = request.form.get(name, "")
    if value not in allowed:
        raise Refused(f"{label} must be one of {', '.join(allowed)}.")
    return value


def form_id(name: str) -> int:
    """A row's id of the submitted form; one that no row can have if it is not a number."""
    text = request.form.get(name, "")
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else -1


class Filter:
    """``WHERE`` conditions joined by AND, filled from the query arguments that are not empty."""

    def __init__(self, *conditions: str) -> None:
        self.conditions = list(conditions)
        self.parameters: list[object] = []

    @property
    def sql(self) -> str:
        """The condition as SQL."""
        return " AND ".join(self.conditions) or "1"

    def add(self, condition: str, *parameters: object) -> None:
        """One more condition, with the values of its question marks."""
        self.conditions.append(condition)
        self.parameters += parameters

    def equals(self, name: str, column: str) -> None:
        """The argument ``name`` equals the column."""
        if value := request.args.get(name, "").strip():
            self.add(f"{column} = ?", value)

    def words(self, name: str, expression: str) -> None:
        """Every word of the argument occurs in the expression."""
        for word in request.args.get(name, "").split()[:12]:
            self.add(f"instr(lower({expression}), ?)", word.lower())

    def phrase(self, name: str, expression: str) -> None:
        """The argument as a whole occurs in the expression."""
        if text := request.args.get(name, "").strip():
            self.add(f"instr(lower({expression}), ?)", text.lower())

    def days(self, column: str) -> None:
        """The column's day lies between the arguments ``from`` and ``to``, both included."""
        for name, label, condition in (("from", "From", f"{column} >= ?"), ("to", "To", f"{column} < ? || '~'")):
            if text := request.args.get(name, "").strip():
                self.add(condition, _to_day(text, label))

    def amounts(self, column: str) -> None:
        """The column lies between the amounts ``min`` and ``max``, both included."""
        for name, label, condition in (("min", "Min price", f"{column} >= ?"), ("max", "Max price", f"{column} <= ?")):
            if text := request.args.get(name, "").strip():
                self.add(condition, to_cents(text, label))


def _to_day(text: str, label: str) -> str:
    try:
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            raise ValueError
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise Refused(f"{label} must be a date such as 2023-05-31, not {text[:40]!r}.") from None


def one(sql: str, *parameters: object) -> sqlite3.Row:
    """The row that the address names. Raises :class:`Refused` (404) if there is none."""
    row: sqlite3.Row | None = db().execute(sql, parameters).fetchone()
    if row is None:
        raise Refused("This page does not exist.", 404)
    return row


def customer() -> sqlite3.Row:
    """The logged-in customer. Raises :class:`Refused` (401)."""
    row: sqlite3.Row | None = db().execute("SELECT * FROM shop_customer WHERE username = ?", (user(),)).fetchone()
    if row is None:
        raise Refused("Please log in first.", 401)
    return row
