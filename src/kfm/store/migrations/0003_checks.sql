create table head_key (
  dataset_id text not null, partition text not null, win text not null, run_key text not null, spec_hash text not null,
  input_hash text not null, etag text not null, version_id text not null, checked_at text not null, full_check_at text not null,
  primary key (dataset_id, partition, win)
) without rowid;
create table source_state (dataset_id text not null, source_url text not null, untrusted text not null, primary key (dataset_id, source_url)) without rowid;
create table noop (
  run_id text primary key, dataset_id text not null, partition text not null, win text not null, key text not null,
  reason text not null, names text not null, timestamp text not null,
  packed integer not null default 0
);
create index noop_dataset on noop (dataset_id, run_id);
create index noop_unpacked on noop (dataset_id, timestamp) where packed = 0;
