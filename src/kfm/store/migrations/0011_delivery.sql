create table delivery (
  run_id text not null, generation integer not null, receiver text not null, dataset_id text not null,
  state text not null check (state in ('waiting', 'delivered', 'dropped', 'failed')),
  tries integer not null, not_before_ms integer not null, error text not null, primary key (run_id, generation, receiver)
) without rowid;
create index delivery_waiting on delivery (state, dataset_id);
