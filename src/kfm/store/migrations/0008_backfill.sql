create table backfill (
  backfill_id text primary key, name text not null, dataset_id text not null, state text not null, plan text not null,
  transform_hash text not null, total integer not null, put_by text not null, put_at text not null, began_ms integer not null,
  touched_ms integer not null, next_n integer not null, retry_n integer not null, ended_at text,
  run_id text not null, version_id text, generation integer, reason text not null
) without rowid;
create index backfill_name on backfill (name);
create table backfill_part (
  backfill_id text not null, n integer not null, state text not null, run_id text not null, attempts integer not null,
  reason text not null, at_ms integer not null, primary key (backfill_id, n)
) without rowid;
create index backfill_part_failed on backfill_part (backfill_id, n) where state = 'FAILED';
create index backfill_part_staged on backfill_part (backfill_id, n) where state = 'STAGED';
create table backfill_out (
  backfill_id text not null, first integer not null, amount integer not null, job_id text not null, primary key (backfill_id, first)
) without rowid;
