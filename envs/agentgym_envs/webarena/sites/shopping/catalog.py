"""Words from which the shop's catalogue, people and reviews are made. Brands, streets and persons are invented."""

from __future__ import annotations

#: Top category -> (brands, adjectives, {subcategory: nouns}).
CATALOG: dict[str, tuple[tuple[str, ...], tuple[str, ...], dict[str, tuple[str, ...]]]] = {
    "Kitchen": (
        ("Oakpan", "Brisella", "Tarn & Tide", "Cuprano"),
        ("Classic", "Nonstick", "Compact", "Stackable", "Everyday", "Deluxe"),
        {
            "Cookware": ("Frying Pan", "Saucepan", "Stockpot", "Wok"),
            "Bakeware": ("Loaf Tin", "Muffin Tray", "Cake Ring", "Pie Dish"),
            "Tableware": ("Dinner Plate Set", "Soup Bowl Set", "Serving Platter", "Mug Set"),
            "Knives": ("Chef Knife", "Bread Knife", "Paring Knife", "Cleaver"),
        },
    ),
    "Electronics": (
        ("Voltari", "Hexaphon", "Nimbuson", "Quillex"),
        ("Wireless", "Portable", "Slim", "Smart", "Rechargeable", "Pro"),
        {
            "Audio": ("Headphones", "Bookshelf Speaker", "Soundbar", "Earbuds"),
            "Computers": ("Mechanical Keyboard", "Optical Mouse", "USB Hub", "Laptop Stand"),
            "Photography": ("Camera Bag", "Tripod", "Ring Light", "Lens Filter Kit"),
            "Power": ("Power Bank", "Wall Charger", "Extension Cord", "Solar Panel"),
        },
    ),
    "Home": (
        ("Lumenwick", "Hearthby", "Soffano", "Wrenfield"),
        ("Modern", "Rustic", "Woven", "Minimal", "Adjustable", "Vintage"),
        {
            "Lighting": ("Floor Lamp", "Pendant Light", "Night Light", "Bedside Lamp"),
            "Bedding": ("Duvet Cover", "Pillowcase Pair", "Fitted Sheet", "Throw Blanket"),
            "Storage": ("Shelf Unit", "Laundry Hamper", "Shoe Rack", "Storage Box"),
            "Decor": ("Wall Clock", "Picture Frame", "Flower Vase", "Area Rug"),
        },
    ),
    "Garden": (
        ("Fernhill", "Mossgate", "Petalworth"),
        ("Sturdy", "Weatherproof", "Folding", "Heavy-Duty", "Lightweight"),
        {
            "Planters": ("Clay Pot", "Window Box", "Hanging Basket", "Seed Tray"),
            "Tools": ("Pruning Shears", "Garden Fork", "Hand Trowel", "Leaf Rake"),
            "Patio": ("Parasol", "Deck Chair", "Fire Pit", "Bistro Table"),
        },
    ),
    "Sports": (
        ("Kestria", "Summitto", "Pacewell", "Aquilane"),
        ("Lightweight", "Pro", "Trail", "Padded", "All-Weather", "Junior"),
        {
            "Fitness": ("Yoga Mat", "Dumbbell Pair", "Resistance Band Set", "Jump Rope"),
            "Camping": ("Sleeping Bag", "Two-Person Tent", "Camp Stove", "Headlamp"),
            "Cycling": ("Bike Helmet", "Bike Lock", "Frame Pump", "Saddle Cover"),
            "Swimming": ("Swim Goggles", "Kickboard", "Swim Cap", "Dry Bag"),
        },
    ),
    "Beauty": (
        ("Solenne", "Mirravae", "Petra Dew"),
        ("Gentle", "Hydrating", "Fragrance-Free", "Organic", "Overnight"),
        {
            "Skin Care": ("Face Cream", "Hand Lotion", "Clay Mask", "Lip Balm"),
            "Hair Care": ("Shampoo Bar", "Leave-In Conditioner", "Hair Oil", "Detangling Brush"),
            "Bath": ("Bath Salts", "Body Scrub", "Shower Gel", "Bath Bomb Set"),
        },
    ),
    "Toys": (
        ("Jumbelo", "Piccadoo", "Tinkerfox"),
        ("Wooden", "Magnetic", "Giant", "Mini", "Colorful"),
        {
            "Puzzles": ("Jigsaw Puzzle", "Logic Cube", "Maze Board", "Shape Sorter"),
            "Games": ("Card Game", "Dice Game", "Memory Game", "Domino Set"),
            "Building": ("Block Set", "Marble Run", "Train Track", "Robot Kit"),
        },
    ),
    "Office": (
        ("Papyra", "Inkworth", "Desklore"),
        ("Executive", "Recycled", "Refillable", "A5", "Leatherette"),
        {
            "Writing": ("Fountain Pen", "Gel Pen Set", "Mechanical Pencil", "Highlighter Set"),
            "Notebooks": ("Dotted Notebook", "Weekly Planner", "Sketchbook", "Guest Book"),
            "Organizers": ("Desk Tray", "Magazine File", "Cable Box", "Card Holder"),
        },
    ),
}
#: Price range of a top category's products in dollars.
PRICES = {
    "Kitchen": (9, 120),
    "Electronics": (14, 260),
    "Home": (12, 180),
    "Garden": (6, 150),
    "Sports": (8, 190),
    "Beauty": (5, 48),
    "Toys": (7, 75),
    "Office": (4, 60),
}
PRODUCTS_PER_SUBCATEGORY = 12
COLORS = ("Black", "White", "Slate Gray", "Forest Green", "Navy", "Terracotta", "Mustard", "Rose")
MATERIALS = {
    "Kitchen": ("Stainless Steel", "Cast Iron", "Stoneware", "Beechwood"),
    "Electronics": ("Aluminum", "ABS Plastic", "Recycled Plastic"),
    "Home": ("Cotton", "Linen", "Oak", "Steel", "Glass"),
    "Garden": ("Steel", "Ash Wood", "Terracotta", "Polypropylene"),
    "Sports": ("Nylon", "Neoprene", "Foam", "Steel"),
    "Beauty": ("Shea Butter", "Oat Extract", "Aloe"),
    "Toys": ("Beechwood", "Cardboard", "ABS Plastic"),
    "Office": ("Recycled Paper", "Brass", "Bamboo"),
}
WARRANTIES = ("6 months", "12 months", "24 months", "36 months")
USES = ("small flats", "busy families", "weekend trips", "daily use", "first-time owners", "people who travel", "gifts", "large households")
PROMISES = (
    "Made to last and easy to clean.",
    "Tested by our own team for three months.",
    "Ships flat, needs no tools.",
    "Spare parts are sold for five years.",
    "Folds away when it is not needed.",
    "Comes with a short guide.",
)

