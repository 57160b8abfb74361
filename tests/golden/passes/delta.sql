CREATE TABLE d (id INT, k STRING, v BIGINT) WITH ('connector' = 'file', 'path' = 'd', 'format' = 'json', 'changes' = 'snapshot');
CREATE TABLE e (id INT, k STRING, w BIGINT) WITH ('connector' = 'file', 'path' = 'e', 'format' = 'json', 'changes' = 'snapshot');
CREATE TABLE f (id INT, k STRING, w BIGINT) WITH ('connector' = 'file', 'path' = 'f', 'format' = 'json', 'changes' = 'snapshot');
SELECT d.v, e.w, f.w AS x FROM d JOIN e ON d.k = e.k JOIN f ON f.id = e.id;
