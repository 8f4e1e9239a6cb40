-- name: visit_since
select * from visit where subject = :subject and ends_at >= :ends_at order by ends_at, partition
-- name: visit_due
select * from visit where subject = :subject and due_at <= :at order by due_at, slot, partition limit :limit
-- name: visit_next
select min(due_at) as due_at from visit where subject = :subject and due_at > :at
-- name: visit_ended
select v.*, j.outcome as ended, j.error as said from visit v left join job j on j.job_id = v.job_id
where v.subject = :subject and v.outcome = '' and (j.job_id is null or (j.state = 'ended' and j.generation >= v.generation)) limit :limit
-- name: visit_get
select * from visit where subject = :subject and slot = :slot and partition = :partition
-- name: visit_shown
select * from visit where subject = :subject and outcome in ('failed', 'cancelled') order by ends_at, partition limit :limit
-- name: visit_count
select outcome, sum(case when outcome = 'skipped' and n > 1 then n else 1 end) as visits from visit where subject = :subject and (slot < 'event:' or slot >= 'event;') group by outcome
-- name: visit_forget
delete from visit where subject = :subject and slot >= 'event:' and slot < 'event;' and put_ms < :before
-- name: checkpoint_get
select value from checkpoint where name = :name
-- name: checkpoint_put
insert into checkpoint (name, value) values (:name, :value) on conflict (name) do update set value = excluded.value
-- name: checkpoint_drop
delete from checkpoint where name = :name
