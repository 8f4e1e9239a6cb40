alter table noop add column code text not null default '';
update noop set code = 'unchanged' where reason = 'unchanged';
