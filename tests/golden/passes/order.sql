CREATE TABLE a (k STRING, t BIGINT, n BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE b (k STRING, t BIGINT, n BIGINT, WATERMARK FOR t AS t - 7) WITH ('connector' = 'memory');
CREATE TABLE c (k STRING, t BIGINT, WATERMARK FOR t AS t - 7) WITH ('connector' = 'memory');
SELECT a.n, b.n AS m FROM a, b, c WHERE a.k = c.k AND c.t BETWEEN a.t AND a.t + 4 AND c.k = b.k AND b.t BETWEEN c.t - 2 AND c.t + 3;
