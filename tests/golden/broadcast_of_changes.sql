SET output_mode = changelog;
CREATE TABLE a (n BIGINT, t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE b (n BIGINT, t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
SELECT /*+ BROADCAST(b) */ a.n FROM a LEFT JOIN b ON b.n = a.n AND b.t = a.t;
SELECT /*+ BROADCAST(a) */ a.n FROM a LEFT SEMI JOIN b ON b.n = a.n AND b.t = a.t;
SELECT a.n FROM a LEFT JOIN b ON b.t BETWEEN a.t AND a.t + 9;
