create table hook_event (event_id text primary key, source_id text not null, received_at text not null, received_ms integer not null,
  key_id text not null, body_digest text not null, event text not null, started text not null, note text not null);
create table hook_replay (source_id text not null, replay_id text not null, event_id text not null, until_ms integer not null,
  primary key (source_id, replay_id)) without rowid;
create index hook_replay_until on hook_replay (until_ms);
