-- One shop, seen by its customers (site "shopping") and by its staff (site "cms"). Money is in cents, times are "YYYY-MM-DD HH:MM".
CREATE TABLE shop_category (
    id INTEGER PRIMARY KEY,
    parent_id INTEGER REFERENCES shop_category (id),
    name TEXT NOT NULL,
    slug TEXT NOT NULL UNIQUE
);
CREATE INDEX shop_category_parent ON shop_category (parent_id);

CREATE TABLE shop_product (
    id INTEGER PRIMARY KEY,
    sku TEXT NOT NULL UNIQUE,
    slug TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    category_id INTEGER NOT NULL REFERENCES shop_category (id),
    brand TEXT NOT NULL,
    description TEXT NOT NULL,
    price INTEGER NOT NULL CHECK (price > 0),
    stock INTEGER NOT NULL CHECK (stock >= 0),
    enabled INTEGER NOT NULL DEFAULT 1,
    created TEXT NOT NULL
);
CREATE INDEX shop_product_category ON shop_product (category_id, price);

CREATE TABLE shop_attribute (
    product_id INTEGER NOT NULL REFERENCES shop_product (id),
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (product_id, name)
) WITHOUT ROWID;

CREATE TABLE shop_customer (
    id INTEGER PRIMARY KEY,
    username TEXT NOT NULL UNIQUE,
    first_name TEXT NOT NULL,
    last_name TEXT NOT NULL,
    email TEXT NOT NULL,
    phone TEXT NOT NULL,
    customer_group TEXT NOT NULL,
    created TEXT NOT NULL
);

CREATE TABLE shop_address (
    id INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL REFERENCES shop_customer (id),
    label TEXT NOT NULL,
    street TEXT NOT NULL,
    city TEXT NOT NULL,
    state TEXT NOT NULL,
    zip TEXT NOT NULL
);
CREATE INDEX shop_address_customer ON shop_address (customer_id);

CREATE TABLE shop_subscription (
    customer_id INTEGER NOT NULL REFERENCES shop_customer (id),
    topic TEXT NOT NULL,
    PRIMARY KEY (customer_id, topic)
) WITHOUT ROWID;

CREATE TABLE shop_cart_line (
    customer_id INTEGER NOT NULL REFERENCES shop_customer (id),
    product_id INTEGER NOT NULL REFERENCES shop_product (id),
    quantity INTEGER NOT NULL CHECK (quantity > 0),
    PRIMARY KEY (customer_id, product_id)
) WITHOUT ROWID;

CREATE TABLE shop_wish_line (
    customer_id INTEGER NOT NULL REFERENCES shop_customer (id),
    product_id INTEGER NOT NULL REFERENCES shop_product (id),
    added TEXT NOT NULL,
    PRIMARY KEY (customer_id, product_id)
) WITHOUT ROWID;

CREATE TABLE shop_order (
    id INTEGER PRIMARY KEY,
    number TEXT NOT NULL UNIQUE,
    customer_id INTEGER NOT NULL REFERENCES shop_customer (id),
    created TEXT NOT NULL,
    status TEXT NOT NULL,
    subtotal INTEGER NOT NULL,
    shipping INTEGER NOT NULL,
    tax INTEGER NOT NULL,
    total INTEGER NOT NULL,
    ship_to TEXT NOT NULL
);
CREATE INDEX shop_order_customer ON shop_order (customer_id, created);
CREATE INDEX shop_order_created ON shop_order (created);

-- Name and price as they were when the order was placed.
CREATE TABLE shop_order_line (
    order_id INTEGER NOT NULL REFERENCES shop_order (id),
    product_id INTEGER NOT NULL REFERENCES shop_product (id),
    name TEXT NOT NULL,
    price INTEGER NOT NULL,
    quantity INTEGER NOT NULL,
    PRIMARY KEY (order_id, product_id)
) WITHOUT ROWID;

CREATE TABLE shop_order_comment (
    id INTEGER PRIMARY KEY,
    order_id INTEGER NOT NULL REFERENCES shop_order (id),
    created TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX shop_order_comment_order ON shop_order_comment (order_id);

CREATE TABLE shop_invoice (
    number TEXT PRIMARY KEY,
    order_id INTEGER NOT NULL UNIQUE REFERENCES shop_order (id),
    created TEXT NOT NULL,
    total INTEGER NOT NULL
);

CREATE TABLE shop_refund (
    order_id INTEGER PRIMARY KEY REFERENCES shop_order (id),
    created TEXT NOT NULL,
    total INTEGER NOT NULL
);

CREATE TABLE shop_shipment (
    order_id INTEGER PRIMARY KEY REFERENCES shop_order (id),
    created TEXT NOT NULL,
    carrier TEXT NOT NULL,
    tracking TEXT NOT NULL
);

CREATE TABLE shop_review (
    id INTEGER PRIMARY KEY,
    product_id INTEGER NOT NULL REFERENCES shop_product (id),
    customer_id INTEGER REFERENCES shop_customer (id),
    nickname TEXT NOT NULL,
    rating INTEGER NOT NULL CHECK (rating BETWEEN 1 AND 5),
    title TEXT NOT NULL,
    body TEXT NOT NULL,
    status TEXT NOT NULL,
    created TEXT NOT NULL
);
CREATE INDEX shop_review_product ON shop_review (product_id, status, rating);
CREATE INDEX shop_review_status ON shop_review (status, created);
CREATE INDEX shop_review_created ON shop_review (created);

CREATE TABLE shop_message (
    id INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL REFERENCES shop_customer (id),
    order_number TEXT NOT NULL,
    subject TEXT NOT NULL,
    body TEXT NOT NULL,
    created TEXT NOT NULL
);

-- The last two are used by the staff only.
CREATE TABLE shop_search_term (
    term TEXT PRIMARY KEY,
    uses INTEGER NOT NULL,
    results INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE shop_page (
    id INTEGER PRIMARY KEY,
    slug TEXT NOT NULL UNIQUE,
    title TEXT NOT NULL,
    content TEXT NOT NULL,
    enabled INTEGER NOT NULL,
    updated TEXT NOT NULL
);