#: Blanks between the names.
FIRST_NAMES = (
    "Ada Bruno Carla Dev Elif Farid Greta Hugo Ines Jonas Kavya Leon Mara Nils Olga Pavel Quinn Rosa Samir Tilda "
    "Umar Vera Wanda Xenia Yusuf Zora Anton Bianca Cyrus Dalia Edgar Fiona Gideon Hana Igor Julia Kofi Lena Milo Nadia"
)
LAST_NAMES = (
    "Abbotson Barlowe Castellan Drummer Eastlake Fennimore Garrowby Hollister Ibsenko Jarrow Kestler Lindqvist Marchetti "
    "Norwood Okparo Pellworm Quarles Rivendale Sandoval Thackeray Underhill Vasquero Wetherby Yarrowe Zellman Brightwell"
)
STREETS = (
    "Alder Way",
    "Birch Lane",
    "Canal Street",
    "Dove Court",
    "Elm Terrace",
    "Foundry Road",
    "Grange Avenue",
    "Harbor View",
    "Mill Row",
)
#: (city, state, first three digits of the ZIP codes). Cities are invented, states are not.
CITIES = (
    ("Marlow Bay", "Oregon", "971"),
    ("Fairhollow", "Ohio", "440"),
    ("Stonebridge", "Texas", "752"),
    ("Cedar Point", "Maine", "041"),
    ("Wexcombe", "Georgia", "303"),
    ("Lake Arden", "Michigan", "482"),
    ("Pinecrest Falls", "Colorado", "802"),
    ("Harrowgate", "Virginia", "232"),
)
GROUPS = ("General", "Wholesale", "Retailer")
CARRIERS = ("Swiftpost", "Larkspur Express", "Union Parcel")
#: What a customer can subscribe to.
TOPICS = ("Weekly offers", "New arrivals", "Recipes", "Garden tips", "Product recalls", "Events", "Gift ideas", "Outlet sales")
#: Newsletters that the logged-in customer receives.
SUBSCRIBED = ("New arrivals", "Events", "Gift ideas")
ORDER_COMMENTS = (
    "Customer asked for delivery after 5 pm.",
    "Gift wrapping requested.",
    "Leave the parcel with the neighbor.",
    "Customer called about the delivery date.",
    "Please use less packing material.",
)
SUBJECTS = ("Refund", "Delivery", "Product question", "Invoice", "Other")

