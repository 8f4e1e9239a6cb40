-- name: backfill_get
select * from backfill where backfill_id = :backfill_id
-- name: backfill_lock
select * from backfill where backfill_id = :backfill_id /*for update*/
-- name: backfill_find
select * from backfill where backfill_id = :word or name = :word or dataset_id = :word order by put_at desc, backfill_id limit 1
-- name: backfill_list
select * from backfill order by put_at desc, backfill_id limit :limit
-- name: backfill_part_put
insert into backfill_part (backfill_id, n, state, run_id, attempts, reason, at_ms) values (:backfill_id, :n, :state, :run_id, 1, :reason, :at_ms)
on conflict (backfill_id, n) do update set state = excluded.state, run_id = excluded.run_id, reason = excluded.reason,
  at_ms = excluded.at_ms, attempts = backfill_part.attempts + 1
-- name: backfill_bucket
select state, count(*) as parts, sum(case when at_ms >= :since_ms then 1 else 0 end) as fresh
from backfill_part where backfill_id = :backfill_id and n >= :first and n < :last group by state
-- name: backfill_done_in
select n from backfill_part where backfill_id = :backfill_id and n >= :first and n < :last and state <> 'FAILED'
-- name: backfill_failed_since
select count(*) as parts from backfill_part where backfill_id = :backfill_id and state = 'FAILED' and at_ms >= :at_ms
-- name: backfill_failing
select * from backfill_part where backfill_id = :backfill_id and state = 'FAILED' and n >= :first order by n limit :limit
-- name: backfill_within
select * from backfill_part where backfill_id = :backfill_id and n >= :first and n < :last order by n
-- name: backfill_staged
select run_id from backfill_part where backfill_id = :backfill_id and state = 'STAGED' order by n limit :limit
-- name: backfill_parts
select p.n, p.state, p.run_id, l.part, l.input_hash from backfill_part p left join ledger l on l.run_id = p.run_id
where p.backfill_id = :backfill_id order by p.n
-- name: backfill_moved
select 1 as found where exists (
  select 1 from ledger where dataset_id = :dataset_id and backfill = :backfill_id and backfill <> '' and state in ('COMMITTED', 'NOOP', 'SUPERSEDED')
) or (select count(*) from backfill_part where backfill_id = :backfill_id and state = 'STAGED')
  > (select count(*) from ledger where dataset_id = :dataset_id and backfill = :backfill_id and backfill <> '' and state = 'STAGED')
-- name: backfill_behind
select 1 as found from backfill_part where backfill_id = :backfill_id and state = 'STAGED'
  and not exists (select 1 from ledger where ledger.run_id = backfill_part.run_id and ledger.dataset_id = :dataset_id and ledger.state = 'STAGED')
limit 1
-- name: backfill_later
select l.partition, l.win, max(g.generation) as newest from ledger l
join generation g on g.dataset_id = l.dataset_id and g.version_id = l.version_id and g.kind = 'promote' and g.generation > :generation
where l.dataset_id = :dataset_id and l.state = 'COMMITTED' and l.trigger_type <> 'assemble' and l.backfill <> :backfill_id
group by l.partition, l.win
-- name: backfill_committed
update backfill_part set state = 'COMMITTED' where backfill_id = :backfill_id and state = 'STAGED'
  and run_id in (select run_id from ledger where dataset_id = :dataset_id and state = 'COMMITTED' and backfill = :backfill_id)
-- name: backfill_unchanged
update backfill_part set state = 'NOOP', reason = (select l.reason from ledger l where l.run_id = backfill_part.run_id)
where backfill_id = :backfill_id and state = 'STAGED'
  and run_id in (select run_id from ledger where dataset_id = :dataset_id and state = 'NOOP' and backfill = :backfill_id)
-- name: backfill_lost
update backfill_part set state = 'FAILED', reason = :reason where backfill_id = :backfill_id and state = 'STAGED'
  and not exists (select 1 from ledger where ledger.run_id = backfill_part.run_id and ledger.state = 'STAGED')
-- name: backfill_outs
select first, amount, job_id from backfill_out where backfill_id = :backfill_id order by first
-- name: backfill_out_put
insert into backfill_out (backfill_id, first, amount, job_id) values (:backfill_id, :first, :amount, :job_id)
on conflict (backfill_id, first) do update set amount = excluded.amount, job_id = excluded.job_id
-- name: backfill_out_drop
delete from backfill_out where backfill_id = :backfill_id and first = :first
