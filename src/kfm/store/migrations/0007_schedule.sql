create table visit (subject text not null, partition text not null, slot text not null, ends_at integer not null, n integer not null,
  puts integer not null, fails integer not null, due_at integer, put_ms integer not null, job_id text not null, generation integer not null,
  outcome text not null, error text not null, mark text not null, primary key (subject, slot, partition)) without rowid;
create index visit_due on visit (subject, due_at) where due_at is not null;
create index visit_ends on visit (subject, ends_at);
create index visit_unknown on visit (subject) where outcome = '';
create index visit_shown on visit (subject, outcome) where outcome <> 'done';
create table checkpoint (name text primary key, value text not null) without rowid;