#: Review titles by rating.
TITLES = {
    1: ("Broke after a week", "Would not buy again", "Very disappointed", "Not as described", "Waste of money"),
    2: ("Below expectations", "Meh", "Has its problems", "Hoped for more", "Only for light use"),
    3: ("It is okay", "Average", "Does the job", "Fair for the price", "Mixed feelings"),
    4: ("Good buy", "Pretty happy", "Solid choice", "Works well", "Nearly perfect"),
    5: ("Excellent", "Love it", "Exceeded my hopes", "Best purchase this year", "Five stars from me"),
}
#: What reviewers talk about: keyword -> (praise, criticism). The keyword stands in both and in no other sentence of this file's reviews.
ASPECTS = {
    "packaging": ("The packaging was neat and plastic free.", "The packaging was torn when it arrived."),
    "smell": ("There is no chemical smell at all.", "It has a strong smell that will not go away."),
    "instructions": ("Clear instructions, set up in minutes.", "The instructions make no sense."),
    "size": ("The size is just right for us.", "The size is much smaller than the photo suggests."),
    "color": ("The color looks even better in real life.", "The color faded within days."),
    "delivery": ("The delivery took two days only.", "The delivery came three weeks late."),
    "weight": ("Its weight feels reassuring.", "The weight makes it hard to move."),
    "finish": ("The finish is smooth everywhere.", "The finish scratches easily."),
    "warranty": ("The warranty claim was handled kindly.", "Nobody answers warranty mails."),
    "edges": ("Rounded edges, safe for children.", "Sharp edges, I cut my finger."),
    "support": ("Customer support helped at once.", "Customer support never called back."),
    "label": ("Even the label comes off easily.", "The label left glue everywhere."),
}
OPENERS = {
    1: ("I sent mine back.", "I regret this one."),
    2: ("I am not convinced.", "I expected better."),
    3: ("It is fine.", "Neither good nor bad."),
    4: ("I like it.", "I would recommend it."),
    5: ("I am thrilled.", "My whole family uses it."),
}
#: Content pages: title -> text.
PAGES = {
    "Home page": "Welcome to our shop. Free shipping from $100.",
    "About us": "We are a small team that sells things which last.",
    "Shipping": "Parcels leave our store within two working days.",
    "Returns": "Send back what you do not like within 30 days.",
    "Privacy policy": "We keep only what an order needs.",
    "Terms of use": "These terms hold for all orders.",
    "Careers": "We look for people who like good tools.",
    "Page not found": "This page has moved or never existed.",
}
