CREATE TABLE d (id INT, k STRING, v BIGINT) WITH ('connector' = 'file', 'path' = 'd', 'format' = 'json', 'changes' = 'snapshot');
CREATE TABLE e (id INT, k STRING, w BIGINT) WITH ('connector' = 'file', 'path' = 'e', 'format' = 'json', 'changes' = 'snapshot');
SELECT x.k, x.v FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM d) x WHERE x.n < 4;
