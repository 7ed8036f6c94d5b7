"""A small SVG of the grid for viewers."""

from __future__ import annotations

from agentgym_envs.babyai.world import Cell, World

_COLORS = {"red": "#d33", "green": "#2a2", "blue": "#36d", "purple": "#83c", "yellow": "#db2", "grey": "#888"}
_SIZE = 16  # pixels per cell


def draw(world: World) -> str:
    """The grid as SVG: visible cells light, seen ones pale, unseen ones grey; the agent is a triangle that points where it faces."""
    width, height = world.width * _SIZE, world.height * _SIZE
    visible = {(x, y) for _, _, x, y in world.view()}
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">']
    parts.append(f'<rect width="{width}" height="{height}" fill="#c8c8cc"/>')
    for y in range(world.height):
        for x in range(world.width):
            cell = world.at(x, y)
            if cell and cell[0] == "wall":
                parts.append(_square(x, y, "#444"))
                continue
            if world.is_known(x, y):
                parts.append(_square(x, y, "#fff" if (x, y) in visible else "#e6e6ea"))
            if cell:
                parts.append(_shape(cell, x * _SIZE, y * _SIZE))
    x, y, direction = world.pose
    middle = f"{x * _SIZE + 8} {y * _SIZE + 8}"
    parts.append(f'<path d="M-5 -5L6 0L-5 5Z" fill="#e0457b" transform="translate({middle})rotate({90 * direction})"/>')
    return "".join(parts) + "</svg>"


def _square(x: int, y: int, fill: str) -> str:
    return f'<rect x="{x * _SIZE}" y="{y * _SIZE}" width="{_SIZE}" height="{_SIZE}" fill="{fill}"/>'


def _shape(cell: Cell, x: int, y: int) -> str:
    kind, color, state = cell
    paint = _COLORS[color]
    line = f'fill="none" stroke="{paint}" stroke-width="2"'
    body = {
        "ball": f'<circle cx="8" cy="8" r="5" fill="{paint}"/>',
        "box": f'<path d="M3 3H13V13H3ZM3 8H13" {line}/>',
        "key": f'<path d="M8 7V14H11M8 11H11M8 7A2.5 2.5 0 1 0 7.9 7" {line}/>',
        "door": {
            "open": f'<path d="M2 1V15" {line}/>',
            "closed": f'<path d="M2 2H14V14H2ZM10 8H11" {line}/>',
            "locked": f'<rect x="1" y="1" width="14" height="14" fill="{paint}"/><path d="M8 6V11" stroke="#fff" stroke-width="2"/>',
        }.get(state, ""),
    }.get(kind, "")
    return f'<g transform="translate({x} {y})">{body}</g>'
