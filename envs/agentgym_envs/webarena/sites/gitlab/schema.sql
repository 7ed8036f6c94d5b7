CREATE TABLE lab_users (
    id INTEGER PRIMARY KEY,
    username TEXT NOT NULL UNIQUE COLLATE NOCASE,
    name TEXT NOT NULL,
    bio TEXT NOT NULL DEFAULT '',
    status TEXT NOT NULL DEFAULT ''
);
CREATE TABLE lab_projects (
    id INTEGER PRIMARY KEY,
    owner_id INTEGER NOT NULL REFERENCES lab_users (id),
    slug TEXT NOT NULL COLLATE NOCASE,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    visibility TEXT NOT NULL CHECK (visibility IN ('public', 'private')),
    created TEXT NOT NULL,
    forked_from INTEGER REFERENCES lab_projects (id),
    UNIQUE (owner_id, slug)
);
CREATE TABLE lab_stars (project_id INTEGER NOT NULL, user_id INTEGER NOT NULL, PRIMARY KEY (project_id, user_id)) WITHOUT ROWID;
CREATE TABLE lab_members (project_id INTEGER NOT NULL, user_id INTEGER NOT NULL, role TEXT NOT NULL, PRIMARY KEY (project_id, user_id)) WITHOUT ROWID;
CREATE INDEX lab_members_user ON lab_members (user_id);
CREATE TABLE lab_files (project_id INTEGER NOT NULL, path TEXT NOT NULL, content TEXT NOT NULL, PRIMARY KEY (project_id, path)) WITHOUT ROWID;
CREATE TABLE lab_branches (project_id INTEGER NOT NULL, name TEXT NOT NULL, PRIMARY KEY (project_id, name)) WITHOUT ROWID;
CREATE TABLE lab_commits (
    id INTEGER PRIMARY KEY,
    project_id INTEGER NOT NULL,
    author_id INTEGER NOT NULL,
    sha TEXT NOT NULL,
    message TEXT NOT NULL,
    created TEXT NOT NULL
);
CREATE INDEX lab_commits_project ON lab_commits (project_id, created);
CREATE TABLE lab_issues (
    id INTEGER PRIMARY KEY,
    project_id INTEGER NOT NULL,
    iid INTEGER NOT NULL,
    title TEXT NOT NULL,
    description TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'closed')),
    author_id INTEGER NOT NULL,
    assignee_id INTEGER,
    milestone TEXT,
    created TEXT NOT NULL,
    UNIQUE (project_id, iid)
);
CREATE INDEX lab_issues_assignee ON lab_issues (assignee_id);
CREATE TABLE lab_labels (project_id INTEGER NOT NULL, name TEXT NOT NULL, PRIMARY KEY (project_id, name)) WITHOUT ROWID;
CREATE TABLE lab_milestones (project_id INTEGER NOT NULL, title TEXT NOT NULL, PRIMARY KEY (project_id, title)) WITHOUT ROWID;
CREATE TABLE lab_issue_labels (issue_id INTEGER NOT NULL, label TEXT NOT NULL, PRIMARY KEY (issue_id, label)) WITHOUT ROWID;
CREATE TABLE lab_merge_requests (
    id INTEGER PRIMARY KEY,
    project_id INTEGER NOT NULL,
    iid INTEGER NOT NULL,
    title TEXT NOT NULL,
    description TEXT NOT NULL,
    source_branch TEXT NOT NULL,
    target_branch TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'closed', 'merged')),
    author_id INTEGER NOT NULL,
    reviewer_id INTEGER,
    created TEXT NOT NULL,
    UNIQUE (project_id, iid)
);
CREATE INDEX lab_merge_requests_reviewer ON lab_merge_requests (reviewer_id);
CREATE TABLE lab_comments (
    id INTEGER PRIMARY KEY,
    issue_id INTEGER,
    merge_request_id INTEGER,
    author_id INTEGER NOT NULL,
    body TEXT NOT NULL,
    created TEXT NOT NULL,
    CHECK ((issue_id IS NULL) != (merge_request_id IS NULL))
);
CREATE INDEX lab_comments_issue ON lab_comments (issue_id);
CREATE INDEX lab_comments_merge_request ON lab_comments (merge_request_id);
CREATE TABLE lab_todos (
    id INTEGER PRIMARY KEY,
    user_id INTEGER NOT NULL,
    author_id INTEGER NOT NULL,
    action TEXT NOT NULL,
    issue_id INTEGER,
    merge_request_id INTEGER,
    created TEXT NOT NULL,
    done INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX lab_todos_user ON lab_todos (user_id, done);
