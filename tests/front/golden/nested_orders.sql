-- title: two orderings inline in FROM, an integer lag, several WATERMARK clauses
CREATE TABLE i (time BIGINT, sent BIGINT, k STRING) WITH ('connector' = 'memory');
CREATE SOURCE w ("T 1" BIGINT, u INT, WATERMARK FOR "T 1" AS `T 1` - 5, WATERMARK FOR u AS u) WITH ('connector' = 'memory');
SELECT i1.time, w.`t 1`
FROM TABLE(IMPOSE_ORDER(TABLE(IMPOSE_ORDER(TABLE i, DESCRIPTOR(time), 2)), DESCRIPTOR(sent), 3)) AS i1
RIGHT JOIN w ON w.u BETWEEN i1.time - 1 AND i1.time + 4;
