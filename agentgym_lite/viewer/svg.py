"""Accept a drawing of an environment only if it is made of plain shapes."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

_SVG = "http://www.w3.org/2000/svg"
_ELEMENTS = {"svg", "g", "title", "text", "rect", "circle", "ellipse", "line", "polyline", "polygon", "path"}
_ATTRIBUTES = {
    *("viewBox", "width", "height", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx", "ry", "d", "points", "transform", "role"),
    *("fill", "fill-opacity", "fill-rule", "stroke", "stroke-width", "stroke-opacity", "stroke-linecap", "stroke-linejoin", "opacity"),
    *("font-size", "font-family", "font-weight", "text-anchor", "dominant-baseline", "shape-rendering", "aria-label"),
}
# Numbers, colours, names, rgb(...) and translate(...): nothing that can point elsewhere, such as url(...) or javascript:...
_VALUE = re.compile(r"(?!.*url\s*\()[\w\s.,#%()+-]*", re.IGNORECASE | re.DOTALL)
#: Longest drawing that is shown; an 8 x 8 grid takes about 10 kB.
MAX_CHARACTERS = 200_000


class UnsafeSvgError(ValueError):
    """A drawing holds something other than plain shapes."""


def plain_svg(source: str) -> str:
    """``source`` written anew from its shapes alone.

    Raises ``UnsafeSvgError`` if it is not well-formed, or holds an element or attribute that is no plain shape's (scripts, links, styles,
    foreign objects, entity definitions).
    """
    if len(source) > MAX_CHARACTERS or "<!" in source or "<?" in source:
        raise UnsafeSvgError(f"expected at most {MAX_CHARACTERS} characters of SVG without declarations, found {len(source)} characters")
    try:
        root = ET.fromstring(source)
    except ET.ParseError as e:
        raise UnsafeSvgError(f"not well-formed: {e}") from None
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{_SVG}}}")
        if element.tag not in _ELEMENTS:
            raise UnsafeSvgError(f"element <{element.tag}> is not a plain shape")
        for name, value in element.attrib.items():
            if name not in _ATTRIBUTES or not _VALUE.fullmatch(value):
                raise UnsafeSvgError(f"attribute {name}={value!r:.60} of <{element.tag}> is not a plain shape's")
    if root.tag != "svg":
        raise UnsafeSvgError(f"expected <svg>, found <{root.tag}>")
    return ET.tostring(root, encoding="unicode")
