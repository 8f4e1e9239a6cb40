-- name: replay_known
select r.source_id, r.replay_id, r.event_id
from (select json_extract(value, '$[0]') as source_id, json_extract(value, '$[1]') as replay_id from json_each(:rows)) as given
join hook_replay r on r.source_id = given.source_id and r.replay_id = given.replay_id where r.until_ms >= :now_ms
-- name: replay_claim
insert into hook_replay (source_id, replay_id, event_id, until_ms)
select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), :now_ms + cast(json_extract(value, '$[3]') as bigint)
from json_each(:rows) where true
on conflict (source_id, replay_id) do update set event_id = excluded.event_id, until_ms = excluded.until_ms where hook_replay.until_ms < :now_ms
returning event_id
-- name: replay_forget
delete from hook_replay where until_ms < :now_ms
-- name: replay_claim_some
insert into hook_replay (source_id, replay_id, event_id, until_ms) values (?)
on conflict (source_id, replay_id) do update set event_id = excluded.event_id, until_ms = excluded.until_ms where hook_replay.until_ms < ?
returning event_id
-- name: event_put_all
insert into hook_event (event_id, source_id, received_at, received_ms, key_id, body_digest, event, started, note)
select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), cast(json_extract(value, '$[3]') as bigint),
  json_extract(value, '$[4]'), json_extract(value, '$[5]'), json_extract(value, '$[6]'), json_extract(value, '$[7]'), json_extract(value, '$[8]')
from json_each(:rows) where true
-- name: event_put_some
insert into hook_event (event_id, source_id, received_at, received_ms, key_id, body_digest, event, started, note) values (?)
-- name: event_like
select event_id, source_id, received_at, received_ms, key_id, body_digest, event, started, note from hook_event
where event_id >= :first and event_id < :after order by event_id limit 2
-- name: event_list
select event_id, source_id, received_at, received_ms, key_id, body_digest, event, started, note from hook_event
where (cast(:source_id as text) is null or source_id = :source_id) order by rowid desc limit :limit
-- name: event_keys
select key_id, count(*) as events, max(received_at) as last_at from hook_event where source_id = :source_id group by key_id
-- name: event_count
select count(*) as events from hook_event
-- name: event_restart
update hook_event set started = :started, note = '' where event_id = :event_id
-- name: event_forget
delete from hook_event where received_ms < :before and rowid in (select rowid from hook_event order by rowid limit :limit)
