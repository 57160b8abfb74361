-- primary key id
CREATE TABLE d (id INT, k STRING, v BIGINT) WITH ('connector' = 'file', 'path' = 'd', 'format' = 'json', 'changes' = 'snapshot');
CREATE TABLE e (id INT, k STRING, w BIGINT) WITH ('connector' = 'file', 'path' = 'e', 'format' = 'json', 'changes' = 'snapshot');
SELECT d.id, e.w FROM d JOIN e ON d.k = e.k;
