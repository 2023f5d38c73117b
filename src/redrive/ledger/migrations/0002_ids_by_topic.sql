-- An id is one record's only among those of its source topic, or of the handler's id_scope: order 7
-- and refund 7 are two records. What was handled before came from the topic that `source` names
-- (`orders[3]@17`), so every row keeps its meaning.
alter table inbox add column scope text;
update inbox set scope = regexp_replace(source, '\[[0-9]+\]@-?[0-9]+$', '');
alter table inbox alter column scope set not null;
alter table inbox drop constraint inbox_pkey;
alter table inbox add primary key (app, scope, id);
