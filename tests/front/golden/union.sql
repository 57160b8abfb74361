-- title: an event time of a UNION ALL is one that every branch orders
CREATE TABLE a (t INT, u INT, n STRING, WATERMARK FOR t AS t - 1, WATERMARK FOR u AS u) WITH ('connector' = 'memory');
CREATE TABLE b (x BIGINT, y BIGINT, WATERMARK FOR x AS x - 2) WITH ('connector' = 'memory');
SELECT u1.t FROM (SELECT t, u, n FROM a WHERE n <> '' UNION ALL SELECT x, y, 'b' FROM b) u1 JOIN b ON b.x = u1.t;
