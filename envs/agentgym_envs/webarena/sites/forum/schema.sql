CREATE TABLE forum_users (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE COLLATE NOCASE,
    bio TEXT NOT NULL DEFAULT '',
    joined TEXT NOT NULL
);
CREATE TABLE forum_forums (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE COLLATE NOCASE,
    title TEXT NOT NULL,
    description TEXT NOT NULL,
    sidebar TEXT NOT NULL DEFAULT '',
    creator_id INTEGER NOT NULL REFERENCES forum_users (id),
    created TEXT NOT NULL
);
CREATE TABLE forum_subscriptions (
    forum_id INTEGER NOT NULL REFERENCES forum_forums (id),
    user_id INTEGER NOT NULL REFERENCES forum_users (id),
    PRIMARY KEY (forum_id, user_id)
) WITHOUT ROWID;
-- up and down count the votes of everyone; forum_votes holds those cast through the pages
CREATE TABLE forum_posts (
    id INTEGER PRIMARY KEY,
    forum_id INTEGER NOT NULL REFERENCES forum_forums (id),
    author_id INTEGER NOT NULL REFERENCES forum_users (id),
    title TEXT NOT NULL,
    url TEXT NOT NULL DEFAULT '',
    body TEXT NOT NULL DEFAULT '',
    created TEXT NOT NULL,
    up INTEGER NOT NULL DEFAULT 0,
    down INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX forum_posts_forum ON forum_posts (forum_id, created);
CREATE INDEX forum_posts_author ON forum_posts (author_id);
CREATE TABLE forum_comments (
    id INTEGER PRIMARY KEY,
    post_id INTEGER NOT NULL REFERENCES forum_posts (id) ON DELETE CASCADE,
    parent_id INTEGER REFERENCES forum_comments (id) ON DELETE CASCADE,
    author_id INTEGER NOT NULL REFERENCES forum_users (id),
    body TEXT NOT NULL,
    created TEXT NOT NULL,
    up INTEGER NOT NULL DEFAULT 0,
    down INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX forum_comments_post ON forum_comments (post_id, parent_id);
CREATE INDEX forum_comments_parent ON forum_comments (parent_id);
CREATE INDEX forum_comments_author ON forum_comments (author_id);
CREATE TABLE forum_votes (
    user_id INTEGER NOT NULL REFERENCES forum_users (id),
    kind TEXT NOT NULL CHECK (kind IN ('post', 'comment')),
    target_id INTEGER NOT NULL,
    value INTEGER NOT NULL CHECK (value IN (-1, 1)),
    PRIMARY KEY (user_id, kind, target_id)
) WITHOUT ROWID;
