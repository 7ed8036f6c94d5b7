"""The five sites of the WebArena miniature, and the HTML they may use.

The text browser computes the accessibility tree from the HTML and has to give what Chromium gives, so that templates keep to what both
understand in the same way:

- Elements: ``header nav main footer section h1 h2 h3 p a ul ol li dl dt dd table caption thead tbody tr th td form label input textarea
  select option button img strong em br div span``. Inputs are ``text search number password checkbox radio hidden``. No ``script``.
- ``header`` and ``footer`` stand directly in ``body``. Text stands in an element of its own (``p``, ``td``, ``li``, ``dd``, ``span`` ...).
- Every control has ``<label for=ID>`` before it (never around it) or ``aria-label``; every table has a ``caption`` and a ``thead`` whose
  cells are ``th``; body cells are ``td``; every ``img`` has ``alt``; buttons and links have text. ``nav`` has ``aria-label``.
- Attributes that matter: ``href action method name value checked selected disabled required aria-label alt for id placeholder``.
  No ``title``, ``role``, ``tabindex``, ``hidden`` or other ``aria-*`` attributes; no inline ``style``.
- Style sheets may set colours, sizes and margins, never ``display``, ``content``, ``text-transform``, ``white-space`` or ``visibility``.
- A change of state is a POST form whose view answers with a redirect (303 or 302); everything else is a GET without side effects: it gets a
  read-only database. The database is committed after a POST (rolled back if the view raises).
- A form that Enter should send has a submit button. Each page has ``<title>Page | Site</title>`` and ``<html lang="en">``.
- ``<a href>`` and ``action`` are paths of the same site (``/cart``) or absolute URLs of one of the five origins.

What the agent sees of it, one line per node, ids in page order (typed text counts last), indented by one tab per level (here two blanks)::

    Tab 0 (current): My orders | Shop

    [1] RootWebArea 'My orders | Shop' focused: True
      [2] link 'Shop'
      [3] StaticText 'Search products'
      [4] textbox 'Search products' required: False
      [5] button 'Go'
      [6] heading 'My orders'
      [7] table 'Orders'
        [8] row ''
          [9] columnheader 'Order'
          [10] columnheader 'Total'
        [11] row ''
          [12] cell '000123'
            [13] link '000123'
          [14] cell '$12.50'
      [15] combobox 'Sort by' hasPopup: menu expanded: False
        [16] option 'Price' selected: True
        [17] option 'Name' selected: False
      [18] checkbox 'Gift wrap' checked: false

``click [17]`` selects an option, ``click [18]`` ticks a box, ``click`` on a submit button sends its form, and ``type [4] [lamp] [1]``
replaces the content of a field and presses Enter.
"""
