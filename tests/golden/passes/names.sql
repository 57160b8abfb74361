CREATE TABLE a (k STRING, t BIGINT, n BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE b (k STRING, t BIGINT, n BIGINT, WATERMARK FOR t AS t - 7) WITH ('connector' = 'memory');
SELECT u.n FROM (
  SELECT a.n, a.t FROM a JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 3 UNION ALL SELECT b.n, b.t FROM b
) u JOIN b ON u.n = b.n AND b.t BETWEEN u.t AND u.t + 9;
